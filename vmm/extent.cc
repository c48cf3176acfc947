#include "vmm/extent.h"

#include <atomic>
#include <vector>

#include "vmm/device_map.h"
#include "vmm/real_driver.h"

namespace stasis::vmm {
namespace {

std::vector<CUmemAccessDesc> Descriptors(const AccessRights& rights) {
  std::vector<CUmemAccessDesc> out;
  for (const auto& [device, flags] : rights) {
    CUmemAccessDesc one{};
    one.location = {CU_MEM_LOCATION_TYPE_DEVICE, ToPhysicalDevice(device)};
    one.flags = flags;
    out.push_back(one);
  }
  return out;
}

CUmemAllocationProp Properties(int device) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, ToPhysicalDevice(device)};
  return prop;
}

}  // namespace

uint64_t NextExtentId() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

CUresult CheckGranularity(int device) {
  const CUmemAllocationProp prop = Properties(device);
  size_t granularity = 0;
  const CUresult result =
      Driver().cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (result != CUDA_SUCCESS) return result;
  return granularity != 0 && kPage % granularity == 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult CreatePhysical(int device, uint64_t size, CUmemGenericAllocationHandle* handle) {
  const CUmemAllocationProp prop = Properties(device);
  return Driver().cuMemCreate(handle, size, &prop, 0);
}

CUresult MapExtent(Extent& extent, const AccessRights& rights) {
  CUresult result = Driver().cuMemMap(extent.address, extent.size, 0, extent.handle, 0);
  if (result != CUDA_SUCCESS) return result;
  result = GrantAccess(extent, rights);
  if (result == CUDA_SUCCESS)
    extent.mapped = true;
  else
    Driver().cuMemUnmap(extent.address, extent.size);
  return result;
}

CUresult GrantAccess(const Extent& extent, const AccessRights& rights) {
  const std::vector<CUmemAccessDesc> descriptors = Descriptors(rights);
  return Driver().cuMemSetAccess(extent.address, extent.size, descriptors.data(), descriptors.size());
}

CUresult DiscardExtent(Extent& extent) {
  CUresult result = CUDA_SUCCESS;
  if (extent.mapped) {
    result = Driver().cuMemUnmap(extent.address, extent.size);
    if (result != CUDA_SUCCESS) return result;
    extent.mapped = false;
  }
  if (extent.created) {
    result = Driver().cuMemRelease(extent.handle);
    if (result != CUDA_SUCCESS) return result;
    extent.created = false;
    extent.handle = 0;
  }
  return result;
}

Result<Fd> ExportHandle(CUmemGenericAllocationHandle handle) {
  int fd = -1;
  const CUresult result =
      Driver().cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  RETURN_IF_ERROR(DriverStatus(result, "cuMemExportToShareableHandle"));
  return Fd(fd);
}

Status ImportHandle(const Fd& fd, CUmemGenericAllocationHandle* handle) {
  void* const os_handle = reinterpret_cast<void*>(static_cast<intptr_t>(fd.get()));
  return DriverStatus(
      Driver().cuMemImportFromShareableHandle(handle, os_handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
      "cuMemImportFromShareableHandle");
}

}  // namespace stasis::vmm
