// Small parts of the interface that have little to do here: profiler control and capture mode of threads.
#include <cudaProfiler.h>

#include "softgpu/driver/entry.h"
#include "softgpu/driver/state.h"

using softgpu::Entry;

extern "C" {

// Programs mark regions for a profiler; none ever listens.
CUresult CUDAAPI cuProfilerStart(void) {
  Entry entry;
  return entry.result();
}

CUresult CUDAAPI cuProfilerStop(void) {
  Entry entry;
  return entry.result();
}

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  Entry entry(softgpu::Need::kInit);
  if (!entry.ok()) return entry.result();
  if (mode == nullptr || *mode < CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  std::swap(*mode, entry.thread().capture_mode);
  return CUDA_SUCCESS;
}

}  // extern "C"
