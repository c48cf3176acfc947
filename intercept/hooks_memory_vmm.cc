// The program's own virtual memory management, and hints about memory: device ordinals inside of structures
// are the program's, the driver has its own.
#include <vector>

#include "intercept/memory_environment.h"
#include "vmm/host_memory.h"
#include "vmm/memory.h"

namespace stasis::hooks {
namespace {

// True for managed memory of ours, which lies on the host for good: hints about it are taken and change
// nothing.
bool IsManagedOnHost(CUdeviceptr address, size_t bytes) {
  const auto block = vmm::HostMemory::Get().Find(address);
  return block && block->kind == vmm::HostKind::kManaged && bytes != 0 && bytes <= block->end() - address;
}

}  // namespace

CUresult cuMemCreate(const Call& call, CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* prop, unsigned long long flags) {
  const auto real = call.Real<decltype(&::cuMemCreate)>();
  if (prop == nullptr) return real(handle, size, prop, flags);
  CUmemAllocationProp physical = *prop;
  physical.location = PhysicalLocation(prop->location);
  CUresult result = real(handle, size, &physical, flags);
  const bool on_device = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  if (result == CUDA_ERROR_OUT_OF_MEMORY && on_device) {
    result =
        vmm::Memory::WithHeldMemory(prop->location.id, [&] { return real(handle, size, &physical, flags); });
  }
  if (result == CUDA_SUCCESS) TaintOnce(call.fn, false);
  return result;
}

CUresult cuMemGetAllocationGranularity(const Call& call, size_t* granularity, const CUmemAllocationProp* prop,
                                       CUmemAllocationGranularity_flags option) {
  const auto real = call.Real<decltype(&::cuMemGetAllocationGranularity)>();
  if (prop == nullptr) return real(granularity, prop, option);
  CUmemAllocationProp physical = *prop;
  physical.location = PhysicalLocation(prop->location);
  return real(granularity, &physical, option);
}

CUresult cuMemGetAllocationPropertiesFromHandle(const Call& call, CUmemAllocationProp* prop,
                                                CUmemGenericAllocationHandle handle) {
  const CUresult result = call.Real<decltype(&::cuMemGetAllocationPropertiesFromHandle)>()(prop, handle);
  if (result == CUDA_SUCCESS && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
    ReturnDevice(result, &prop->location.id);
  return result;
}

CUresult cuMemSetAccess(const Call& call, CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc,
                        size_t count) {
  const auto real = call.Real<decltype(&::cuMemSetAccess)>();
  if (desc == nullptr || !DeviceMapActive()) {
    const CUresult result = real(ptr, size, desc, count);
    if (result == CUDA_SUCCESS) TaintOnce(call.fn, false);
    return result;
  }
  std::vector<CUmemAccessDesc> physical(desc, desc + count);
  for (CUmemAccessDesc& one : physical) one.location = PhysicalLocation(one.location);
  const CUresult result = real(ptr, size, physical.data(), count);
  if (result == CUDA_SUCCESS) TaintOnce(call.fn, false);
  return result;
}

CUresult cuMemGetAccess(const Call& call, unsigned long long* flags, const CUmemLocation* location,
                        CUdeviceptr ptr) {
  const auto real = call.Real<decltype(&::cuMemGetAccess)>();
  if (location == nullptr) return real(flags, location, ptr);
  const CUmemLocation physical = PhysicalLocation(*location);
  return real(flags, &physical, ptr);
}

CUresult cuMemAdvise(const Call& call, CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                     CUdevice device) {
  if (IsManagedOnHost(devPtr, count)) return CUDA_SUCCESS;
  const CUresult result =
      call.Real<decltype(&::cuMemAdvise)>()(devPtr, count, advice, PhysicalDevice(device));
  if (result == CUDA_SUCCESS) TaintOnce(call.fn, false);
  return result;
}

CUresult cuMemAdvise_v2(const Call& call, CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                        CUmemLocation location) {
  if (IsManagedOnHost(devPtr, count)) return CUDA_SUCCESS;
  const CUresult result =
      call.Real<decltype(&::cuMemAdvise_v2)>()(devPtr, count, advice, PhysicalLocation(location));
  if (result == CUDA_SUCCESS) TaintOnce(call.fn, false);
  return result;
}

CUresult cuMemPrefetchAsync(const Call& call, CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
                            CUstream hStream) {
  if (IsManagedOnHost(devPtr, count)) return CUDA_SUCCESS;
  return call.Real<decltype(&::cuMemPrefetchAsync)>()(devPtr, count, PhysicalDevice(dstDevice),
                                                      replay::ToReal(hStream));
}

CUresult cuMemPrefetchAsync_v2(const Call& call, CUdeviceptr devPtr, size_t count, CUmemLocation location,
                               unsigned int flags, CUstream hStream) {
  if (IsManagedOnHost(devPtr, count)) return CUDA_SUCCESS;
  return call.Real<decltype(&::cuMemPrefetchAsync_v2)>()(devPtr, count, PhysicalLocation(location), flags,
                                                         replay::ToReal(hStream));
}

}  // namespace stasis::hooks
