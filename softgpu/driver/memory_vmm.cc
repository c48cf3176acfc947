// Virtual memory management: reservations, handles, mappings and their access rights.
#include <algorithm>
#include <utility>

#include "softgpu/driver/memory_manager.h"

namespace softgpu {
namespace {

bool OnHost(CUmemLocationType type) {
  return type == CU_MEM_LOCATION_TYPE_HOST || type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

bool Aligned(uint64_t value) { return value % kLargePage == 0; }

bool ValidFlags(CUmemAccess_flags flags) {
  return flags == CU_MEM_ACCESS_FLAGS_PROT_NONE || flags == CU_MEM_ACCESS_FLAGS_PROT_READ ||
         flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

}  // namespace

CUresult CheckAllocationProp(const CUmemAllocationProp& prop, int devices) {
  if (prop.type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (prop.win32HandleMetaData != nullptr || prop.allocFlags.usage != 0) return CUDA_ERROR_INVALID_VALUE;
  if (prop.allocFlags.compressionType != CU_MEM_ALLOCATION_COMP_NONE &&
      prop.allocFlags.compressionType != CU_MEM_ALLOCATION_COMP_GENERIC) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  auto handle_types = static_cast<unsigned>(prop.requestedHandleTypes);
  if (OnHost(prop.location.type)) {
    bool node = prop.location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA && prop.location.id != 0;
    return handle_types != 0 || node ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
  }
  if (prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (prop.location.id < 0 || prop.location.id >= devices) return CUDA_ERROR_INVALID_DEVICE;
  constexpr unsigned kKnown = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC;
  if ((handle_types & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  return (handle_types & CU_MEM_HANDLE_TYPE_FABRIC) != 0 ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

CUresult MemoryManager::Reserve(CUdeviceptr* address, uint64_t size, uint64_t alignment, CUdeviceptr hint) {
  bool power = (alignment & (alignment - 1)) == 0;
  if (size == 0 || size % kPageBytes != 0 || hint % kPageBytes != 0 || !power)
    return CUDA_ERROR_INVALID_VALUE;
  if (size >> 47 != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  stasis::Result<uint64_t> base = ReserveAddresses(size, std::max(alignment, kLargePage), hint);
  if (!base.ok()) return CUDA_ERROR_OUT_OF_MEMORY;
  std::lock_guard lock(mutex_);
  Reservation reservation;
  reservation.size = size;
  reservation.id = next_id_++;
  reservations_.emplace(*base, std::move(reservation));
  *address = *base;
  return CUDA_SUCCESS;
}

CUresult MemoryManager::Unreserve(CUdeviceptr address, uint64_t size) {
  std::lock_guard lock(mutex_);
  auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second.size != size) return CUDA_ERROR_INVALID_VALUE;
  if (!found->second.mappings.empty()) return CUDA_ERROR_INVALID_VALUE;
  ReleaseAddresses(address, size);
  reservations_.erase(found);
  return CUDA_SUCCESS;
}

CUresult MemoryManager::CreateHandle(CUmemGenericAllocationHandle* handle, uint64_t size,
                                     const CUmemAllocationProp& prop) {
  CUresult valid = CheckAllocationProp(prop, devices());
  if (valid != CUDA_SUCCESS) return valid;
  if (size == 0 || !Aligned(size)) return CUDA_ERROR_INVALID_VALUE;
  if (size >> 47 != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  int device = OnHost(prop.location.type) ? kHostDevice : prop.location.id;
  stasis::Result<std::shared_ptr<Physical>> created = Physical::Create(source_, device, size);
  if (!created.ok()) return MemoryError(created.status());
  (*created)->prop = prop;
  // Compression is asked for, not promised; the properties say that there is none.
  (*created)->prop.allocFlags.compressionType = CU_MEM_ALLOCATION_COMP_NONE;
  std::lock_guard lock(mutex_);
  *handle = PublishHandleLocked(*std::move(created));
  return CUDA_SUCCESS;
}

CUmemGenericAllocationHandle MemoryManager::PublishHandleLocked(std::shared_ptr<Physical> memory) {
  Physical* key = memory.get();
  ++key->handle_references;
  handles_.emplace(key, std::move(memory));
  return reinterpret_cast<CUmemGenericAllocationHandle>(key);
}

Physical* MemoryManager::HandleLocked(CUmemGenericAllocationHandle handle) const {
  auto found = handles_.find(reinterpret_cast<const Physical*>(handle));
  return found == handles_.end() ? nullptr : found->second.get();
}

CUresult MemoryManager::ReleaseHandle(CUmemGenericAllocationHandle handle) {
  std::shared_ptr<Physical> dying;
  std::lock_guard lock(mutex_);
  Physical* memory = HandleLocked(handle);
  if (memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (--memory->handle_references != 0) return CUDA_SUCCESS;
  auto found = handles_.find(memory);
  dying = std::move(found->second);
  handles_.erase(found);
  return CUDA_SUCCESS;
}

MemoryManager::Reservations::iterator MemoryManager::ReservationOfLocked(uint64_t address, uint64_t size) {
  auto found = reservations_.upper_bound(address);
  if (found == reservations_.begin()) return reservations_.end();
  --found;
  uint64_t offset = address - found->first;
  bool inside = offset < found->second.size && size <= found->second.size - offset;
  return inside ? found : reservations_.end();
}

CUresult MemoryManager::Map(CUdeviceptr address, uint64_t size, uint64_t offset,
                            CUmemGenericAllocationHandle handle) {
  std::lock_guard lock(mutex_);
  Physical* memory = HandleLocked(handle);
  if (memory == nullptr || size == 0 || !Aligned(address) || !Aligned(size)) return CUDA_ERROR_INVALID_VALUE;
  if (offset != 0 || size > memory->size()) return CUDA_ERROR_INVALID_VALUE;
  auto reservation = ReservationOfLocked(address, size);
  if (reservation == reservations_.end()) return CUDA_ERROR_INVALID_VALUE;
  auto& mappings = reservation->second.mappings;
  auto next = mappings.lower_bound(address);
  if (next != mappings.end() && next->first < address + size) return CUDA_ERROR_INVALID_VALUE;
  if (next != mappings.begin()) {
    auto previous = std::prev(next);
    if (previous->first + previous->second.size > address) return CUDA_ERROR_INVALID_VALUE;
  }
  stasis::Status mapped = AliasPages(address, memory->home() + offset, size);
  if (!mapped.ok()) {
    UnmapPages(address, size);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  VmmMapping mapping{.size = size, .offset = offset, .physical = handles_.at(memory)};
  mapping.device_access.assign(access_maps_.size(), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  mapping.id = next_id_++;
  mappings.emplace(address, std::move(mapping));
  return CUDA_SUCCESS;
}

bool MemoryManager::FullyMappedLocked(const Reservation& reservation, uint64_t address, uint64_t size) const {
  uint64_t end = address + size;
  for (auto it = reservation.mappings.find(address); address < end; ++it) {
    if (it == reservation.mappings.end() || it->first != address) return false;
    address += it->second.size;
  }
  return address == end;
}

void MemoryManager::UnmapOneLocked(uint64_t address, const VmmMapping& mapping) {
  RevokeLocked(address, mapping.size);
  UnmapPages(address, mapping.size);
}

CUresult MemoryManager::Unmap(CUdeviceptr address, uint64_t size) {
  std::vector<std::shared_ptr<Physical>> dying;
  std::lock_guard lock(mutex_);
  auto reservation = ReservationOfLocked(address, size);
  if (size == 0 || reservation == reservations_.end()) return CUDA_ERROR_INVALID_VALUE;
  if (!FullyMappedLocked(reservation->second, address, size)) return CUDA_ERROR_INVALID_VALUE;
  auto& mappings = reservation->second.mappings;
  for (auto it = mappings.find(address); it != mappings.end() && it->first < address + size;) {
    UnmapOneLocked(it->first, it->second);
    dying.push_back(std::move(it->second.physical));
    it = mappings.erase(it);
  }
  return CUDA_SUCCESS;
}

void MemoryManager::ApplyAccessLocked(uint64_t address, VmmMapping& mapping, const CUmemAccessDesc& desc) {
  if (desc.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    mapping.host_access = desc.flags;
    return;
  }
  mapping.device_access[desc.location.id] = desc.flags;
  SetDeviceAccess(address, mapping.size, desc.location.id, desc.flags);
}

CUresult MemoryManager::SetAccess(CUdeviceptr address, uint64_t size, const CUmemAccessDesc* desc,
                                  size_t count) {
  std::lock_guard lock(mutex_);
  if (size == 0 || count == 0) return CUDA_ERROR_INVALID_VALUE;
  auto reservation = ReservationOfLocked(address, size);
  if (reservation == reservations_.end()) return CUDA_ERROR_INVALID_VALUE;
  if (!FullyMappedLocked(reservation->second, address, size)) return CUDA_ERROR_INVALID_VALUE;
  auto& mappings = reservation->second.mappings;
  auto first = mappings.find(address), last = mappings.lower_bound(address + size);
  for (size_t i = 0; i < count; ++i) {
    const CUmemLocation& location = desc[i].location;
    if (!ValidFlags(desc[i].flags)) return CUDA_ERROR_INVALID_VALUE;
    if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
      if (location.id < 0 || location.id >= devices()) return CUDA_ERROR_INVALID_DEVICE;
    } else if (!OnHost(location.type) ||
               std::any_of(first, last, [](auto& entry) { return entry.second.physical->device() >= 0; })) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  for (auto it = first; it != last; ++it) {
    for (size_t i = 0; i < count; ++i) ApplyAccessLocked(it->first, it->second, desc[i]);
  }
  return CUDA_SUCCESS;
}

CUresult MemoryManager::GetAccess(unsigned long long* flags, const CUmemLocation& location,
                                  CUdeviceptr address) const {
  bool on_device = location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  if (!on_device && !OnHost(location.type)) return CUDA_ERROR_INVALID_VALUE;
  if (on_device && (location.id < 0 || location.id >= devices())) return CUDA_ERROR_INVALID_DEVICE;
  std::optional<MappingInfo> found = FindMapping(address);
  if (!found) return CUDA_ERROR_INVALID_VALUE;
  *flags = on_device ? found->mapping.device_access[location.id] : found->mapping.host_access;
  return CUDA_SUCCESS;
}

CUresult MemoryManager::Export(CUmemGenericAllocationHandle handle, int* fd) {
  std::shared_ptr<Physical> memory;
  {
    std::lock_guard lock(mutex_);
    if (HandleLocked(handle) == nullptr) return CUDA_ERROR_INVALID_VALUE;
    memory = handles_.at(reinterpret_cast<const Physical*>(handle));
    bool allowed = (memory->prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
    if (!allowed) return CUDA_ERROR_INVALID_VALUE;
    memory->shared = true;
  }
  stasis::Result<stasis::Fd> exported = memory->Export();
  if (!exported.ok()) return MemoryError(exported.status());
  *fd = exported->Release();
  return CUDA_SUCCESS;
}

CUresult MemoryManager::Import(CUmemGenericAllocationHandle* handle, int fd) {
  stasis::Result<std::shared_ptr<Physical>> imported = Physical::Import(source_, fd);
  if (!imported.ok()) return MemoryError(imported.status());
  CUmemAllocationProp& prop = (*imported)->prop;
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, (*imported)->device()};
  prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  std::lock_guard lock(mutex_);
  *handle = PublishHandleLocked(*std::move(imported));
  return CUDA_SUCCESS;
}

CUresult MemoryManager::GetProperties(CUmemGenericAllocationHandle handle, CUmemAllocationProp* prop) const {
  std::lock_guard lock(mutex_);
  const Physical* memory = HandleLocked(handle);
  if (memory == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *prop = memory->prop;
  return CUDA_SUCCESS;
}

CUresult MemoryManager::RetainHandle(CUmemGenericAllocationHandle* handle, uint64_t address) {
  std::optional<MappingInfo> found = FindMapping(address);
  if (!found) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(mutex_);
  *handle = PublishHandleLocked(found->mapping.physical);
  return CUDA_SUCCESS;
}

}  // namespace softgpu
