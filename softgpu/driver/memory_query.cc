// What lies at an address.
#include <algorithm>
#include <utility>

#include "softgpu/driver/memory_manager.h"

namespace softgpu {
namespace {

MemoryView ViewOfBlock(const Block& block) {
  MemoryView view;
  view.base = block.base;
  view.size = block.size;
  view.device = block.device;
  view.context = block.context;
  view.sync_memops = block.sync_memops;
  view.readable = view.writable = true;
  switch (block.kind) {
    case BlockKind::kHost:
    case BlockKind::kRegistered:
      view.where = MemoryView::Where::kPinned;
      break;
    case BlockKind::kManaged:
      view.where = MemoryView::Where::kManaged;
      break;
    default:
      view.where = MemoryView::Where::kDevice;
      break;
  }
  return view;
}

MemoryView ViewOfMapping(uint64_t base, const VmmMapping& mapping) {
  MemoryView view;
  view.base = base;
  view.size = mapping.size;
  view.device = mapping.physical->device();
  view.where = view.device < 0 ? MemoryView::Where::kPinned : MemoryView::Where::kDevice;
  view.sync_memops = mapping.sync_memops;
  auto note = [&view](CUmemAccess_flags flags) {
    view.readable |= flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    view.writable |= flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  };
  std::for_each(mapping.device_access.begin(), mapping.device_access.end(), note);
  note(mapping.host_access);
  return view;
}

}  // namespace

const Block* MemoryManager::BlockOfLocked(uint64_t address) const {
  auto found = blocks_.upper_bound(address);
  if (found == blocks_.begin()) return nullptr;
  const Block& block = std::prev(found)->second;
  return address < block.end() ? &block : nullptr;
}

std::optional<Block> MemoryManager::FindBlock(uint64_t address) const {
  std::lock_guard lock(mutex_);
  const Block* block = BlockOfLocked(address);
  return block == nullptr ? std::nullopt : std::optional<Block>(*block);
}

std::optional<MemoryManager::MappingInfo> MemoryManager::FindMapping(uint64_t address) const {
  std::lock_guard lock(mutex_);
  auto reservation = reservations_.upper_bound(address);
  if (reservation == reservations_.begin()) return std::nullopt;
  --reservation;
  const auto& mappings = reservation->second.mappings;
  auto found = mappings.upper_bound(address);
  if (found == mappings.begin()) return std::nullopt;
  --found;
  if (address >= found->first + found->second.size) return std::nullopt;
  return MappingInfo{found->second, found->first, reservation->first, reservation->second.size};
}

std::optional<MemoryManager::ReservationInfo> MemoryManager::FindReservation(uint64_t address) const {
  std::lock_guard lock(mutex_);
  auto found = reservations_.upper_bound(address);
  if (found == reservations_.begin()) return std::nullopt;
  --found;
  if (address >= found->first + found->second.size) return std::nullopt;
  return ReservationInfo{found->first, found->second.size, found->second.id};
}

MemoryView MemoryManager::View(uint64_t address) const {
  {
    std::lock_guard lock(mutex_);
    const Block* block = BlockOfLocked(address);
    if (block != nullptr) return ViewOfBlock(*block);
  }
  std::optional<MappingInfo> mapping = FindMapping(address);
  if (mapping) return ViewOfMapping(mapping->address, mapping->mapping);
  MemoryView view;
  std::optional<ReservationInfo> reservation = FindReservation(address);
  if (reservation) {
    view.where = MemoryView::Where::kReserved;
    view.base = reservation->base;
    view.size = reservation->size;
  }
  return view;
}

bool MemoryManager::Covers(uint64_t address, uint64_t size) const {
  if (address + size < address) return false;
  uint64_t end = address + size;
  for (;;) {
    MemoryView view = View(address);
    if (view.where == MemoryView::Where::kUnknown || view.where == MemoryView::Where::kReserved) return false;
    address = view.base + view.size;
    if (address >= end) return true;
    // Only mappings of one reservation continue each other; two blocks that touch are still two.
    if (!FindReservation(view.base)) return false;
  }
}

bool MemoryManager::Reachable(uint64_t address, uint64_t size) const {
  auto by = [address, size](const std::unique_ptr<exec::AccessMap>& map) {
    for (uint64_t done = 0; done < size; done += kLargePage) {
      uint64_t bytes = std::min(kLargePage, size - done);
      if (!map->Allows(address + done, static_cast<unsigned>(bytes), false)) return false;
    }
    return true;
  };
  return std::any_of(access_maps_.begin(), access_maps_.end(), by);
}

CUresult MemoryManager::SetSyncMemops(uint64_t address, bool on) {
  std::lock_guard lock(mutex_);
  const Block* block = BlockOfLocked(address);
  if (block != nullptr) {
    blocks_.at(block->base).sync_memops = on;
    return CUDA_SUCCESS;
  }
  for (auto& [base, reservation] : reservations_) {
    for (auto& [at, mapping] : reservation.mappings) {
      if (address < at || address >= at + mapping.size) continue;
      mapping.sync_memops = on;
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace softgpu
