#include <algorithm>
#include <vector>

#include "softgpu/native/driver.h"
#include "softgpu/nccl/api.h"
#include "softgpu/nccl/group.h"
#include "softgpu/nccl/log.h"

namespace softgpu::nccl {

namespace {

using native::Driver;

CUmemAllocationProp Properties(CUdevice device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  return properties;
}

// The device itself and all that may reach its memory.
ncclResult_t Users(CUdevice device, std::vector<CUmemAccessDesc>* users) {
  int count = 0;
  NCCL_TRY(FromDriver(Driver().cuDeviceGetCount(&count), "cuDeviceGetCount"));
  for (CUdevice other = 0; other < count; other++) {
    int can = other == device;
    if (!can)
      NCCL_TRY(FromDriver(Driver().cuDeviceCanAccessPeer(&can, other, device), "cuDeviceCanAccessPeer"));
    if (can != 0)
      users->push_back({{CU_MEM_LOCATION_TYPE_DEVICE, other}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE});
  }
  return ncclSuccess;
}

ncclResult_t MapNew(CUdeviceptr address, size_t size, CUdevice device) {
  const CUmemAllocationProp properties = Properties(device);
  CUmemGenericAllocationHandle handle = 0;
  NCCL_TRY(FromDriver(Driver().cuMemCreate(&handle, size, &properties, 0), "cuMemCreate"));
  ncclResult_t result = FromDriver(Driver().cuMemMap(address, size, 0, handle, 0), "cuMemMap");
  // The mapping keeps the memory.
  Driver().cuMemRelease(handle);
  NCCL_TRY(result);
  std::vector<CUmemAccessDesc> users;
  result = Users(device, &users);
  if (result == ncclSuccess)
    result = FromDriver(Driver().cuMemSetAccess(address, size, users.data(), users.size()), "cuMemSetAccess");
  if (result != ncclSuccess) Driver().cuMemUnmap(address, size);
  return result;
}

ncclResult_t Allocate(void** pointer, size_t size) {
  if (pointer == nullptr) return Fail(ncclInvalidArgument, "ncclMemAlloc: ptr is NULL");
  *pointer = nullptr;
  if (size == 0) return ncclSuccess;
  NCCL_TRY(FromDriver(native::EnsureContext(), "cuInit"));
  CUdevice device = 0;
  NCCL_TRY(FromDriver(Driver().cuCtxGetDevice(&device), "cuCtxGetDevice"));
  const CUmemAllocationProp properties = Properties(device);
  size_t granularity = 0;
  NCCL_TRY(FromDriver(
      Driver().cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
      "cuMemGetAllocationGranularity"));
  if (size > SIZE_MAX - granularity) return Fail(ncclInvalidArgument, "ncclMemAlloc: %zu bytes", size);
  size = (size + granularity - 1) / granularity * granularity;
  CUdeviceptr address = 0;
  NCCL_TRY(
      FromDriver(Driver().cuMemAddressReserve(&address, size, granularity, 0, 0), "cuMemAddressReserve"));
  const ncclResult_t result = MapNew(address, size, device);
  if (result != ncclSuccess) {
    Driver().cuMemAddressFree(address, size);
    return result;
  }
  *pointer = reinterpret_cast<void*>(address);
  return ncclSuccess;
}

ncclResult_t Free(void* pointer) {
  if (pointer == nullptr) return ncclSuccess;
  NCCL_TRY(FromDriver(native::EnsureContext(), "cuInit"));
  const auto address = reinterpret_cast<CUdeviceptr>(pointer);
  CUmemGenericAllocationHandle handle = 0;
  if (Driver().cuMemRetainAllocationHandle(&handle, pointer) != CUDA_SUCCESS)
    return FromDriver(Driver().cuMemFree_v2(address), "cuMemFree");
  Driver().cuMemRelease(handle);
  CUdeviceptr base = 0;
  size_t size = 0;
  NCCL_TRY(FromDriver(Driver().cuMemGetAddressRange_v2(&base, &size, address), "cuMemGetAddressRange"));
  if (base != address)
    return Fail(ncclInvalidArgument, "ncclMemFree: %p is not the start of an allocation", pointer);
  NCCL_TRY(FromDriver(Driver().cuMemUnmap(address, size), "cuMemUnmap"));
  return FromDriver(Driver().cuMemAddressFree(address, size), "cuMemAddressFree");
}

ncclResult_t UsableHandle(ncclComm_t comm, const char* function, CommunicatorPtr* communicator) {
  *communicator = Find(comm);
  if (*communicator == nullptr)
    return Fail(ncclInvalidArgument, "%s: comm is no communicator of this process", function);
  return (*communicator)->made()
             ? ncclSuccess
             : Fail(ncclInvalidArgument, "%s: the communicator is not initialised", function);
}

ncclResult_t AddBuffer(ncclComm_t comm, const void* buffer, size_t size, void** handle,
                       const char* function) {
  if (buffer == nullptr || size == 0 || handle == nullptr)
    return Fail(ncclInvalidArgument, "%s: no buffer, or no place for the handle", function);
  CommunicatorPtr communicator;
  NCCL_TRY(UsableHandle(comm, function, &communicator));
  *handle = communicator->AddRegistration();
  return ncclSuccess;
}

ncclResult_t RemoveBuffer(ncclComm_t comm, void* handle, const char* function) {
  if (handle == nullptr) return ncclSuccess;
  CommunicatorPtr communicator;
  NCCL_TRY(UsableHandle(comm, function, &communicator));
  if (communicator->RemoveRegistration(handle)) return ncclSuccess;
  return Fail(ncclInvalidArgument, "%s: %p is not registered", function, handle);
}

ncclResult_t AddWindow(ncclComm_t comm, void* buffer, size_t size, ncclWindow_t* window, int flags) {
  constexpr char kName[] = "ncclCommWindowRegister";
  if ((flags & ~NCCL_WIN_COLL_SYMMETRIC) != 0)
    return Fail(ncclInvalidArgument, "%s: unknown flags %#x", kName, flags);
  if (reinterpret_cast<uintptr_t>(buffer) % NCCL_WIN_REQUIRED_ALIGNMENT != 0)
    return Fail(ncclInvalidArgument, "%s: the buffer is not aligned to %d bytes", kName,
                NCCL_WIN_REQUIRED_ALIGNMENT);
  void* handle = nullptr;
  NCCL_TRY(AddBuffer(comm, buffer, size, window == nullptr ? nullptr : &handle, kName));
  *window = static_cast<ncclWindow_t>(handle);
  return ncclSuccess;
}

}  // namespace

ncclResult_t MemAlloc(void** pointer, size_t size) { return Note(Allocate(pointer, size)); }
ncclResult_t MemFree(void* pointer) { return Note(Free(pointer)); }

ncclResult_t CommRegister(ncclComm_t comm, void* buffer, size_t size, void** handle) {
  return Note(AddBuffer(comm, buffer, size, handle, "ncclCommRegister"));
}
ncclResult_t CommDeregister(ncclComm_t comm, void* handle) {
  return Note(RemoveBuffer(comm, handle, "ncclCommDeregister"));
}
ncclResult_t CommWindowRegister(ncclComm_t comm, void* buffer, size_t size, ncclWindow_t* window, int flags) {
  return Note(AddWindow(comm, buffer, size, window, flags));
}
ncclResult_t CommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  return Note(RemoveBuffer(comm, window, "ncclCommWindowDeregister"));
}

}  // namespace softgpu::nccl
