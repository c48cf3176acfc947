// Stream queries that need more than a forward, and entry points. Built twice, once per default stream.
#include "softgpu/runtime/api.h"
#include "softgpu/runtime/entry_point.h"

namespace softgpu::runtime {
namespace {

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
constexpr unsigned long long kDefaultFlags = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
#else
constexpr unsigned long long kDefaultFlags = CU_GET_PROC_ADDRESS_LEGACY_STREAM;
#endif

}  // namespace
}  // namespace softgpu::runtime

using namespace softgpu::runtime;

RT_API cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  return WithContext([&] {
    if (device == nullptr) return cudaErrorInvalidValue;
    CUdevice handle = 0;
    RT_TRY(CU(cuStreamGetDevice)(stream, &handle));
    return OrdinalOf(handle, device);
  });
}

// Left out of the header's plain declarations since 13.0, but still exported for programs built before.
RT_API cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** address, unsigned long long flags,
                                           cudaDriverEntryPointQueryResult* status) {
  return WithDriver([&] {
    return LookUpEntryPoint(symbol, address, CUDART_VERSION, flags != 0 ? flags : kDefaultFlags, status);
  });
}

RT_API cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** address, unsigned int version,
                                                    unsigned long long flags,
                                                    cudaDriverEntryPointQueryResult* status) {
  return WithDriver(
      [&] { return LookUpEntryPoint(symbol, address, version, flags != 0 ? flags : kDefaultFlags, status); });
}
