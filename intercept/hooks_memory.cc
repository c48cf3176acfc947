// Plain device memory: it lies in extents of ours, and every answer about it is that of plain memory.
#include "intercept/memory_environment.h"
#include "vmm/memory.h"
#include "vmm/pointer_query.h"

namespace stasis::hooks {

CUresult cuMemAlloc_v2(const Call&, CUdeviceptr* dptr, size_t bytesize) {
  JoinMemory();
  return vmm::Memory::Get().Allocate(dptr, bytesize);
}

CUresult cuMemAllocPitch_v2(const Call&, CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes,
                            size_t Height, unsigned int ElementSizeBytes) {
  JoinMemory();
  return vmm::Memory::Get().AllocatePitch(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
}

CUresult cuMemFree_v2(const Call&, CUdeviceptr dptr) {
  JoinMemory();
  return vmm::Memory::Get().Free(dptr);
}

CUresult cuMemGetAddressRange_v2(const Call&, CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  return vmm::GetAddressRange(pbase, psize, dptr);
}

CUresult cuMemGetInfo_v2(const Call&, size_t* free, size_t* total) {
  JoinMemory();
  return vmm::GetMemInfo(free, total);
}

CUresult cuPointerGetAttribute(const Call&, void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  JoinMemory();
  return vmm::PointerGetAttribute(data, attribute, ptr);
}

CUresult cuPointerGetAttributes(const Call&, unsigned int numAttributes, CUpointer_attribute* attributes,
                                void** data, CUdeviceptr ptr) {
  JoinMemory();
  return vmm::PointerGetAttributes(numAttributes, attributes, data, ptr);
}

CUresult cuPointerSetAttribute(const Call&, const void* value, CUpointer_attribute attribute,
                               CUdeviceptr ptr) {
  return vmm::PointerSetAttribute(value, attribute, ptr);
}

}  // namespace stasis::hooks
