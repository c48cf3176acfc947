// Kernel launches. Built twice: once for the legacy default stream, once for the per-thread one.
#include <climits>

#include "softgpu/runtime/api.h"
#include "softgpu/runtime/launch_config.h"
#include "softgpu/runtime/registry.h"

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
#define __cudaLaunchKernel __cudaLaunchKernel_ptsz
#endif

namespace softgpu::runtime {
namespace {

bool Exceeds(unsigned size, CUdevice_attribute limit, CUdevice device) {
  int most = 0;
  return size == 0 ||
         (CU(cuDeviceGetAttribute)(&most, limit, device) == cudaSuccess && size > unsigned(most));
}

bool ShapeIsImpossible(dim3 grid, dim3 block) {
  CUdevice device = 0;
  if (CurrentDeviceHandle(&device) != cudaSuccess) return false;
  int most_threads = INT_MAX;
  CU(cuDeviceGetAttribute)(&most_threads, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, device);
  const unsigned long long plane = static_cast<unsigned long long>(block.x) * block.y;
  return Exceeds(grid.x, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, device) ||
         Exceeds(grid.y, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, device) ||
         Exceeds(grid.z, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, device) ||
         Exceeds(block.x, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, device) ||
         Exceeds(block.y, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, device) ||
         Exceeds(block.z, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, device) ||
         plane * block.z > static_cast<unsigned long long>(most_threads);
}

// The driver calls a launch shape that no device could run an invalid value; the runtime has a word of its
// own.
cudaError_t Refine(cudaError_t error, dim3 grid, dim3 block) {
  if (error != cudaErrorInvalidValue || !ShapeIsImpossible(grid, block)) return error;
  return cudaErrorInvalidConfiguration;
}

// The driver takes a CUkernel wherever it takes a CUfunction and finds the function of the current context.
CUfunction AsFunction(CUkernel kernel) { return reinterpret_cast<CUfunction>(kernel); }

cudaError_t Launch(CUkernel kernel, dim3 grid, dim3 block, void** args, size_t shared_bytes,
                   cudaStream_t stream) {
  if (shared_bytes > UINT_MAX) return cudaErrorInvalidValue;
  FillManaged();
  return Refine(CU(cuLaunchKernel)(AsFunction(kernel), grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                   static_cast<unsigned>(shared_bytes), stream, args, nullptr),
                grid, block);
}

cudaError_t LaunchCooperative(CUkernel kernel, dim3 grid, dim3 block, void** args, size_t shared_bytes,
                              cudaStream_t stream) {
  if (shared_bytes > UINT_MAX) return cudaErrorInvalidValue;
  FillManaged();
  return Refine(CU(cuLaunchCooperativeKernel)(AsFunction(kernel), grid.x, grid.y, grid.z, block.x, block.y,
                                              block.z, static_cast<unsigned>(shared_bytes), stream, args),
                grid, block);
}

cudaError_t LaunchEx(CUkernel kernel, const cudaLaunchConfig_t& config, void** args) {
  CUlaunchConfig driver_config;
  RT_TRY(ToDriver(config, &driver_config));
  FillManaged();
  return Refine(CU(cuLaunchKernelEx)(&driver_config, AsFunction(kernel), args, nullptr), config.gridDim,
                config.blockDim);
}

}  // namespace
}  // namespace softgpu::runtime

using namespace softgpu::runtime;

// The compiler's stub asks for its handle once, and launches with a null one ever after if that failed.
RT_API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args,
                                      size_t shared_bytes, cudaStream_t stream) {
  return WithContext([&] {
    if (kernel == nullptr) return UnresolvedKernelError();
    return Launch(kernel, grid, block, args, shared_bytes, stream);
  });
}

RT_API cudaError_t cudaLaunchKernel(const void* func, dim3 grid, dim3 block, void** args, size_t shared_bytes,
                                    cudaStream_t stream) {
  return WithContext([&] {
    CUkernel kernel = nullptr;
    RT_TRY(ResolveKernel(func, &kernel));
    return Launch(kernel, grid, block, args, shared_bytes, stream);
  });
}

RT_API cudaError_t cudaLaunchCooperativeKernel(const void* func, dim3 grid, dim3 block, void** args,
                                               size_t shared_bytes, cudaStream_t stream) {
  return WithContext([&] {
    CUkernel kernel = nullptr;
    RT_TRY(ResolveKernel(func, &kernel));
    return LaunchCooperative(kernel, grid, block, args, shared_bytes, stream);
  });
}

RT_API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* func, void** args) {
  return WithContext([&] {
    if (config == nullptr) return cudaErrorInvalidValue;
    CUkernel kernel = nullptr;
    RT_TRY(ResolveKernel(func, &kernel));
    return LaunchEx(kernel, *config, args);
  });
}
