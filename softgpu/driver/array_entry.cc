// Entry points: arrays.
#include <cuda.h>

#include "softgpu/driver/context.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/memory_actions.h"
#include "softgpu/driver/memory_parts.h"
#include "softgpu/driver/state.h"

namespace softgpu {
namespace {

ArrayTable& Arrays(const Entry& entry) { return entry.state().memory().arrays(); }

CUresult CreateArray(CUarray* handle, const CUDA_ARRAY3D_DESCRIPTOR& desc) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Arrays(entry).Create(entry.context().handle(), entry.context().ordinal(), desc, handle);
}

CUDA_ARRAY3D_DESCRIPTOR Widen(const CUDA_ARRAY_DESCRIPTOR& desc) {
  CUDA_ARRAY3D_DESCRIPTOR wide{};
  wide.Width = desc.Width;
  wide.Height = desc.Height;
  wide.Format = desc.Format;
  wide.NumChannels = desc.NumChannels;
  return wide;
}

CUresult Requirements(uint64_t bytes, CUDA_ARRAY_MEMORY_REQUIREMENTS* out) {
  *out = {};
  out->size = bytes;
  out->alignment = 512;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

extern "C" {

CUresult CUDAAPI cuArrayCreate_v2(CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) {
  return pAllocateArray == nullptr ? CUDA_ERROR_INVALID_VALUE : CreateArray(pHandle, Widen(*pAllocateArray));
}

CUresult CUDAAPI cuArray3DCreate_v2(CUarray* pHandle, const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
  return pAllocateArray == nullptr ? CUDA_ERROR_INVALID_VALUE : CreateArray(pHandle, *pAllocateArray);
}

CUresult CUDAAPI cuArrayDestroy(CUarray hArray) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  std::shared_ptr<const Array> array = Arrays(entry).Find(hArray);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  DrainUsers(entry, array->context);
  return Arrays(entry).Destroy(hArray);
}

CUresult CUDAAPI cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  std::shared_ptr<const Array> array = Arrays(entry).Find(hArray);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (pArrayDescriptor == nullptr || array->desc.Depth != 0) return CUDA_ERROR_INVALID_VALUE;
  *pArrayDescriptor = {array->desc.Width, array->desc.Height, array->desc.Format, array->desc.NumChannels};
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR* pArrayDescriptor, CUarray hArray) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  std::shared_ptr<const Array> array = Arrays(entry).Find(hArray);
  if (array == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (pArrayDescriptor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pArrayDescriptor = array->desc;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS* memoryRequirements,
                                              CUarray array, CUdevice device) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  std::shared_ptr<const Array> found = Arrays(entry).Find(array);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (memoryRequirements == nullptr || found->device != device) return CUDA_ERROR_INVALID_VALUE;
  return Requirements(found->slice_pitch * found->slices(), memoryRequirements);
}

CUresult CUDAAPI cuMipmappedArrayCreate(CUmipmappedArray* pHandle,
                                        const CUDA_ARRAY3D_DESCRIPTOR* pMipmappedArrayDesc,
                                        unsigned int numMipmapLevels) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (pHandle == nullptr || pMipmappedArrayDesc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Arrays(entry).CreateMipmapped(entry.context().handle(), entry.context().ordinal(),
                                       *pMipmappedArrayDesc, numMipmapLevels, pHandle);
}

CUresult CUDAAPI cuMipmappedArrayGetLevel(CUarray* pLevelArray, CUmipmappedArray hMipmappedArray,
                                          unsigned int level) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (pLevelArray == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Arrays(entry).GetLevel(hMipmappedArray, level, pLevelArray);
}

CUresult CUDAAPI cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  std::shared_ptr<const MipmappedArray> mipmap = Arrays(entry).Find(hMipmappedArray);
  if (mipmap == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  DrainUsers(entry, mipmap->context);
  return Arrays(entry).DestroyMipmapped(hMipmappedArray);
}

}  // extern "C"
