#include "softgpu/driver/library.h"

#include <utility>

#include "softgpu/driver/context.h"
#include "softgpu/driver/errors.h"
#include "softgpu/driver/state.h"

namespace softgpu {

Kernel::Kernel(Library* library, const exec::Kernel* kernel, int devices)
    : library_(library), kernel_(kernel) {
  for (int i = 0; i < devices; i++) settings_.push_back(std::make_shared<FunctionSettings>());
}

Library::Library(Code code, int devices) : source_(std::move(code.source)), first_(std::move(code.program)) {
  for (const exec::Kernel* kernel : first_->kernels())
    kernels_.push_back(std::make_shared<Kernel>(this, kernel, devices));
}

std::shared_ptr<Kernel> Library::Find(std::string_view name) const {
  for (const std::shared_ptr<Kernel>& kernel : kernels_) {
    if (kernel->name() == name) return kernel;
  }
  return nullptr;
}

std::shared_ptr<FunctionSettings> Library::SettingsOf(std::string_view kernel, int device) const {
  std::shared_ptr<Kernel> found = Find(kernel);
  return found != nullptr ? found->settings(device) : nullptr;
}

CUresult Library::ModuleFor(Context& context, std::shared_ptr<Module>* out) {
  std::lock_guard lock(mutex_);
  std::shared_ptr<Module>& module = modules_[&context];
  if (module == nullptr) {
    std::shared_ptr<exec::Program> program = first_;
    if (first_used_) {
      stasis::Result<std::shared_ptr<exec::Program>> another = exec::Program::Load(source_);
      if (!another.ok()) return FromStatus(another.status());
      program = std::move(*another);
    }
    CUdeviceptr managed_base = 0;
    for (const auto& [other, loaded] : modules_) {
      if (loaded != nullptr && managed_base == 0) managed_base = loaded->managed_base();
    }
    first_used_ = true;
    CUresult result = Module::Create(context, std::move(program), this, managed_base, &module);
    if (result != CUDA_SUCCESS) {
      modules_.erase(&context);
      return result;
    }
    Publish(module);
  }
  *out = module;
  return CUDA_SUCCESS;
}

CUresult Library::FunctionFor(Context& context, const Kernel& kernel, std::shared_ptr<Function>* out) {
  std::shared_ptr<Module> module;
  CUresult result = ModuleFor(context, &module);
  if (result != CUDA_SUCCESS) return result;
  *out = module->Find(kernel.name());
  return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

void Library::ContextDestroyed(const Context& context) {
  std::lock_guard lock(mutex_);
  modules_.erase(&context);
}

std::vector<std::shared_ptr<Module>> Library::Modules() const {
  std::vector<std::shared_ptr<Module>> all;
  std::lock_guard lock(mutex_);
  for (const auto& entry : modules_) all.push_back(entry.second);
  return all;
}

void Library::Unload() {
  std::lock_guard lock(mutex_);
  for (const auto& [context, module] : modules_) {
    Withdraw(*module);
    module->FreeMemory();
  }
  modules_.clear();
}

}  // namespace softgpu
