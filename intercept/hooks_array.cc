// Arrays and mipmapped arrays.
#include <vector>

#include "intercept/wrapper_support.h"
#include "intercept_hooks.h"
#include "replay/array_record.h"
#include "vmm/virtual_memory.h"

namespace stasis::hooks {
namespace {

using replay::FindAs;
using replay::ToReal;

CUDA_ARRAY3D_DESCRIPTOR Widen(const CUDA_ARRAY_DESCRIPTOR& desc) {
  CUDA_ARRAY3D_DESCRIPTOR wide{};
  wide.Width = desc.Width;
  wide.Height = desc.Height;
  wide.Format = desc.Format;
  wide.NumChannels = desc.NumChannels;
  return wide;
}

// `record` was looked up before the call: the driver may give the handle to another thread at once.
CUresult Destroyed(CUresult result, const replay::RecordPtr& record) {
  if (result == CUDA_SUCCESS && record != nullptr) replay::ObjectTable::Get().Remove(record);
  return result;
}

}  // namespace

CUresult cuArrayCreate_v2(const Call& call, CUarray* pHandle, const CUDA_ARRAY_DESCRIPTOR* pAllocateArray) {
  const CUresult result = call.Real<decltype(&::cuArrayCreate_v2)>()(pHandle, pAllocateArray);
  if (result == CUDA_SUCCESS) replay::NoteArray(Widen(*pAllocateArray), pHandle);
  return result;
}

CUresult cuArray3DCreate_v2(const Call& call, CUarray* pHandle,
                            const CUDA_ARRAY3D_DESCRIPTOR* pAllocateArray) {
  const CUresult result = call.Real<decltype(&::cuArray3DCreate_v2)>()(pHandle, pAllocateArray);
  if (result == CUDA_SUCCESS) replay::NoteArray(*pAllocateArray, pHandle);
  return result;
}

CUresult cuArrayDestroy(const Call& call, CUarray hArray) {
  const auto record = FindAs<replay::ArrayRecord>(hArray);
  return Destroyed(call.Real<decltype(&::cuArrayDestroy)>()(ToReal(hArray)), record);
}

CUresult cuMipmappedArrayCreate(const Call& call, CUmipmappedArray* pHandle,
                                const CUDA_ARRAY3D_DESCRIPTOR* pMipmappedArrayDesc,
                                unsigned int numMipmapLevels) {
  const CUresult result =
      call.Real<decltype(&::cuMipmappedArrayCreate)>()(pHandle, pMipmappedArrayDesc, numMipmapLevels);
  if (result == CUDA_SUCCESS) replay::NoteMipmappedArray(*pMipmappedArrayDesc, numMipmapLevels, pHandle);
  return result;
}

CUresult cuMipmappedArrayDestroy(const Call& call, CUmipmappedArray hMipmappedArray) {
  const auto record = FindAs<replay::MipmappedArrayRecord>(hMipmappedArray);
  return Destroyed(call.Real<decltype(&::cuMipmappedArrayDestroy)>()(ToReal(hMipmappedArray)), record);
}

CUresult cuMipmappedArrayGetLevel(const Call& call, CUarray* pLevelArray, CUmipmappedArray hMipmappedArray,
                                  unsigned int level) {
  const CUresult result =
      call.Real<decltype(&::cuMipmappedArrayGetLevel)>()(pLevelArray, ToReal(hMipmappedArray), level);
  if (result == CUDA_SUCCESS) replay::NoteArrayLevel(hMipmappedArray, level, pLevelArray);
  return result;
}

// Neither of what a sparse array maps nor of the array itself does a pause know enough.
CUresult cuMemMapArrayAsync(const Call& call, CUarrayMapInfo* mapInfoList, unsigned int count,
                            CUstream hStream) {
  std::vector<CUarrayMapInfo> maps(mapInfoList, mapInfoList + (mapInfoList == nullptr ? 0 : count));
  for (CUarrayMapInfo& map : maps) {
    map.memHandle.memHandle = vmm::VirtualMemory::Get().ToReal(map.memHandle.memHandle);
    if (map.resourceType == CU_RESOURCE_TYPE_ARRAY) map.resource.array = ToReal(map.resource.array);
    if (map.resourceType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
      map.resource.mipmap = ToReal(map.resource.mipmap);
  }
  const CUresult result = call.Real<decltype(&::cuMemMapArrayAsync)>()(
      mapInfoList == nullptr ? nullptr : maps.data(), count, ToReal(hStream));
  if (result == CUDA_SUCCESS) TaintOnce(call.fn, true);
  return result;
}

}  // namespace stasis::hooks
