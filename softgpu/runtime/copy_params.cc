#include "softgpu/runtime/copy_params.h"

#include "softgpu/runtime/array_format.h"
#include "softgpu/runtime/context.h"
#include "softgpu/runtime/driver.h"
#include "softgpu/runtime/errors.h"

namespace softgpu::runtime {
namespace {

cudaError_t ElementSize(CUarray array, size_t* bytes) {
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  RT_TRY(CU(cuArray3DGetDescriptor)(&descriptor, array));
  *bytes = ElementBytes(descriptor);
  return *bytes != 0 ? cudaSuccess : cudaErrorInvalidValue;
}

CUarray DriverArray(cudaArray_t array) { return reinterpret_cast<CUarray>(array); }

// Size of the unit in which a copy between these two counts; 1 without arrays.
cudaError_t UnitOf(cudaArray_t dst, cudaArray_t src, size_t* unit) {
  *unit = 1;
  if (src == nullptr && dst == nullptr) return cudaSuccess;
  RT_TRY(ElementSize(DriverArray(src != nullptr ? src : dst), unit));
  if (src == nullptr || dst == nullptr) return cudaSuccess;
  size_t other = 0;
  RT_TRY(ElementSize(DriverArray(dst), &other));
  return other == *unit ? cudaSuccess : cudaErrorInvalidValue;
}

// The part that cudaMemcpy3DParms and cudaMemcpy3DPeerParms, CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER share.
template <typename Params, typename Copy>
cudaError_t FillCopy(const Params& params, CopySides sides, Copy* copy) {
  const bool one_source = (params.srcArray != nullptr) != (params.srcPtr.ptr != nullptr);
  const bool one_target = (params.dstArray != nullptr) != (params.dstPtr.ptr != nullptr);
  if (!one_source || !one_target) return cudaErrorInvalidValue;
  size_t unit = 1;
  RT_TRY(UnitOf(params.dstArray, params.srcArray, &unit));
  *copy = {};
  if (params.srcArray != nullptr) {
    SetSource(copy, params.srcArray, params.srcPos.x * unit, params.srcPos.y);
  } else {
    SetSource(copy, sides.src, params.srcPtr.ptr, params.srcPtr.pitch);
    copy->srcXInBytes = params.srcPos.x;
    copy->srcY = params.srcPos.y;
    copy->srcHeight = params.srcPtr.ysize;
  }
  if (params.dstArray != nullptr) {
    SetTarget(copy, params.dstArray, params.dstPos.x * unit, params.dstPos.y);
  } else {
    SetTarget(copy, sides.dst, params.dstPtr.ptr, params.dstPtr.pitch);
    copy->dstXInBytes = params.dstPos.x;
    copy->dstY = params.dstPos.y;
    copy->dstHeight = params.dstPtr.ysize;
  }
  copy->srcZ = params.srcPos.z;
  copy->dstZ = params.dstPos.z;
  copy->WidthInBytes = params.extent.width * unit;
  copy->Height = params.extent.height;
  copy->Depth = params.extent.depth;
  return cudaSuccess;
}

cudaMemcpyKind KindOf(const CUDA_MEMCPY3D& copy) {
  const bool from_host = copy.srcMemoryType == CU_MEMORYTYPE_HOST;
  const bool to_host = copy.dstMemoryType == CU_MEMORYTYPE_HOST;
  if (copy.srcMemoryType == CU_MEMORYTYPE_UNIFIED || copy.dstMemoryType == CU_MEMORYTYPE_UNIFIED) {
    return cudaMemcpyDefault;
  }
  if (from_host) return to_host ? cudaMemcpyHostToHost : cudaMemcpyHostToDevice;
  return to_host ? cudaMemcpyDeviceToHost : cudaMemcpyDeviceToDevice;
}

}  // namespace

cudaError_t SidesOf(cudaMemcpyKind kind, CopySides* sides) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      *sides = {CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_HOST};
      return cudaSuccess;
    case cudaMemcpyHostToDevice:
      *sides = {CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST};
      return cudaSuccess;
    case cudaMemcpyDeviceToHost:
      *sides = {CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE};
      return cudaSuccess;
    case cudaMemcpyDeviceToDevice:
      *sides = {CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE};
      return cudaSuccess;
    case cudaMemcpyDefault:
      *sides = {};
      return cudaSuccess;
  }
  return cudaErrorInvalidMemcpyDirection;
}

cudaError_t ToDriver(const cudaMemcpy3DParms& params, CUDA_MEMCPY3D* copy) {
  CopySides sides;
  RT_TRY(SidesOf(params.kind, &sides));
  return FillCopy(params, sides, copy);
}

cudaError_t FromDriver(const CUDA_MEMCPY3D& copy, cudaMemcpy3DParms* params) {
  *params = {};
  size_t unit = 1;
  if (copy.srcMemoryType == CU_MEMORYTYPE_ARRAY) {
    params->srcArray = reinterpret_cast<cudaArray_t>(copy.srcArray);
    RT_TRY(ElementSize(copy.srcArray, &unit));
  } else {
    void* address = copy.srcMemoryType == CU_MEMORYTYPE_HOST ? const_cast<void*>(copy.srcHost)
                                                             : reinterpret_cast<void*>(copy.srcDevice);
    params->srcPtr = {address, copy.srcPitch, copy.WidthInBytes, copy.srcHeight};
  }
  if (copy.dstMemoryType == CU_MEMORYTYPE_ARRAY) {
    params->dstArray = reinterpret_cast<cudaArray_t>(copy.dstArray);
    RT_TRY(ElementSize(copy.dstArray, &unit));
  } else {
    void* address =
        copy.dstMemoryType == CU_MEMORYTYPE_HOST ? copy.dstHost : reinterpret_cast<void*>(copy.dstDevice);
    params->dstPtr = {address, copy.dstPitch, copy.WidthInBytes, copy.dstHeight};
  }
  params->srcPos = {copy.srcXInBytes / (params->srcArray != nullptr ? unit : 1), copy.srcY, copy.srcZ};
  params->dstPos = {copy.dstXInBytes / (params->dstArray != nullptr ? unit : 1), copy.dstY, copy.dstZ};
  params->extent = {copy.WidthInBytes / unit, copy.Height, copy.Depth};
  params->kind = KindOf(copy);
  return cudaSuccess;
}

cudaError_t ToDriver(const cudaMemcpy3DPeerParms& params, CUDA_MEMCPY3D_PEER* copy) {
  RT_TRY(FillCopy(params, {CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_DEVICE}, copy));
  RT_TRY(PrimaryContext(params.srcDevice, &copy->srcContext));
  return PrimaryContext(params.dstDevice, &copy->dstContext);
}

cudaError_t LinearCopy(void* dst, const void* src, size_t count, cudaMemcpyKind kind, CUDA_MEMCPY3D* copy) {
  CopySides sides;
  RT_TRY(SidesOf(kind, &sides));
  *copy = {};
  SetSource(copy, sides.src, src, count);
  SetTarget(copy, sides.dst, dst, count);
  copy->WidthInBytes = count;
  copy->Height = 1;
  copy->Depth = 1;
  return cudaSuccess;
}

}  // namespace softgpu::runtime
