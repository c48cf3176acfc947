// Copies and fills. Built twice: once for the legacy default stream, once for the per-thread one.
#include "softgpu/runtime/api.h"
#include "softgpu/runtime/copy_params.h"
#include "softgpu/runtime/registry.h"

namespace softgpu::runtime {
namespace {

CUdeviceptr Device(const void* address) { return reinterpret_cast<CUdeviceptr>(address); }

cudaError_t Copy(void* dst, const void* src, size_t count, cudaMemcpyKind kind) {
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return CU(cuMemcpyHtoD)(Device(dst), src, count);
    case cudaMemcpyDeviceToHost:
      return CU(cuMemcpyDtoH)(dst, Device(src), count);
    case cudaMemcpyDeviceToDevice:
      return CU(cuMemcpyDtoD)(Device(dst), Device(src), count);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return CU(cuMemcpy)(Device(dst), Device(src), count);
  }
  return cudaErrorInvalidMemcpyDirection;
}

cudaError_t CopyAsync(void* dst, const void* src, size_t count, cudaMemcpyKind kind, cudaStream_t stream) {
  switch (kind) {
    case cudaMemcpyHostToDevice:
      return CU(cuMemcpyHtoDAsync)(Device(dst), src, count, stream);
    case cudaMemcpyDeviceToHost:
      return CU(cuMemcpyDtoHAsync)(dst, Device(src), count, stream);
    case cudaMemcpyDeviceToDevice:
      return CU(cuMemcpyDtoDAsync)(Device(dst), Device(src), count, stream);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault:
      return CU(cuMemcpyAsync)(Device(dst), Device(src), count, stream);
  }
  return cudaErrorInvalidMemcpyDirection;
}

cudaError_t CheckToSymbol(cudaMemcpyKind kind) {
  const bool fits =
      kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice || kind == cudaMemcpyDefault;
  return fits ? cudaSuccess : cudaErrorInvalidMemcpyDirection;
}

cudaError_t CheckFromSymbol(cudaMemcpyKind kind) {
  const bool fits =
      kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice || kind == cudaMemcpyDefault;
  return fits ? cudaSuccess : cudaErrorInvalidMemcpyDirection;
}

// The synchronous call when there is no stream to go to.
struct Now {
  cudaError_t operator()(const CUDA_MEMCPY2D& copy) const { return CU(cuMemcpy2DUnaligned)(&copy); }
};
struct On {
  cudaStream_t stream;
  cudaError_t operator()(const CUDA_MEMCPY2D& copy) const { return CU(cuMemcpy2DAsync)(&copy, stream); }
};

template <typename How>
cudaError_t Copy2D(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width, size_t height,
                   cudaMemcpyKind kind, How how) {
  CopySides sides;
  RT_TRY(SidesOf(kind, &sides));
  if (width == 0 || height == 0) return cudaSuccess;
  if (width > dpitch || width > spitch) return cudaErrorInvalidPitchValue;
  CUDA_MEMCPY2D copy{};
  SetSource(&copy, sides.src, src, spitch);
  SetTarget(&copy, sides.dst, dst, dpitch);
  copy.WidthInBytes = width;
  copy.Height = height;
  return how(copy);
}

template <typename How>
cudaError_t Copy2DToArray(cudaArray_t dst, size_t x, size_t y, const void* src, size_t spitch, size_t width,
                          size_t height, cudaMemcpyKind kind, How how) {
  CopySides sides;
  RT_TRY(SidesOf(kind, &sides));
  if (width == 0 || height == 0) return cudaSuccess;
  if (width > spitch) return cudaErrorInvalidPitchValue;
  CUDA_MEMCPY2D copy{};
  SetSource(&copy, sides.src, src, spitch);
  SetTarget(&copy, dst, x, y);
  copy.WidthInBytes = width;
  copy.Height = height;
  return how(copy);
}

template <typename How>
cudaError_t Copy2DFromArray(void* dst, size_t dpitch, cudaArray_const_t src, size_t x, size_t y, size_t width,
                            size_t height, cudaMemcpyKind kind, How how) {
  CopySides sides;
  RT_TRY(SidesOf(kind, &sides));
  if (width == 0 || height == 0) return cudaSuccess;
  if (width > dpitch) return cudaErrorInvalidPitchValue;
  CUDA_MEMCPY2D copy{};
  SetSource(&copy, src, x, y);
  SetTarget(&copy, sides.dst, dst, dpitch);
  copy.WidthInBytes = width;
  copy.Height = height;
  return how(copy);
}

bool Contiguous(const cudaPitchedPtr& target, const cudaExtent& extent) {
  return extent.depth == 1 || extent.height == target.ysize;
}

// Calls fill(address, rows) for the slices of a pitched volume, all at once if they follow each other row by
// row.
template <typename Fill>
cudaError_t ForEachSlice(const cudaPitchedPtr& target, const cudaExtent& extent, Fill fill) {
  if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return cudaSuccess;
  if (Contiguous(target, extent)) return fill(Device(target.ptr), extent.height * extent.depth);
  for (size_t z = 0; z < extent.depth; ++z) {
    RT_TRY(fill(Device(target.ptr) + z * target.pitch * target.ysize, extent.height));
  }
  return cudaSuccess;
}

unsigned char Byte(int value) { return static_cast<unsigned char>(value); }

}  // namespace
}  // namespace softgpu::runtime

