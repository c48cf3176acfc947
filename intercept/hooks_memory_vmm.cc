// The program's own virtual memory management.
#include "intercept/memory_environment.h"
#include "vmm/device_map.h"
#include "vmm/virtual_memory.h"

namespace stasis::hooks {
namespace {

using vmm::VirtualMemory;

}  // namespace

CUresult cuMemAddressReserve(const Call&, CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr addr,
                             unsigned long long flags) {
  return VirtualMemory::Get().Reserve(ptr, size, alignment, addr, flags);
}

CUresult cuMemAddressFree(const Call&, CUdeviceptr ptr, size_t size) {
  return VirtualMemory::Get().Unreserve(ptr, size);
}

CUresult cuMemCreate(const Call&, CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* prop, unsigned long long flags) {
  JoinMemory();
  bool carried = true;
  const CUresult result = VirtualMemory::Get().Create(handle, size, prop, flags, &carried);
  if (result == CUDA_SUCCESS && !carried) Taint("cuMemCreate of memory that cannot be exported", false);
  return result;
}

CUresult cuMemRelease(const Call&, CUmemGenericAllocationHandle handle) {
  return VirtualMemory::Get().Release(handle);
}

CUresult cuMemMap(const Call&, CUdeviceptr ptr, size_t size, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  return VirtualMemory::Get().Map(ptr, size, offset, handle, flags);
}

CUresult cuMemUnmap(const Call&, CUdeviceptr ptr, size_t size) {
  return VirtualMemory::Get().Unmap(ptr, size);
}

CUresult cuMemSetAccess(const Call&, CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc,
                        size_t count) {
  bool exact = true;
  const CUresult result = VirtualMemory::Get().SetAccess(ptr, size, desc, count, &exact);
  if (!exact) Taint("cuMemSetAccess of a part of a mapping", true);
  return result;
}

CUresult cuMemGetAccess(const Call&, unsigned long long* flags, const CUmemLocation* location,
                        CUdeviceptr ptr) {
  return VirtualMemory::Get().GetAccess(flags, location, ptr);
}

CUresult cuMemGetAllocationGranularity(const Call& call, size_t* granularity, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags option) {
  const auto real = call.Real<decltype(&::cuMemGetAllocationGranularity)>();
  if (prop == nullptr) return real(granularity, prop, option);
  CUmemAllocationProp physical = *prop;
  physical.location = ToPhysicalLocation(prop->location);
  return real(granularity, &physical, option);
}

CUresult cuMemGetAllocationPropertiesFromHandle(const Call&, CUmemAllocationProp* prop,
                                                CUmemGenericAllocationHandle handle) {
  return VirtualMemory::Get().GetProperties(prop, handle);
}

CUresult cuMemRetainAllocationHandle(const Call&, CUmemGenericAllocationHandle* handle, void* addr) {
  return VirtualMemory::Get().Retain(handle, addr);
}

}  // namespace stasis::hooks
