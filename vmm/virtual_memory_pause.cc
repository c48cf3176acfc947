// What a pause does with the program's own virtual memory.
#include <sys/mman.h>

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <utility>

#include "vmm/device_map.h"
#include "vmm/extent.h"
#include "vmm/real_driver.h"
#include "vmm/sync_memops.h"
#include "vmm/virtual_memory.h"

namespace stasis::vmm {
namespace {

void KeepFirst(Status* first, Status status) {
  if (first->ok()) *first = std::move(status);
}

uint32_t TraitsOf(const CUmemAllocationProp& prop) {
  uint32_t traits = 0;
  if (prop.allocFlags.compressionType == CU_MEM_ALLOCATION_COMP_GENERIC) traits |= kTraitCompressed;
  if (prop.allocFlags.gpuDirectRDMACapable != 0) traits |= kTraitRdma;
  return traits;
}

// Memory of the host, mapped for the host as long as the object lives.
class HostView {
 public:
  HostView(CUmemGenericAllocationHandle handle, uint64_t size, const CUmemLocation& location) : size_(size) {
    CUresult result = Driver().cuMemAddressReserve(&address_, size, 0, 0, 0);
    if (result == CUDA_SUCCESS) result = Driver().cuMemMap(address_, size, 0, handle, 0);
    mapped_ = result == CUDA_SUCCESS;
    CUmemAccessDesc access{};
    access.location = location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (mapped_) result = Driver().cuMemSetAccess(address_, size, &access, 1);
    status_ = DriverStatus(result, "map memory of the host");
  }
  ~HostView() {
    if (mapped_) Driver().cuMemUnmap(address_, size_);
    if (address_ != 0) Driver().cuMemAddressFree(address_, size_);
  }
  HostView(const HostView&) = delete;
  const Status& status() const { return status_; }
  void* bytes() const { return reinterpret_cast<void*>(address_); }

