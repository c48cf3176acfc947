#include "vmm/virtual_memory.h"

#include <iterator>

#include "vmm/device_map.h"
#include "vmm/extent.h"
#include "vmm/memory.h"
#include "vmm/opened_memory.h"
#include "vmm/real_driver.h"

namespace stasis::vmm {
namespace {

// Values that are no addresses, which the drivers' own handles are, nor small numbers.
constexpr CUmemGenericAllocationHandle kSyntheticBase = 0x5354000000000000;
// No driver has memory here: asking it about this address gives its own answer for unknown ones.
constexpr CUdeviceptr kUnknownAddress = 8;

CUmemLocation ToPhysical(CUmemLocation location) {
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) location.id = ToPhysicalDevice(location.id);
  return location;
}

CUmemAllocationProp ToPhysical(CUmemAllocationProp prop) {
  prop.location = ToPhysical(prop.location);
  return prop;
}

bool OnDevice(const CUmemAllocationProp& prop) { return prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE; }

CUmemAllocationProp Exportable(CUmemAllocationProp prop) {
  prop.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(
      prop.requestedHandleTypes | CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  return prop;
}

// What the driver made of the program's wish, in the program's words.
CUmemAllocationProp PropertiesOf(CUmemGenericAllocationHandle real, const CUmemAllocationProp& wish) {
  CUmemAllocationProp prop = wish;
  if (Driver().cuMemGetAllocationPropertiesFromHandle(&prop, real) != CUDA_SUCCESS) return wish;
  if (OnDevice(wish)) prop.location = wish.location;
  prop.requestedHandleTypes = wish.requestedHandleTypes;
  return prop;
}

// Ranges of ours, which the program has not reserved.
bool IsForbidden(CUdeviceptr address) {
  return Memory::Get().Covers(address) || OpenedMemory::Get().Covers(address);
}

}  // namespace

bool OnHost(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_HOST || location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
         location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
}

VirtualMemory& VirtualMemory::Get() {
  static VirtualMemory* const memory = new VirtualMemory;  // outlives every destructor
  return *memory;
}

// --- Ranges of addresses.

CUresult VirtualMemory::Reserve(CUdeviceptr* address, size_t size, size_t alignment, CUdeviceptr wish,
                                unsigned long long flags) {
  const std::lock_guard lock(mutex_);
  const CUresult result = Driver().cuMemAddressReserve(address, size, alignment, wish, flags);
  if (result == CUDA_SUCCESS) reservations_.emplace(*address, Reservation{size});
  return result;
}

CUresult VirtualMemory::Unreserve(CUdeviceptr address, size_t size) {
  if (IsForbidden(address)) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex_);
  const CUresult result = Driver().cuMemAddressFree(address, size);
  if (result == CUDA_SUCCESS) reservations_.erase(address);
  return result;
}

// --- Handles.

CUresult VirtualMemory::CreateReal(const CUmemAllocationProp& prop, size_t size, unsigned long long flags,
                                   CUmemGenericAllocationHandle* real, CarriedBy* carried) {
  const CUmemAllocationProp wish = ToPhysical(prop);
  *carried = OnHost(prop.location) ? CarriedBy::kProcess : CarriedBy::kDriver;
  if (OnDevice(prop)) {
    const CUmemAllocationProp exportable = Exportable(wish);
    const CUresult result = Driver().cuMemCreate(real, size, &exportable, flags);
    if (result == CUDA_SUCCESS) *carried = CarriedBy::kGhost;
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_OUT_OF_MEMORY) return result;
  }
  return Driver().cuMemCreate(real, size, &wish, flags);
}

// The driver may give a value again that the program knows from an earlier driver.
void VirtualMemory::PublishLocked(const MemoryPtr& memory) {
  memory->visible = memory->real;
  while (!memories_.emplace(memory->visible, memory).second)
    memory->visible = kSyntheticBase + next_synthetic_++;
}

