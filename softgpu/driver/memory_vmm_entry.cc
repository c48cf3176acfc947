// Entry points: virtual memory management.
#include <cuda.h>

#include <algorithm>

#include "softgpu/driver/entry.h"
#include "softgpu/driver/memory_actions.h"
#include "softgpu/driver/memory_parts.h"
#include "softgpu/driver/state.h"

namespace softgpu {
namespace {

MemoryManager& Manager(const Entry& entry) { return entry.state().memory().manager(); }

}  // namespace
}  // namespace softgpu

using namespace softgpu;

extern "C" {

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr addr,
                                     unsigned long long flags) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (ptr == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return Manager(entry).Reserve(ptr, size, alignment, addr);
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  return Manager(entry).Unreserve(ptr, size);
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                             const CUmemAllocationProp* prop, unsigned long long flags) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (handle == nullptr || prop == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = Manager(entry).CreateHandle(handle, size, *prop);
  bool on_device = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  if (result == CUDA_ERROR_OUT_OF_MEMORY && on_device &&
      entry.state().memory().pools().TrimDevice(prop->location.id)) {
    result = Manager(entry).CreateHandle(handle, size, *prop);
  }
  return result;
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  return Manager(entry).ReleaseHandle(handle);
}

CUresult CUDAAPI cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                          unsigned long long flags) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  return Manager(entry).Map(ptr, size, offset, handle);
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr ptr, size_t size) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  DrainUsers(entry, nullptr);
  return Manager(entry).Unmap(ptr, size);
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc, size_t count) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (desc == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Work that was given before keeps the rights it was given with; more rights do it no harm.
  bool takes_away = std::any_of(desc, desc + count, [](const CUmemAccessDesc& one) {
    return one.flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  });
  if (takes_away) DrainUsers(entry, nullptr);
  return Manager(entry).SetAccess(ptr, size, desc, count);
}

CUresult CUDAAPI cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr ptr) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Manager(entry).GetAccess(flags, *location, ptr);
}

CUresult CUDAAPI cuMemExportToShareableHandle(void* shareableHandle, CUmemGenericAllocationHandle handle,
                                              CUmemAllocationHandleType handleType,
                                              unsigned long long flags) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (shareableHandle == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (handleType == CU_MEM_HANDLE_TYPE_FABRIC) return CUDA_ERROR_NOT_SUPPORTED;
  if (handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  return Manager(entry).Export(handle, static_cast<int*>(shareableHandle));
}

CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* osHandle,
                                                CUmemAllocationHandleType shHandleType) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (shHandleType == CU_MEM_HANDLE_TYPE_FABRIC) return CUDA_ERROR_NOT_SUPPORTED;
  if (shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  // The descriptor itself travels in the pointer.
  return Manager(entry).Import(handle, static_cast<int>(reinterpret_cast<intptr_t>(osHandle)));
}

CUresult CUDAAPI cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                               CUmemAllocationGranularity_flags option) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  bool known = option == CU_MEM_ALLOC_GRANULARITY_MINIMUM || option == CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
  if (granularity == nullptr || prop == nullptr || !known) return CUDA_ERROR_INVALID_VALUE;
  CUresult valid = CheckAllocationProp(*prop, Manager(entry).devices());
  if (valid == CUDA_SUCCESS) *granularity = kLargePage;
  return valid;
}

CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                        CUmemGenericAllocationHandle handle) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (prop == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Manager(entry).GetProperties(handle, prop);
}

CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Manager(entry).RetainHandle(handle, reinterpret_cast<uint64_t>(addr));
}

}  // extern "C"