using namespace softgpu::runtime;

RT_API cudaError_t cudaMemcpy(void* dst, const void* src, size_t count, cudaMemcpyKind kind) {
  return WithContext([&] { return Copy(dst, src, count, kind); });
}

RT_API cudaError_t cudaMemcpyAsync(void* dst, const void* src, size_t count, cudaMemcpyKind kind,
                                   cudaStream_t stream) {
  return WithContext([&] { return CopyAsync(dst, src, count, kind, stream); });
}

RT_API cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* src, size_t count, size_t offset,
                                      cudaMemcpyKind kind) {
  return WithContext([&] {
    void* dst = nullptr;
    RT_TRY(CheckToSymbol(kind));
    RT_TRY(ResolveSymbolRange(symbol, offset, count, &dst));
    return Copy(dst, src, count, kind);
  });
}

RT_API cudaError_t cudaMemcpyFromSymbol(void* dst, const void* symbol, size_t count, size_t offset,
                                        cudaMemcpyKind kind) {
  return WithContext([&] {
    void* src = nullptr;
    RT_TRY(CheckFromSymbol(kind));
    RT_TRY(ResolveSymbolRange(symbol, offset, count, &src));
    return Copy(dst, src, count, kind);
  });
}

RT_API cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* src, size_t count, size_t offset,
                                           cudaMemcpyKind kind, cudaStream_t stream) {
  return WithContext([&] {
    void* dst = nullptr;
    RT_TRY(CheckToSymbol(kind));
    RT_TRY(ResolveSymbolRange(symbol, offset, count, &dst));
    return CopyAsync(dst, src, count, kind, stream);
  });
}

RT_API cudaError_t cudaMemcpyFromSymbolAsync(void* dst, const void* symbol, size_t count, size_t offset,
                                             cudaMemcpyKind kind, cudaStream_t stream) {
  return WithContext([&] {
    void* src = nullptr;
    RT_TRY(CheckFromSymbol(kind));
    RT_TRY(ResolveSymbolRange(symbol, offset, count, &src));
    return CopyAsync(dst, src, count, kind, stream);
  });
}

RT_API cudaError_t cudaMemcpy2D(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width,
                                size_t height, cudaMemcpyKind kind) {
  return WithContext([&] { return Copy2D(dst, dpitch, src, spitch, width, height, kind, Now{}); });
}

RT_API cudaError_t cudaMemcpy2DAsync(void* dst, size_t dpitch, const void* src, size_t spitch, size_t width,
                                     size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return WithContext([&] { return Copy2D(dst, dpitch, src, spitch, width, height, kind, On{stream}); });
}

RT_API cudaError_t cudaMemcpy2DToArray(cudaArray_t dst, size_t x, size_t y, const void* src, size_t spitch,
                                       size_t width, size_t height, cudaMemcpyKind kind) {
  return WithContext([&] { return Copy2DToArray(dst, x, y, src, spitch, width, height, kind, Now{}); });
}

RT_API cudaError_t cudaMemcpy2DToArrayAsync(cudaArray_t dst, size_t x, size_t y, const void* src,
                                            size_t spitch, size_t width, size_t height, cudaMemcpyKind kind,
                                            cudaStream_t stream) {
  return WithContext([&] { return Copy2DToArray(dst, x, y, src, spitch, width, height, kind, On{stream}); });
}