CUresult VirtualMemory::Create(CUmemGenericAllocationHandle* handle, size_t size,
                               const CUmemAllocationProp* prop, unsigned long long flags, bool* carried) {
  *carried = true;
  if (handle == nullptr || prop == nullptr) return Driver().cuMemCreate(handle, size, prop, flags);
  ReleaseLeftovers();
  auto memory = std::make_shared<PhysicalMemory>();
  const auto create = [&] { return CreateReal(*prop, size, flags, &memory->real, &memory->carried); };
  CUresult result = create();
  if (result == CUDA_ERROR_OUT_OF_MEMORY && OnDevice(*prop)) {
    Memory::Get().Reclaim(prop->location.id);
    result = create();
    if (result == CUDA_ERROR_OUT_OF_MEMORY) result = Memory::WithHeldMemory(prop->location.id, create);
  }
  if (result != CUDA_SUCCESS) return result;
  *carried = memory->carried != CarriedBy::kDriver;
  memory->id = NextExtentId();
  memory->size = size;
  memory->references = 1;
  memory->prop = PropertiesOf(memory->real, *prop);
  memory->block_id = Memory::Get().NextBufferId();
  const std::lock_guard lock(mutex_);
  PublishLocked(memory);
  *handle = memory->visible;
  return CUDA_SUCCESS;
}

VirtualMemory::MemoryPtr VirtualMemory::FindHandleLocked(CUmemGenericAllocationHandle handle) const {
  auto found = memories_.find(handle);
  return found == memories_.end() ? nullptr : found->second;
}

// Takes memory that the program can no longer reach out of the table, for the caller to release.
VirtualMemory::MemoryPtr VirtualMemory::DropIfUnusedLocked(const MemoryPtr& memory) {
  if (memory->references != 0 || memory->mappings != 0 || memory->tickets != 0) return nullptr;
  memories_.erase(memory->visible);
  return memory;
}

CUresult VirtualMemory::Release(CUmemGenericAllocationHandle handle) {
  MemoryPtr unused;
  {
    const std::lock_guard lock(mutex_);
    const MemoryPtr memory = FindHandleLocked(handle);
    if (memory == nullptr) return Driver().cuMemRelease(handle);
    if (memory->references == 0) return CUDA_ERROR_INVALID_VALUE;
    --memory->references;
    unused = DropIfUnusedLocked(memory);
  }
  return unused == nullptr ? CUDA_SUCCESS : Driver().cuMemRelease(unused->real);
}

CUresult VirtualMemory::GetProperties(CUmemAllocationProp* prop, CUmemGenericAllocationHandle handle) {
  const std::lock_guard lock(mutex_);
  const MemoryPtr memory = FindHandleLocked(handle);
  if (memory == nullptr || prop == nullptr)
    return Driver().cuMemGetAllocationPropertiesFromHandle(prop, handle);
  if (memory->references == 0) return CUDA_ERROR_INVALID_VALUE;
  *prop = memory->prop;
  return CUDA_SUCCESS;
}

CUresult VirtualMemory::Retain(CUmemGenericAllocationHandle* handle, void* address) {
  const CUdeviceptr at = reinterpret_cast<CUdeviceptr>(address);
  if (IsForbidden(at)) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(mutex_);
  const auto range = FindRangeLocked(at);
  if (handle == nullptr || range == ranges_.end())
    return Driver().cuMemRetainAllocationHandle(handle, address);
  ++range->second.memory->references;
  *handle = range->second.memory->visible;
  return CUDA_SUCCESS;
}

CUmemGenericAllocationHandle VirtualMemory::ToReal(CUmemGenericAllocationHandle visible) const {
  const std::lock_guard lock(mutex_);
  const MemoryPtr memory = FindHandleLocked(visible);
  return memory == nullptr ? visible : memory->real;
}

// --- Sharing.

