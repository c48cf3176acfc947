#include "replay/code_record.h"

#include "replay/current_context.h"
#include "vmm/device_map.h"
#include "vmm/real_driver.h"

namespace stasis::replay {

namespace {

// The library's module in the current context; loads it when it is not there yet.
Result<CUmodule> ModuleOf(CUlibrary library) {
  CUmodule module = nullptr;
  RETURN_IF_ERROR(DriverStatus(Driver().cuLibraryGetModule(&module, library), "cuLibraryGetModule"));
  return module;
}

Status CheckCode(const LoadedCode& code, const std::string& name) {
  RETURN_IF_ERROR(code.jit.Check().WithContext(name));
  return code.image->Check().WithContext(name);
}

template <typename T>
std::shared_ptr<T> FindRealAs(uint64_t real) {
  return std::dynamic_pointer_cast<T>(ObjectTable::Get().FindReal(real));
}

std::vector<RecordPtr> Existing(std::vector<RecordPtr> parents) {
  std::erase(parents, nullptr);
  return parents;
}

}  // namespace

Status LibraryRecord::Check() { return CheckCode(code_, Name()); }

// A context in which the code does not run has no module of it, and no variables.
Status LibraryRecord::Save() {
  variables_.clear();
  if (code_.image->variables().empty()) return {};
  for (const ContextPtr& context : ActiveContexts()) {
    const CurrentContext current(context->real_context());
    RETURN_IF_ERROR(current.status());
    CUmodule module = nullptr;
    if (Driver().cuLibraryGetModule(&module, real_library()) != CUDA_SUCCESS) continue;
    ModuleVariables variables;
    RETURN_IF_ERROR(variables.Save(module, code_.image->variables()).WithContext(Name()));
    if (!variables.empty()) variables_.emplace_back(context, std::move(variables));
  }
  return {};
}

Status LibraryRecord::Destroy() {
  return DriverStatus(Driver().cuLibraryUnload(real_library()), "cuLibraryUnload");
}

Result<CUlibrary> LibraryRecord::Load() const {
  JitOptions jit = code_.jit;  // some values are filled by the driver
  std::vector<CUlibraryOption> options = code_.library_options;
  std::vector<void*> values = code_.library_values;
  CUlibrary library = nullptr;
  const CUresult loaded =
      Driver().cuLibraryLoadData(&library, code_.image->data(), jit.options(), jit.values(), jit.count(),
                                 options.data(), values.data(), static_cast<unsigned>(options.size()));
  RETURN_IF_ERROR(DriverStatus(loaded, "cuLibraryLoadData"));
  return library;
}

Status LibraryRecord::Place(CUlibrary library, PageSet* wrong) {
  for (const auto& [context, variables] : variables_) {
    const CurrentContext current(context->real_context());
    RETURN_IF_ERROR(current.status());
    ASSIGN_OR_RETURN(const CUmodule module, ModuleOf(library));
    RETURN_IF_ERROR(variables.CheckPlaces(module, Name(), wrong));
    RETURN_IF_ERROR(variables.PutBack());
  }
  return {};
}

Result<uint64_t> LibraryRecord::Rebuild() {
  CUlibrary library = nullptr;
  RETURN_IF_ERROR(LoadInPlace(
      [&](PageSet* wrong) -> Status {
        ASSIGN_OR_RETURN(library, Load());
        return Place(library, wrong);
      },
      [&] {
        if (library != nullptr) (void)Driver().cuLibraryUnload(library);
        library = nullptr;
      }));
  return reinterpret_cast<uint64_t>(library);
}

void LibraryRecord::Rebuilt() { variables_.clear(); }

void LibraryRecord::AddPlaces(PageSet* pages) const {
  for (const auto& [context, variables] : variables_) variables.AddPlaces(pages);
}

ModuleRecord::ModuleRecord(ContextPtr context, LoadedCode code)
    : Record(ObjectKind::kModule, Existing({context})),
      context_(std::move(context)),
      code_(std::move(code)) {}

ModuleRecord::ModuleRecord(ContextPtr context, LibraryPtr library)
    : Record(ObjectKind::kModule, Existing({context, library})),
      context_(std::move(context)),
      library_(std::move(library)) {}

Status ModuleRecord::Check() {
  if (context_ == nullptr)
    return Errorf(StatusCode::kUnsupported, "%s was loaded into a context that cannot be rebuilt",
                  Name().c_str());
  return library_ != nullptr ? Status() : CheckCode(code_, Name());
}

Status ModuleRecord::Save() {
  if (library_ != nullptr) return {};
  const CurrentContext current(context_->real_context());
  RETURN_IF_ERROR(current.status());
  return variables_.Save(real_module(), code_.image->variables()).WithContext(Name());
}

// A library's module goes with its library.
Status ModuleRecord::Destroy() {
  if (library_ != nullptr) return {};
  const CurrentContext current(context_->real_context());
  RETURN_IF_ERROR(current.status());
  return DriverStatus(Driver().cuModuleUnload(real_module()), "cuModuleUnload");
}

Result<CUmodule> ModuleRecord::Load() const {
  JitOptions jit = code_.jit;
  CUmodule module = nullptr;
  const CUresult loaded =
      Driver().cuModuleLoadDataEx(&module, code_.image->data(), jit.count(), jit.options(), jit.values());
  RETURN_IF_ERROR(DriverStatus(loaded, "cuModuleLoadDataEx"));
  return module;
}

Result<uint64_t> ModuleRecord::Rebuild() {
  const CurrentContext current(context_->real_context());
  RETURN_IF_ERROR(current.status());
  CUmodule module = nullptr;
  if (library_ != nullptr) {
    ASSIGN_OR_RETURN(module, ModuleOf(library_->real_library()));
    return reinterpret_cast<uint64_t>(module);
  }
  RETURN_IF_ERROR(LoadInPlace(
      [&](PageSet* wrong) -> Status {
        ASSIGN_OR_RETURN(module, Load());
        RETURN_IF_ERROR(variables_.CheckPlaces(module, Name(), wrong));
        return variables_.PutBack();
      },
      [&] {
        if (module != nullptr) (void)Driver().cuModuleUnload(module);
        module = nullptr;
      }));
  return reinterpret_cast<uint64_t>(module);
}

void FunctionSettings::SetAttribute(CUfunction_attribute attribute, int value) {
  std::lock_guard lock(mutex_);
  attributes_[static_cast<int>(attribute)] = value;
}

void FunctionSettings::SetCacheConfig(CUfunc_cache config) {
  std::lock_guard lock(mutex_);
  cache_ = config;
}

KernelRecord::KernelRecord(LibraryPtr library, std::string name)
    : Record(ObjectKind::kKernel, Existing({library})),
      library_(std::move(library)),
      name_(std::move(name)) {}

FunctionSettings& KernelRecord::settings(int device) {
  std::lock_guard lock(mutex_);
  return settings_[device];
}

Result<uint64_t> KernelRecord::Rebuild() {
  CUkernel kernel = nullptr;
  RETURN_IF_ERROR(DriverStatus(Driver().cuLibraryGetKernel(&kernel, library_->real_library(), name_.c_str()),
                               "cuLibraryGetKernel")
                      .WithContext("kernel '" + name_ + "'"));
  for (const auto& [device, settings] : settings_) {
    const CUdevice physical = ToPhysicalDevice(device);
    RETURN_IF_ERROR(settings.Restore(
        [&](CUfunction_attribute attribute, int value) {
          return DriverStatus(Driver().cuKernelSetAttribute(attribute, value, kernel, physical),
                              "cuKernelSetAttribute");
        },
        [&](CUfunc_cache config) {
          return DriverStatus(Driver().cuKernelSetCacheConfig(kernel, config, physical),
                              "cuKernelSetCacheConfig");
        }));
  }
  return reinterpret_cast<uint64_t>(kernel);
}

FunctionRecord::FunctionRecord(std::shared_ptr<ModuleRecord> module, std::string name)
    : Record(ObjectKind::kFunction, Existing({module})), module_(std::move(module)), name_(std::move(name)) {}

FunctionRecord::FunctionRecord(ContextPtr context, std::shared_ptr<KernelRecord> kernel)
    : Record(ObjectKind::kFunction, Existing({context, kernel})),
      context_(std::move(context)),
      kernel_(std::move(kernel)) {}

void FunctionRecord::ShowModule(CUmodule* module) const {
  if (module_ != nullptr) {
    *module = reinterpret_cast<CUmodule>(module_->visible());
  } else {
    AddSharedRecord(std::make_shared<ModuleRecord>(context_, kernel_->library()), module);
  }
}

Status FunctionRecord::Check() {
  if (module_ != nullptr || context_ != nullptr) return {};
  return Errorf(StatusCode::kUnsupported, "%s belongs to a context that cannot be rebuilt", Name().c_str());
}

Result<CUfunction> FunctionRecord::Find() const {
  CUfunction function = nullptr;
  if (kernel_ != nullptr) {
    const CurrentContext current(context_->real_context());
    RETURN_IF_ERROR(current.status());
    RETURN_IF_ERROR(
        DriverStatus(Driver().cuKernelGetFunction(&function, kernel_->real_kernel()), "cuKernelGetFunction"));
    return function;
  }
  const CUresult found = Driver().cuModuleGetFunction(&function, module_->real_module(), name_.c_str());
  RETURN_IF_ERROR(DriverStatus(found, "cuModuleGetFunction").WithContext("function '" + name_ + "'"));
  return function;
}

Result<uint64_t> FunctionRecord::Rebuild() {
  const ContextPtr context = kernel_ != nullptr ? context_ : module_->context();
  const CurrentContext current(context->real_context());
  RETURN_IF_ERROR(current.status());
  ASSIGN_OR_RETURN(const CUfunction function, Find());
  RETURN_IF_ERROR(settings_.Restore(
      [&](CUfunction_attribute attribute, int value) {
        return DriverStatus(Driver().cuFuncSetAttribute(function, attribute, value), "cuFuncSetAttribute");
      },
      [&](CUfunc_cache config) {
        return DriverStatus(Driver().cuFuncSetCacheConfig(function, config), "cuFuncSetCacheConfig");
      }));
  return reinterpret_cast<uint64_t>(function);
}

void ShowKernel(const LibraryPtr& library, CUkernel* kernel) {
  if (auto known = FindRealAs<KernelRecord>(reinterpret_cast<uint64_t>(*kernel))) {
    *kernel = reinterpret_cast<CUkernel>(known->visible());
    return;
  }
  const char* name = nullptr;
  if (Driver().cuKernelGetName(&name, *kernel) != CUDA_SUCCESS || name == nullptr) return;
  AddSharedRecord(std::make_shared<KernelRecord>(library, name), kernel);
}

void ShowFunction(const std::shared_ptr<ModuleRecord>& module, CUfunction* function) {
  if (auto known = FindRealAs<FunctionRecord>(reinterpret_cast<uint64_t>(*function))) {
    *function = reinterpret_cast<CUfunction>(known->visible());
    return;
  }
  const char* name = nullptr;
  if (Driver().cuFuncGetName(&name, *function) != CUDA_SUCCESS || name == nullptr) return;
  AddSharedRecord(std::make_shared<FunctionRecord>(module, name), function);
}

void ShowKernelFunction(const std::shared_ptr<KernelRecord>& kernel, CUfunction* function) {
  AddSharedRecord(std::make_shared<FunctionRecord>(CurrentContextRecord(), kernel), function);
}

void ShowLibraryModule(const LibraryPtr& library, CUmodule* module) {
  AddSharedRecord(std::make_shared<ModuleRecord>(CurrentContextRecord(), library), module);
}

PageSet VariablePlaces() {
  PageSet pages;
  for (const RecordPtr& record : ObjectTable::Get().InOrder()) {
    if (record->kind() == ObjectKind::kLibrary) static_cast<LibraryRecord&>(*record).AddPlaces(&pages);
    if (record->kind() == ObjectKind::kModule) static_cast<ModuleRecord&>(*record).AddPlaces(&pages);
  }
  return pages;
}

}  // namespace stasis::replay