 private:
  const uint64_t size_;
  CUdeviceptr address_ = 0;
  bool mapped_ = false;
  Status status_;
};

}  // namespace

std::vector<VirtualMemory::MemoryPtr> VirtualMemory::All() const {
  const std::lock_guard lock(mutex_);
  std::vector<MemoryPtr> all;
  for (const auto& [handle, memory] : memories_) all.push_back(memory);
  return all;
}

VirtualMemory::MemoryPtr VirtualMemory::FindId(uint64_t id) const {
  for (const MemoryPtr& memory : All())
    if (memory->id == id && memory->carried == CarriedBy::kGhost) return memory;
  return nullptr;
}

// Memory that is mapped as a whole is named by where that is, the rest by addresses that nothing has.
void VirtualMemory::PlaceExtents() {
  ReleaseLeftovers();
  const std::lock_guard lock(mutex_);
  for (const auto& [handle, memory] : memories_) memory->extent_address = 0;
  for (const auto& [address, range] : ranges_)
    if (range.memory->extent_address == 0 && range.size == range.memory->size)
      range.memory->extent_address = address;
  uint64_t next = kTaskUnmappedBase;
  for (const auto& [handle, memory] : memories_) {
    if (memory->extent_address != 0) continue;
    memory->extent_address = next;
    next += memory->size;
  }
}

std::vector<TaskExtent> VirtualMemory::Extents() const {
  std::vector<TaskExtent> extents;
  for (const MemoryPtr& memory : All())
    if (memory->carried == CarriedBy::kGhost)
      extents.push_back({memory->id, memory->prop.location.id, memory->extent_address, memory->size,
                         TraitsOf(memory->prop), memory->share});
  return extents;
}

bool VirtualMemory::HasExtent(uint64_t id) const { return FindId(id) != nullptr; }

Result<Fd> VirtualMemory::ExportExtent(uint64_t id) const {
  const MemoryPtr memory = FindId(id);
  if (memory == nullptr) return Errorf(StatusCode::kNotFound, "no device memory %" PRIu64, id);
  if (!memory->created)
    return Errorf(StatusCode::kFailedPrecondition, "device memory %" PRIu64 " is not attached", id);
  return ExportHandle(memory->real);
}

Status VirtualMemory::SaveContents(PhysicalMemory& memory) {
  if (memory.contents.valid()) return {};  // what a failed attempt to come back has not used
  const HostView view(memory.real, memory.size, memory.prop.location);
  RETURN_IF_ERROR(view.status());
  ASSIGN_OR_RETURN(memory.contents, Mapping::Anonymous(memory.size));
  std::memcpy(memory.contents.bytes(), view.bytes(), memory.size);
  return {};
}

Status VirtualMemory::Detach(bool hold) {
  Status first;
  const std::vector<MemoryPtr> all = All();
  for (const MemoryPtr& memory : all) memory->stayed = false;
  for (const MemoryPtr& memory : all)
    if (memory->carried == CarriedBy::kProcess && memory->created) KeepFirst(&first, SaveContents(*memory));
  for (auto& [address, range] : ranges_) {
    if (!range.mapped || range.memory->carried == CarriedBy::kDriver) continue;
    Status unmapped = DriverStatus(Driver().cuMemUnmap(address, range.size), "cuMemUnmap");
    range.mapped = !hold && !unmapped.ok();
    range.memory->stayed = range.memory->stayed || range.mapped;
    KeepFirst(&first, std::move(unmapped));
  }
  for (const MemoryPtr& memory : all) {
    if (!memory->created || memory->stayed || memory->carried == CarriedBy::kDriver) continue;
    Status released = DriverStatus(Driver().cuMemRelease(memory->real), "cuMemRelease");
    memory->stayed = memory->created = !hold && !released.ok();
    KeepFirst(&first, std::move(released));
  }
  if (hold) KeepFirst(&first, Hold());
  return first;
}

Status VirtualMemory::Hold() {
  Status first;
  for (auto& [address, reservation] : reservations_) KeepFirst(&first, HoldReservation(address, reservation));
  return first;
}

Status VirtualMemory::ImportExtent(uint64_t id, const Fd& fd) {
  const MemoryPtr memory = FindId(id);
  if (memory == nullptr) return Errorf(StatusCode::kNotFound, "no device memory %" PRIu64, id);
  if (std::exchange(memory->stayed, false)) return {};
  if (memory->created)
    return Errorf(StatusCode::kFailedPrecondition, "device memory %" PRIu64 " is attached already", id);
  RETURN_IF_ERROR(ImportHandle(fd, &memory->real));
  memory->created = true;
  return {};
}

Status VirtualMemory::MakeAgain(PhysicalMemory& memory) {
  if (!memory.created && memory.carried == CarriedBy::kGhost)
    return Errorf(StatusCode::kFailedPrecondition, "device memory %" PRIu64 " was not imported", memory.id);
  if (!memory.created) {
    CUmemAllocationProp prop = memory.prop;
    prop.location = ToPhysicalLocation(prop.location);
    RETURN_IF_ERROR(DriverStatus(Driver().cuMemCreate(&memory.real, memory.size, &prop, 0), "cuMemCreate"));
    memory.created = true;
  }
  if (!memory.contents.valid()) return {};
  const HostView view(memory.real, memory.size, memory.prop.location);
  RETURN_IF_ERROR(view.status());
  std::memcpy(view.bytes(), memory.contents.bytes(), memory.size);
  memory.contents.Reset();
  return {};
}

Status VirtualMemory::MapAgain(uint64_t address, MappedRange& range) {
  if (range.mapped) return {};
  RETURN_IF_ERROR(DriverStatus(
      Driver().cuMemMap(address, range.size, range.offset, range.memory->real, range.flags), "cuMemMap"));
  range.mapped = true;
  std::vector<CUmemAccessDesc> descriptors;
  for (const auto& [location, flags] : range.rights) {
    CUmemAccessDesc one{};
    one.location.type = location.first;
    one.location.id = location.second;
    one.location = ToPhysicalLocation(one.location);
    one.flags = flags;
    if (flags != CU_MEM_ACCESS_FLAGS_PROT_NONE) descriptors.push_back(one);
  }
  if (!descriptors.empty())
    RETURN_IF_ERROR(
        DriverStatus(Driver().cuMemSetAccess(address, range.size, descriptors.data(), descriptors.size()),
                     "cuMemSetAccess"));
  return range.sync_memops ? TellSyncMemops(address, true) : Status();
}

Status VirtualMemory::Reattach() {
  for (auto& [address, reservation] : reservations_) RETURN_IF_ERROR(ReserveAgain(address, reservation));
  for (const MemoryPtr& memory : All()) RETURN_IF_ERROR(MakeAgain(*memory));
  for (auto& [address, range] : ranges_) RETURN_IF_ERROR(MapAgain(address, range));
  return {};
}

void VirtualMemory::FillStatus(TaskStatus* status) const {
  for (const MemoryPtr& memory : All()) {
    ++status->allocations;
    if (memory->carried == CarriedBy::kProcess) {
      status->host_bytes += memory->size;
      continue;
    }
    ++status->extents;
    status->allocated_bytes += memory->size;
    status->extent_bytes += memory->size;
    status->active_bytes += memory->size;
  }
}

}  // namespace stasis::vmm