bool VirtualMemory::Export(CUmemGenericAllocationHandle handle, uint64_t* share, CUresult* result) {
  const std::lock_guard lock(mutex_);
  const MemoryPtr memory = FindHandleLocked(handle);
  if (memory == nullptr || memory->carried != CarriedBy::kGhost) return false;
  const bool allowed = (memory->prop.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != 0;
  *result = allowed && memory->references != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  if (*result != CUDA_SUCCESS) return true;
  if (memory->share == 0) memory->share = NewShareKey();
  ++memory->tickets;
  *share = memory->share;
  return true;
}

void VirtualMemory::TicketGone(uint64_t share) {
  const std::lock_guard lock(mutex_);
  for (const auto& [handle, memory] : memories_) {
    if (memory->share != share || memory->tickets == 0) continue;
    --memory->tickets;
    leftovers_.store(true, std::memory_order_relaxed);
    return;
  }
}

void VirtualMemory::ReleaseLeftovers() {
  if (!leftovers_.exchange(false, std::memory_order_relaxed)) return;
  std::vector<MemoryPtr> unused;
  {
    const std::lock_guard lock(mutex_);
    for (auto it = memories_.begin(); it != memories_.end();) {
      const MemoryPtr memory = (it++)->second;
      if (DropIfUnusedLocked(memory) != nullptr) unused.push_back(memory);
    }
  }
  for (const MemoryPtr& memory : unused) Driver().cuMemRelease(memory->real);
}

Result<SharedMemory> VirtualMemory::Give(uint64_t share) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [handle, memory] : memories_) {
    if (memory->share != share) continue;
    SharedMemory given;
    given.size = memory->size;
    given.handle_types = static_cast<uint32_t>(memory->prop.requestedHandleTypes);
    given.pieces.push_back({share, memory->size});
    ASSIGN_OR_RETURN(Fd fd, ExportHandle(memory->real));
    given.fds.push_back(std::move(fd));
    return given;
  }
  return Status(StatusCode::kNotFound, "the memory is gone");
}

