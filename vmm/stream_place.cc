#include "vmm/stream_place.h"

#include "vmm/device_map.h"
#include "vmm/environment.h"
#include "vmm/real_driver.h"

namespace stasis::vmm {

CUresult FindStream(CUstream stream, StreamPlace* place) {
  place->stream = stream;
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  CUresult result = Driver().cuStreamIsCapturing(stream, &capture);
  if (result != CUDA_SUCCESS) return result;
  place->capturing = capture != CU_STREAM_CAPTURE_STATUS_NONE;
  if (place->capturing) return CUDA_SUCCESS;
  result = Driver().cuStreamGetId(stream, &place->id);
  CUcontext context = nullptr;
  if (result == CUDA_SUCCESS) result = Driver().cuStreamGetCtx(stream, &context);
  if (result != CUDA_SUCCESS) return result;
  place->context = VisibleContext(context);
  const ScopedContext scope(place->context);
  CUdevice device = -1;
  result = scope.result() == CUDA_SUCCESS ? Driver().cuCtxGetDevice(&device) : scope.result();
  place->device = ToVirtualDevice(device);
  return result;
}

}  // namespace stasis::vmm
