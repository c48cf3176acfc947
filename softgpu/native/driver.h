// The driver as the stand-in libraries reach it: `libcuda.so.1`, opened by that name at the first use, so
// that what is preloaded under the name sits in between.
//
// Thread-safe. The library stays open for the life of the process.
#ifndef SOFTGPU_NATIVE_DRIVER_H_
#define SOFTGPU_NATIVE_DRIVER_H_

#include <cuda.h>

namespace softgpu::native {

// By exported name.
// clang-format off
#define SOFTGPU_NATIVE_DRIVER_FUNCTIONS(X)                                                                    \
  X(cuInit) X(cuDriverGetVersion)                                                                             \
  X(cuDeviceGet) X(cuDeviceGetCount) X(cuDeviceGetAttribute) X(cuDeviceGetPCIBusId) X(cuDeviceGetUuid_v2)     \
  X(cuDeviceCanAccessPeer) X(cuDeviceTotalMem_v2)                                                             \
  X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease_v2) X(cuDevicePrimaryCtxGetState)                   \
  X(cuCtxGetCurrent) X(cuCtxSetCurrent) X(cuCtxPushCurrent_v2) X(cuCtxPopCurrent_v2) X(cuCtxGetDevice)        \
  X(cuCtxSynchronize) X(cuCtxEnablePeerAccess)                                                                \
  X(cuMemAlloc_v2) X(cuMemFree_v2) X(cuMemAllocAsync) X(cuMemFreeAsync) X(cuMemHostAlloc) X(cuMemFreeHost)    \
  X(cuMemcpyAsync) X(cuMemcpyHtoD_v2) X(cuMemcpyDtoH_v2) X(cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoHAsync_v2)      \
  X(cuMemcpyDtoDAsync_v2) X(cuMemcpy2D_v2) X(cuMemcpy2DAsync_v2) X(cuMemsetD8Async) X(cuMemsetD8_v2)          \
  X(cuMemGetAddressRange_v2) X(cuMemGetInfo_v2) X(cuPointerGetAttribute) X(cuPointerGetAttributes)            \
  X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemCreate) X(cuMemRelease) X(cuMemMap) X(cuMemUnmap)         \
  X(cuMemSetAccess) X(cuMemExportToShareableHandle) X(cuMemImportFromShareableHandle)                         \
  X(cuMemGetAllocationGranularity) X(cuMemRetainAllocationHandle)                                             \
  X(cuIpcGetMemHandle) X(cuIpcOpenMemHandle_v2) X(cuIpcCloseMemHandle)                                        \
  X(cuStreamCreate) X(cuStreamCreateWithPriority) X(cuStreamDestroy_v2) X(cuStreamSynchronize)                \
  X(cuStreamQuery) X(cuStreamWaitEvent) X(cuStreamIsCapturing) X(cuStreamGetCtx) X(cuStreamGetPriority)       \
  X(cuStreamGetId) X(cuStreamGetCaptureInfo_v3) X(cuLaunchHostFunc) X(cuThreadExchangeStreamCaptureMode)      \
  X(cuEventCreate) X(cuEventRecord) X(cuEventQuery) X(cuEventSynchronize) X(cuEventDestroy_v2)                \
  X(cuLibraryLoadData) X(cuLibraryGetKernel) X(cuLaunchKernel)                                                \
  X(cuGetErrorName) X(cuGetErrorString)
// clang-format on

struct DriverFunctions {
#define SOFTGPU_NATIVE_FIELD(name) decltype(&::name) name;
  SOFTGPU_NATIVE_DRIVER_FUNCTIONS(SOFTGPU_NATIVE_FIELD)
#undef SOFTGPU_NATIVE_FIELD
};

// Driver().cuMemAlloc_v2(...). Where there is no driver, or it lacks the function, the call answers
// CUDA_ERROR_NOT_FOUND.
const DriverFunctions& Driver();

// What NVIDIA's libraries do at a call that needs a device: when the thread has no current context,
// initialises the driver and makes the primary context of device 0 current, retained once for the process.
// The errors are the driver's; NO_DEVICE without a driver.
CUresult EnsureContext();

}  // namespace softgpu::native

#endif  // SOFTGPU_NATIVE_DRIVER_H_