CUresult VirtualMemory::Import(CUmemGenericAllocationHandle* handle, const Fd& fd, const SharedPiece& piece,
                               uint32_t handle_types) {
  auto memory = std::make_shared<PhysicalMemory>();
  void* const os_handle = reinterpret_cast<void*>(static_cast<intptr_t>(fd.get()));
  CUresult result = Driver().cuMemImportFromShareableHandle(&memory->real, os_handle,
                                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  if (result != CUDA_SUCCESS) return result;
  result = Driver().cuMemGetAllocationPropertiesFromHandle(&memory->prop, memory->real);
  memory->prop.location.id = ToVirtualDevice(memory->prop.location.id);
  if (result == CUDA_SUCCESS && memory->prop.location.id < 0) result = CUDA_ERROR_INVALID_DEVICE;
  if (result != CUDA_SUCCESS) {
    Driver().cuMemRelease(memory->real);
    return result;
  }
  memory->prop.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(handle_types);
  memory->id = NextExtentId();
  memory->size = piece.size;
  memory->share = piece.share;
  memory->references = 1;
  memory->block_id = Memory::Get().NextBufferId();
  const std::lock_guard lock(mutex_);
  PublishLocked(memory);
  *handle = memory->visible;
  return CUDA_SUCCESS;
}

// --- Mappings.

VirtualMemory::Ranges::const_iterator VirtualMemory::FindRangeLocked(uint64_t address) const {
  auto next = ranges_.upper_bound(address);
  if (next == ranges_.begin()) return ranges_.end();
  const auto found = std::prev(next);
  return address - found->first < found->second.size ? found : ranges_.end();
}

CUresult VirtualMemory::Map(CUdeviceptr address, size_t size, size_t offset,
                            CUmemGenericAllocationHandle handle, unsigned long long flags) {
  if (IsForbidden(address)) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t buffer_id = Memory::Get().NextBufferId();
  const std::lock_guard lock(mutex_);
  const MemoryPtr memory = FindHandleLocked(handle);
  if (memory == nullptr) return Driver().cuMemMap(address, size, offset, handle, flags);
  if (memory->references == 0) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = Driver().cuMemMap(address, size, offset, memory->real, flags);
  if (result != CUDA_SUCCESS) return result;
  MappedRange range;
  range.size = size;
  range.offset = offset;
  range.flags = flags;
  range.memory = memory;
  range.buffer_id = buffer_id;
  ranges_.emplace(address, std::move(range));
  ++memory->mappings;
  return result;
}

// The records are taken out first: once the driver has unmapped, somebody else may map there.
CUresult VirtualMemory::Unmap(CUdeviceptr address, size_t size) {
  if (IsForbidden(address)) return CUDA_ERROR_INVALID_VALUE;
  Ranges taken;
  {
    const std::lock_guard lock(mutex_);
    for (auto it = ranges_.lower_bound(address); it != ranges_.end() && it->first - address < size;)
      taken.insert(ranges_.extract(it++));
  }
  const CUresult result = Driver().cuMemUnmap(address, size);
  std::vector<MemoryPtr> unused;
  {
    const std::lock_guard lock(mutex_);
    if (result != CUDA_SUCCESS) {
      ranges_.merge(taken);
      return result;
    }
    for (auto& [base, range] : taken) {
      --range.memory->mappings;
      if (MemoryPtr memory = DropIfUnusedLocked(range.memory)) unused.push_back(std::move(memory));
    }
  }
  for (const MemoryPtr& memory : unused) Driver().cuMemRelease(memory->real);
  return result;
}

CUresult VirtualMemory::SetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc* descriptors,
                                  size_t count, bool* exact) {
  *exact = true;
  if (IsForbidden(address)) return CUDA_ERROR_INVALID_VALUE;
  if (descriptors == nullptr) return Driver().cuMemSetAccess(address, size, descriptors, count);
  std::vector<CUmemAccessDesc> physical(descriptors, descriptors + count);
  for (CUmemAccessDesc& one : physical) one.location = ToPhysical(one.location);
  const CUresult result = Driver().cuMemSetAccess(address, size, physical.data(), count);
  if (result != CUDA_SUCCESS) return result;
  const std::lock_guard lock(mutex_);
  const auto first = FindRangeLocked(address);
  auto it = first == ranges_.end() ? ranges_.lower_bound(address) : ranges_.find(first->first);
  for (; it != ranges_.end() && it->first < address + size; ++it) {
    *exact = *exact && it->first >= address && it->first + it->second.size <= address + size;
    for (size_t i = 0; i < count; ++i)
      it->second.rights[{descriptors[i].location.type, descriptors[i].location.id}] = descriptors[i].flags;
  }
  return result;
}

CUresult VirtualMemory::GetAccess(unsigned long long* flags, const CUmemLocation* location,
                                  CUdeviceptr address) {
  if (location == nullptr) return Driver().cuMemGetAccess(flags, location, address);
  const bool ours = IsForbidden(address);
  const CUmemLocation physical = ToPhysical(*location);
  return Driver().cuMemGetAccess(flags, &physical, ours ? kUnknownAddress : address);
}

std::optional<VirtualMemory::View> VirtualMemory::Find(CUdeviceptr address) const {
  const std::lock_guard lock(mutex_);
  const auto found = FindRangeLocked(address);
  if (found == ranges_.end()) return std::nullopt;
  const MappedRange& range = found->second;
  return View{range.memory->block_id, range.buffer_id,
              static_cast<unsigned long long>(range.memory->prop.requestedHandleTypes), range.sync_memops};
}

void VirtualMemory::NoteSyncMemops(CUdeviceptr address, bool on) {
  const std::lock_guard lock(mutex_);
  const auto found = FindRangeLocked(address);
  if (found != ranges_.end()) ranges_.at(found->first).sync_memops = on;
}

}  // namespace stasis::vmm