RT_API cudaError_t cudaMemcpy2DFromArray(void* dst, size_t dpitch, cudaArray_const_t src, size_t x, size_t y,
                                         size_t width, size_t height, cudaMemcpyKind kind) {
  return WithContext([&] { return Copy2DFromArray(dst, dpitch, src, x, y, width, height, kind, Now{}); });
}

RT_API cudaError_t cudaMemcpy2DFromArrayAsync(void* dst, size_t dpitch, cudaArray_const_t src, size_t x,
                                              size_t y, size_t width, size_t height, cudaMemcpyKind kind,
                                              cudaStream_t stream) {
  return WithContext(
      [&] { return Copy2DFromArray(dst, dpitch, src, x, y, width, height, kind, On{stream}); });
}

RT_API cudaError_t cudaMemcpy2DArrayToArray(cudaArray_t dst, size_t dst_x, size_t dst_y,
                                            cudaArray_const_t src, size_t src_x, size_t src_y, size_t width,
                                            size_t height, cudaMemcpyKind kind) {
  return WithContext([&] {
    CopySides sides;
    RT_TRY(SidesOf(kind, &sides));
    CUDA_MEMCPY2D copy{};
    SetSource(&copy, src, src_x, src_y);
    SetTarget(&copy, dst, dst_x, dst_y);
    copy.WidthInBytes = width;
    copy.Height = height;
    return Now{}(copy);
  });
}

RT_API cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* params) {
  return WithContext([&] {
    if (params == nullptr) return cudaErrorInvalidValue;
    CUDA_MEMCPY3D copy;
    RT_TRY(ToDriver(*params, &copy));
    return CU(cuMemcpy3D)(&copy);
  });
}

RT_API cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* params, cudaStream_t stream) {
  return WithContext([&] {
    if (params == nullptr) return cudaErrorInvalidValue;
    CUDA_MEMCPY3D copy;
    RT_TRY(ToDriver(*params, &copy));
    return CU(cuMemcpy3DAsync)(&copy, stream);
  });
}

RT_API cudaError_t cudaMemcpy3DPeer(const cudaMemcpy3DPeerParms* params) {
  return WithContext([&] {
    if (params == nullptr) return cudaErrorInvalidValue;
    CUDA_MEMCPY3D_PEER copy;
    RT_TRY(ToDriver(*params, &copy));
    return CU(cuMemcpy3DPeer)(&copy);
  });
}

RT_API cudaError_t cudaMemcpy3DPeerAsync(const cudaMemcpy3DPeerParms* params, cudaStream_t stream) {
  return WithContext([&] {
    if (params == nullptr) return cudaErrorInvalidValue;
    CUDA_MEMCPY3D_PEER copy;
    RT_TRY(ToDriver(*params, &copy));
    return CU(cuMemcpy3DPeerAsync)(&copy, stream);
  });
}

RT_API cudaError_t cudaMemset(void* target, int value, size_t count) {
  return WithContext([&] { return CU(cuMemsetD8)(Device(target), Byte(value), count); });
}

RT_API cudaError_t cudaMemsetAsync(void* target, int value, size_t count, cudaStream_t stream) {
  return WithContext([&] { return CU(cuMemsetD8Async)(Device(target), Byte(value), count, stream); });
}

RT_API cudaError_t cudaMemset2D(void* target, size_t pitch, int value, size_t width, size_t height) {
  return WithContext([&] { return CU(cuMemsetD2D8)(Device(target), pitch, Byte(value), width, height); });
}

RT_API cudaError_t cudaMemset2DAsync(void* target, size_t pitch, int value, size_t width, size_t height,
                                     cudaStream_t stream) {
  return WithContext(
      [&] { return CU(cuMemsetD2D8Async)(Device(target), pitch, Byte(value), width, height, stream); });
}

RT_API cudaError_t cudaMemset3D(cudaPitchedPtr target, int value, cudaExtent extent) {
  return WithContext([&] {
    return ForEachSlice(target, extent, [&](CUdeviceptr at, size_t rows) {
      return CU(cuMemsetD2D8)(at, target.pitch, Byte(value), extent.width, rows);
    });
  });
}

RT_API cudaError_t cudaMemset3DAsync(cudaPitchedPtr target, int value, cudaExtent extent,
                                     cudaStream_t stream) {
  return WithContext([&] {
    return ForEachSlice(target, extent, [&](CUdeviceptr at, size_t rows) {
      return CU(cuMemsetD2D8Async)(at, target.pitch, Byte(value), extent.width, rows, stream);
    });
  });
}
