// Managed memory and the hints about it.
#include <algorithm>
#include <utility>

#include "softgpu/driver/memory_manager.h"

namespace softgpu {

CUresult MemoryManager::AllocateManaged(CUcontext context, int device, uint64_t bytes, unsigned flags,
                                        CUdeviceptr* address, bool of_module) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t size = RoundUp(bytes, kLargePage);
  if (size < bytes || size >> 47 != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  stasis::Result<uint64_t> base =
      of_module ? ReserveModuleAddresses(size) : ReserveAddresses(size, kLargePage, 0);
  if (!base.ok()) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!MapHostPages(*base, size).ok()) {
    ReleaseAddresses(*base, size);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  std::lock_guard lock(mutex_);
  for (const auto& map : access_maps_) map->Set(*base, size, exec::Access::kReadWrite);
  advice_.emplace(*base, std::make_pair(*base + size, RangeAdvice{}));
  InsertBlockLocked({.kind = BlockKind::kManaged,
                     .base = *base,
                     .size = bytes,
                     .context = context,
                     .device = device,
                     .flags = flags});
  *address = *base;
  return CUDA_SUCCESS;
}

bool MemoryManager::IsManaged(CUdeviceptr address, uint64_t size) const {
  std::lock_guard lock(mutex_);
  const Block* block = BlockOfLocked(address);
  return block != nullptr && block->kind == BlockKind::kManaged && size <= block->end() - address;
}

// The first part that begins at or behind `address`, after a part that contains it was cut in two there.
std::map<uint64_t, std::pair<uint64_t, RangeAdvice>>::iterator MemoryManager::SplitAdviceLocked(
    uint64_t address) {
  auto next = advice_.lower_bound(address);
  if (next != advice_.end() && next->first == address) return next;
  if (next == advice_.begin()) return next;
  auto part = std::prev(next);
  if (part->second.first <= address) return next;
  auto rest = advice_.emplace_hint(next, address, part->second);
  part->second.first = address;
  return rest;
}

CUresult MemoryManager::ChangeAdvice(CUdeviceptr address, uint64_t size,
                                     const std::function<void(RangeAdvice&)>& change) {
  if (size == 0 || !IsManaged(address, size)) return CUDA_ERROR_INVALID_VALUE;
  // Hints go by whole pages: those that the range touches.
  uint64_t first = address / kPageBytes * kPageBytes, last = RoundUp(address + size, kPageBytes);
  std::lock_guard lock(mutex_);
  SplitAdviceLocked(last);
  for (auto part = SplitAdviceLocked(first); part != advice_.end() && part->first < last; ++part) {
    change(part->second.second);
  }
  return CUDA_SUCCESS;
}

CUresult MemoryManager::Advise(CUdeviceptr address, uint64_t size, CUmem_advise advice,
                               CUmemLocation location) {
  auto same = [&](const CUmemLocation& other) {
    return other.type == location.type && other.id == location.id;
  };
  return ChangeAdvice(address, size, [&](RangeAdvice& part) {
    switch (advice) {
      case CU_MEM_ADVISE_SET_READ_MOSTLY:
        part.read_mostly = true;
        break;
      case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        part.read_mostly = false;
        break;
      case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        part.preferred = location;
        break;
      case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        part.preferred = RangeAdvice{}.preferred;
        break;
      case CU_MEM_ADVISE_SET_ACCESSED_BY:
        if (std::none_of(part.accessed_by.begin(), part.accessed_by.end(), same)) {
          part.accessed_by.push_back(location);
        }
        break;
      case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        std::erase_if(part.accessed_by, same);
        break;
    }
  });
}

CUresult MemoryManager::NotePrefetch(CUdeviceptr address, uint64_t size, CUmemLocation location) {
  return ChangeAdvice(address, size, [&](RangeAdvice& part) { part.last_prefetch = location; });
}

CUresult MemoryManager::GetAdvice(CUdeviceptr address, uint64_t size, std::vector<RangeAdvice>* parts) const {
  if (size == 0 || !IsManaged(address, size)) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(mutex_);
  auto part = advice_.upper_bound(address);
  if (part != advice_.begin()) --part;
  for (; part != advice_.end() && part->first < address + size; ++part) {
    if (part->second.first > address) parts->push_back(part->second.second);
  }
  return CUDA_SUCCESS;
}

}  // namespace softgpu
