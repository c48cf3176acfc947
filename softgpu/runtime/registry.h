// What the program's own start-up code registered: fat binaries, kernels, device and managed variables.
//
// Registration runs before main and touches no driver. A module is loaded as a context-independent library at
// its first use, so the handles handed out stay valid when a device is reset.
#ifndef SOFTGPU_RUNTIME_REGISTRY_H_
#define SOFTGPU_RUNTIME_REGISTRY_H_

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <vector>

#include "softgpu/runtime/fatbin.h"
#include "softgpu/runtime/once.h"

namespace softgpu::runtime {

struct Module {
  explicit Module(const FatbinWrapper* wrapper_in) : wrapper(wrapper_in) {}

  const FatbinWrapper* const wrapper;
  Once loaded;
  CUlibrary library = nullptr;  // constant after `loaded`
};

struct Kernel {
  Module* module;
  const char* name;  // in the registering object's read-only data
  std::atomic<CUkernel> handle{nullptr};
};

struct Variable {
  Module* module;
  const char* name;     // in the registering object's read-only data
  void** managed_slot;  // where the host code expects a managed variable's address; null for plain variables
};

Module* AddModule(const FatbinWrapper* wrapper);
void AddKernel(Module* module, const void* stub, const char* name);
void AddVariable(Module* module, const void* shadow, const char* name);
void AddManagedVariable(Module* module, void** slot, const char* name);

// Forgets the module and what it registered, and unloads its library unless the process is ending.
void RemoveModule(Module* module);

// Driver handle of a kernel. `func` is a host stub or, as the API documents, a cudaKernel_t used as it is.
// cudaErrorInvalidDeviceFunction for null and for host functions that no one registered.
cudaError_t ResolveKernel(const void* func, CUkernel* kernel);

// Why the last kernel handle that compiled code asked for could not be had; cudaErrorInvalidDeviceFunction if
// none failed. It is what launches through the missing handle report.
void NoteUnresolvedKernel(cudaError_t error);
cudaError_t UnresolvedKernelError();

// The host stub registered for a kernel the driver names by handle; the handle itself if there is none.
void* StubOf(CUkernel kernel, CUfunction function);

// Address and size of a device variable in the current context. cudaErrorInvalidSymbol if it is not
// registered, or not part of the image that was loaded.
cudaError_t ResolveSymbol(const void* symbol, CUdeviceptr* address, size_t* size);

// Address of the bytes [offset, offset + count) of a device variable; cudaErrorInvalidValue if it is not that
// large.
cudaError_t ResolveSymbolRange(const void* symbol, size_t offset, size_t count, void** address);

// Stores the addresses of managed variables where host code looks for them; needs a current context. Cheap
// when there is nothing to do. A module that does not load keeps its own variables empty; using it tells why.
void FillManaged();

// The same for the variables of one module, now, with the error if there is one.
cudaError_t FillManagedOf(const Module* module);

// Makes the next FillManaged store all addresses again.
void InvalidateManaged();

}  // namespace softgpu::runtime

#endif  // SOFTGPU_RUNTIME_REGISTRY_H_
