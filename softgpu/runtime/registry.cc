#include "softgpu/runtime/registry.h"

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "softgpu/runtime/driver.h"
#include "softgpu/runtime/errors.h"

namespace softgpu::runtime {
namespace {

struct Registry {
  std::mutex mutex;  // guards the three below; never held while the driver is called
  std::unordered_map<const void*, Kernel*> kernels;      // by host stub
  std::unordered_map<const void*, Variable*> variables;  // by host shadow, or by slot for managed ones
  std::vector<Variable*> managed;
};

// Counts requests to store managed addresses, and the last one carried out. Equal when there is nothing to
// do.
constinit std::atomic<unsigned> g_managed_wanted{0};
constinit std::atomic<unsigned> g_managed_filled{0};

constinit std::atomic<cudaError_t> g_unresolved{cudaErrorInvalidDeviceFunction};

Registry* NewRegistry();

// Never destroyed: programs unregister and call in from exit handlers.
Registry& TheRegistry() {
  static Registry* registry = NewRegistry();
  return *registry;
}

// A fork while another thread holds the mutex must not leave it locked for ever in the child.
Registry* NewRegistry() {
  pthread_atfork([] { TheRegistry().mutex.lock(); }, [] { TheRegistry().mutex.unlock(); },
                 [] { TheRegistry().mutex.unlock(); });
  return new Registry;
}

Kernel* FindKernel(const void* stub) {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  auto found = registry.kernels.find(stub);
  return found != registry.kernels.end() ? found->second : nullptr;
}

// Host code names a managed variable by the address that its slot holds.
Variable* FindVariable(const void* symbol) {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  auto found = registry.variables.find(symbol);
  if (found != registry.variables.end()) return found->second;
  for (Variable* variable : registry.managed) {
    if (*variable->managed_slot == symbol && symbol != nullptr) return variable;
  }
  return nullptr;
}

cudaError_t LoadModule(Module* module) {
  if (module->loaded.done()) return cudaSuccess;
  return module->loaded.Run([module] { return LoadFatbin(module->wrapper, &module->library); });
}

cudaError_t KernelHandle(Kernel* kernel, CUkernel* handle) {
  *handle = kernel->handle.load(std::memory_order_acquire);
  if (*handle != nullptr) return cudaSuccess;
  RT_TRY(LoadModule(kernel->module));
  const cudaError_t error = CU(cuLibraryGetKernel)(handle, kernel->module->library, kernel->name);
  if (error == cudaErrorSymbolNotFound) return cudaErrorInvalidDeviceFunction;
  RT_TRY(error);
  kernel->handle.store(*handle, std::memory_order_release);
  return cudaSuccess;
}

bool IsHostCode(const void* address) {
  Dl_info info;
  return dladdr(address, &info) != 0;
}

cudaError_t AddressOf(const Variable* variable, CUdeviceptr* address, size_t* size) {
  RT_TRY(LoadModule(variable->module));
  const CUlibrary library = variable->module->library;
  if (variable->managed_slot == nullptr)
    return CU(cuLibraryGetGlobal)(address, size, library, variable->name);
  // A library's managed variables exist once it is loaded into some context.
  CUmodule module = nullptr;
  RT_TRY(CU(cuLibraryGetModule)(&module, library));
  return CU(cuLibraryGetManaged)(address, size, library, variable->name);
}

cudaError_t FillSlot(const Variable* variable) {
  CUdeviceptr address = 0;
  size_t size = 0;
  const cudaError_t error = AddressOf(variable, &address, &size);
  if (error == cudaErrorSymbolNotFound) return cudaSuccess;  // the compiler dropped an unused variable
  RT_TRY(error);
  *variable->managed_slot = reinterpret_cast<void*>(address);
  return cudaSuccess;
}

std::vector<Variable*> ManagedVariables() {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  return registry.managed;
}

template <typename Map>
void EraseOf(Map* map, const Module* module) {
  std::erase_if(*map, [module](const auto& item) {
    if (item.second->module != module) return false;
    delete item.second;
    return true;
  });
}

}  // namespace

Module* AddModule(const FatbinWrapper* wrapper) { return new Module(wrapper); }

// Two files may define the same stub (an inline kernel); the first registration is as good as the second.
void AddKernel(Module* module, const void* stub, const char* name) {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  Kernel*& slot = registry.kernels[stub];
  if (slot == nullptr) slot = new Kernel{module, name};
}

void AddVariable(Module* module, const void* shadow, const char* name) {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  Variable*& slot = registry.variables[shadow];
  if (slot == nullptr) slot = new Variable{module, name, nullptr};
}

void AddManagedVariable(Module* module, void** slot, const char* name) {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  Variable*& entry = registry.variables[slot];
  if (entry != nullptr) return;
  entry = new Variable{module, name, slot};
  registry.managed.push_back(entry);
  InvalidateManaged();
}

void RemoveModule(Module* module) {
  Registry& registry = TheRegistry();
  {
    std::lock_guard<std::mutex> lock(registry.mutex);
    std::erase_if(registry.managed,
                  [module](const Variable* variable) { return variable->module == module; });
    EraseOf(&registry.kernels, module);
    EraseOf(&registry.variables, module);
  }
  if (module->loaded.done() && !ProcessExiting()) CU(cuLibraryUnload)(module->library);
  delete module;
}

cudaError_t ResolveKernel(const void* func, CUkernel* kernel) {
  if (func == nullptr) return cudaErrorInvalidDeviceFunction;
  if (Kernel* registered = FindKernel(func)) {
    FillManaged();
    return KernelHandle(registered, kernel);
  }
  if (IsHostCode(func)) return cudaErrorInvalidDeviceFunction;
  *kernel = static_cast<CUkernel>(const_cast<void*>(func));
  return cudaSuccess;
}

void NoteUnresolvedKernel(cudaError_t error) { g_unresolved.store(error, std::memory_order_relaxed); }

cudaError_t UnresolvedKernelError() { return g_unresolved.load(std::memory_order_relaxed); }

void* StubOf(CUkernel kernel, CUfunction function) {
  Registry& registry = TheRegistry();
  std::vector<std::pair<const void*, CUkernel>> loaded;
  {
    std::lock_guard<std::mutex> lock(registry.mutex);
    for (const auto& [stub, entry] : registry.kernels) {
      const CUkernel handle = entry->handle.load(std::memory_order_acquire);
      if (handle == nullptr) continue;
      if (handle == kernel) return const_cast<void*>(stub);
      loaded.emplace_back(stub, handle);
    }
  }
  if (kernel != nullptr) return kernel;
  for (const auto& [stub, handle] : loaded) {
    CUfunction candidate = nullptr;
    if (CU(cuKernelGetFunction)(&candidate, handle) == cudaSuccess && candidate == function) {
      return const_cast<void*>(stub);
    }
  }
  return function;
}

cudaError_t ResolveSymbol(const void* symbol, CUdeviceptr* address, size_t* size) {
  const Variable* variable = FindVariable(symbol);
  if (variable == nullptr) return cudaErrorInvalidSymbol;
  const cudaError_t error = AddressOf(variable, address, size);
  return error == cudaErrorSymbolNotFound ? cudaErrorInvalidSymbol : error;
}

cudaError_t ResolveSymbolRange(const void* symbol, size_t offset, size_t count, void** address) {
  CUdeviceptr base = 0;
  size_t size = 0;
  RT_TRY(ResolveSymbol(symbol, &base, &size));
  if (offset > size || count > size - offset) return cudaErrorInvalidValue;
  *address = reinterpret_cast<void*>(base + offset);
  return cudaSuccess;
}

void InvalidateManaged() { g_managed_wanted.fetch_add(1, std::memory_order_acq_rel); }

void FillManaged() {
  const unsigned wanted = g_managed_wanted.load(std::memory_order_acquire);
  if (g_managed_filled.load(std::memory_order_acquire) == wanted) return;
  for (const Variable* variable : ManagedVariables()) FillSlot(variable);
  g_managed_filled.store(wanted, std::memory_order_release);
}

cudaError_t FillManagedOf(const Module* module) {
  for (const Variable* variable : ManagedVariables()) {
    if (variable->module == module) RT_TRY(FillSlot(variable));
  }
  return cudaSuccess;
}

}  // namespace softgpu::runtime
