// Stream queries that need more than a forward, and entry points. Built twice, once per default stream.
#include "softgpu/runtime/api.h"

namespace softgpu::runtime {
namespace {

#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM
constexpr unsigned long long kDefaultLookup = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
#else
constexpr unsigned long long kDefaultLookup = CU_GET_PROC_ADDRESS_LEGACY_STREAM;
#endif

cudaError_t LookUp(const char* symbol, void** address, unsigned version, unsigned long long flags,
                   cudaDriverEntryPointQueryResult* status) {
  if (symbol == nullptr || address == nullptr) return cudaErrorInvalidValue;
  CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
  *address = nullptr;
  RT_TRY(CU(cuGetProcAddress)(symbol, address, static_cast<int>(version),
                              flags == cudaEnableDefault ? kDefaultLookup : flags, &found));
  if (status != nullptr) *status = static_cast<cudaDriverEntryPointQueryResult>(found);
  return cudaSuccess;
}

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
  return WithDriver([&] { return LookUp(symbol, address, CUDART_VERSION, flags, status); });
}

RT_API cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** address, unsigned int version,
                                                    unsigned long long flags,
                                                    cudaDriverEntryPointQueryResult* status) {
  return WithDriver([&] { return LookUp(symbol, address, version, flags, status); });
}
