// The entry points that nvcc's host code calls by itself; declared in crt/host_runtime.h and
// crt/device_functions.h.
#include <cstdlib>
#include <new>

#include "softgpu/runtime/api.h"
#include "softgpu/runtime/registry.h"

namespace softgpu::runtime {
namespace {

// A launch between its <<<>>> and the stub. A list, because evaluating the arguments may launch another
// kernel.
struct PendingLaunch {
  dim3 grid;
  dim3 block;
  size_t shared_bytes;
  cudaStream_t stream;
  PendingLaunch* outer;
};
__attribute__((tls_model("initial-exec"))) constinit thread_local PendingLaunch* t_pending = nullptr;

Module* FromHandle(void** handle) { return reinterpret_cast<Module*>(handle); }

}  // namespace
}  // namespace softgpu::runtime

using namespace softgpu::runtime;

RT_API void** __cudaRegisterFatBinary(void* wrapper) {
  return reinterpret_cast<void**>(AddModule(static_cast<const FatbinWrapper*>(wrapper)));
}

RT_API void __cudaRegisterFatBinaryEnd(void**) {}

RT_API void __cudaUnregisterFatBinary(void** handle) {
  if (handle != nullptr) RemoveModule(FromHandle(handle));
}

RT_API void __cudaRegisterFunction(void** handle, const char* stub, char*, const char* name, int, uint3*,
                                   uint3*, dim3*, dim3*, int*) {
  AddKernel(FromHandle(handle), stub, name);
}

RT_API void __cudaRegisterVar(void** handle, char* shadow, char*, const char* name, int, size_t, int, int) {
  AddVariable(FromHandle(handle), shadow, name);
}

RT_API void __cudaRegisterManagedVar(void** handle, void** slot, char*, const char* name, int, size_t, int,
                                     int) {
  AddManagedVariable(FromHandle(handle), slot, name);
}

RT_API char __cudaInitModule(void** handle) {
  return WithContext([&] { return FillManagedOf(FromHandle(handle)); }) == cudaSuccess ? 1 : 0;
}

RT_API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, CUstream_st* stream) {
  void* memory = std::malloc(sizeof(PendingLaunch));
  if (memory == nullptr) return Report(cudaErrorMemoryAllocation);
  t_pending = new (memory) PendingLaunch{grid, block, shared_bytes, stream, t_pending};
  return 0;
}

RT_API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream) {
  PendingLaunch* launch = t_pending;
  if (launch == nullptr) return Report(cudaErrorMissingConfiguration);
  *grid = launch->grid;
  *block = launch->block;
  *shared_bytes = launch->shared_bytes;
  *static_cast<cudaStream_t*>(stream) = launch->stream;
  t_pending = launch->outer;
  std::free(launch);
  return cudaSuccess;
}

RT_API cudaError_t cudaGetKernel(cudaKernel_t* kernel, const void* stub) {
  return WithContext([&] { return kernel == nullptr ? cudaErrorInvalidValue : ResolveKernel(stub, kernel); });
}

RT_API cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* stub) {
  const cudaError_t error = cudaGetKernel(kernel, stub);
  if (error != cudaSuccess) NoteUnresolvedKernel(error);
  return error;
}

RT_API cudaError_t cudaGetFuncBySymbol(cudaFunction_t* function, const void* stub) {
  return WithContext([&] {
    if (function == nullptr) return cudaErrorInvalidValue;
    CUkernel kernel = nullptr;
    RT_TRY(ResolveKernel(stub, &kernel));
    return CU(cuKernelGetFunction)(function, kernel);
  });
}
