// Entry points: sets.
#include <cuda.h>

#include "softgpu/driver/context.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/memory_actions.h"
#include "softgpu/driver/memory_parts.h"
#include "softgpu/driver/state.h"
#include "softgpu/driver/stream.h"

namespace softgpu {
namespace {

// `width` in elements of `element` bytes; `handle` is the default stream of the variant for the forms without
// one.
CUresult Set(CUdeviceptr address, size_t pitch, unsigned value, unsigned element, size_t width, size_t height,
             CUstream handle, bool async) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  CUresult error = CUDA_SUCCESS;
  std::shared_ptr<Stream> stream = ResolveStream(entry.context(), handle, &error);
  if (stream == nullptr) return error;
  CUDA_MEMSET_NODE_PARAMS params{};
  params.dst = address;
  params.pitch = pitch;
  params.value = value;
  params.elementSize = element;
  params.width = width;
  params.height = height;
  SetJob job;
  CUresult resolved =
      ResolveSet(entry.state().memory().manager(), address, pitch, value, element, width, height, &job);
  return resolved == CUDA_SUCCESS ? DoSet(*stream, params, job, async) : resolved;
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

extern "C" {

CUresult CUDAAPI cuMemsetD8_v2(CUdeviceptr dstDevice, unsigned char uc, size_t N) {
  return Set(dstDevice, 0, uc, 1, N, 1, nullptr, false);
}

CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream) {
  return Set(dstDevice, 0, uc, 1, N, 1, hStream, true);
}

CUresult CUDAAPI cuMemsetD2D8_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                                 size_t Height) {
  return Set(dstDevice, dstPitch, uc, 1, Width, Height, nullptr, false);
}

CUresult CUDAAPI cuMemsetD2D8Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned char uc, size_t Width,
                                   size_t Height, CUstream hStream) {
  return Set(dstDevice, dstPitch, uc, 1, Width, Height, hStream, true);
}

CUresult CUDAAPI cuMemsetD16_v2(CUdeviceptr dstDevice, unsigned short us, size_t N) {
  return Set(dstDevice, 0, us, 2, N, 1, nullptr, false);
}

CUresult CUDAAPI cuMemsetD16Async(CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream) {
  return Set(dstDevice, 0, us, 2, N, 1, hStream, true);
}

CUresult CUDAAPI cuMemsetD2D16_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                                  size_t Height) {
  return Set(dstDevice, dstPitch, us, 2, Width, Height, nullptr, false);
}

CUresult CUDAAPI cuMemsetD2D16Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned short us, size_t Width,
                                    size_t Height, CUstream hStream) {
  return Set(dstDevice, dstPitch, us, 2, Width, Height, hStream, true);
}

CUresult CUDAAPI cuMemsetD32_v2(CUdeviceptr dstDevice, unsigned int ui, size_t N) {
  return Set(dstDevice, 0, ui, 4, N, 1, nullptr, false);
}

CUresult CUDAAPI cuMemsetD32Async(CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream) {
  return Set(dstDevice, 0, ui, 4, N, 1, hStream, true);
}

CUresult CUDAAPI cuMemsetD2D32_v2(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                                  size_t Height) {
  return Set(dstDevice, dstPitch, ui, 4, Width, Height, nullptr, false);
}

CUresult CUDAAPI cuMemsetD2D32Async(CUdeviceptr dstDevice, size_t dstPitch, unsigned int ui, size_t Width,
                                    size_t Height, CUstream hStream) {
  return Set(dstDevice, dstPitch, ui, 4, Width, Height, hStream, true);
}

}  // extern "C"
