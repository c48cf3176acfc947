#include "softgpu/driver/memory_suballoc.h"

#include <iterator>

#include "base/status.h"

namespace softgpu {

void SubAllocator::AddRegion(uint64_t base, uint64_t size) {
  STASIS_CHECK(size != 0 && base % grain_ == 0 && size % grain_ == 0);
  regions_.emplace(base, Region{size});
  free_.emplace(base, size);
  by_size_.emplace(size, base);
}

void SubAllocator::RemoveRegion(uint64_t base) {
  auto region = regions_.find(base);
  STASIS_CHECK(region != regions_.end() && region->second.live == 0);
  RemoveFree(free_.find(base));
  regions_.erase(region);
}

std::optional<uint64_t> SubAllocator::Allocate(uint64_t bytes) {
  bytes = (bytes + grain_ - 1) & ~(grain_ - 1);
  auto fit = by_size_.lower_bound({bytes, 0});
  if (bytes == 0 || fit == by_size_.end()) return std::nullopt;
  uint64_t base = fit->second;
  Take(free_.find(base), base, bytes);
  return base;
}

bool SubAllocator::AllocateAt(uint64_t base, uint64_t bytes) {
  bytes = (bytes + grain_ - 1) & ~(grain_ - 1);
  auto hole = free_.upper_bound(base);
  if (hole == free_.begin()) return false;
  --hole;
  if (base + bytes > hole->first + hole->second) return false;
  Take(hole, base, bytes);
  return true;
}

std::optional<uint64_t> SubAllocator::Free(uint64_t base) {
  auto block = blocks_.find(base);
  STASIS_CHECK(block != blocks_.end());
  uint64_t size = block->second;
  blocks_.erase(block);
  AddFree(base, size);
  auto region = FindRegion(base);
  return --region->second.live == 0 ? std::optional<uint64_t>(region->first) : std::nullopt;
}

uint64_t SubAllocator::BlockSize(uint64_t base) const {
  auto block = blocks_.find(base);
  return block == blocks_.end() ? 0 : block->second;
}

std::optional<std::pair<uint64_t, uint64_t>> SubAllocator::RegionOf(uint64_t address) const {
  auto region = regions_.upper_bound(address);
  if (region == regions_.begin()) return std::nullopt;
  --region;
  if (address >= region->first + region->second.size) return std::nullopt;
  return std::make_pair(region->first, region->second.size);
}

std::map<uint64_t, SubAllocator::Region>::iterator SubAllocator::FindRegion(uint64_t address) {
  auto region = regions_.upper_bound(address);
  STASIS_CHECK(region != regions_.begin());
  return std::prev(region);
}

void SubAllocator::AddFree(uint64_t base, uint64_t size) {
  auto region = FindRegion(base);
  uint64_t region_end = region->first + region->second.size;
  auto next = free_.find(base + size);
  if (next != free_.end() && base + size < region_end) {
    size += next->second;
    RemoveFree(next);
  }
  auto after = free_.lower_bound(base);
  if (after != free_.begin()) {
    auto previous = std::prev(after);
    if (previous->first >= region->first && previous->first + previous->second == base) {
      base = previous->first;
      size += previous->second;
      RemoveFree(previous);
    }
  }
  free_.emplace(base, size);
  by_size_.emplace(size, base);
}

void SubAllocator::RemoveFree(std::map<uint64_t, uint64_t>::iterator hole) {
  by_size_.erase({hole->second, hole->first});
  free_.erase(hole);
}

void SubAllocator::Take(std::map<uint64_t, uint64_t>::iterator hole, uint64_t base, uint64_t bytes) {
  uint64_t hole_base = hole->first, hole_end = hole->first + hole->second;
  RemoveFree(hole);
  auto add = [this](uint64_t from, uint64_t to) {
    if (from == to) return;
    free_.emplace(from, to - from);
    by_size_.emplace(to - from, from);
  };
  add(hole_base, base);
  add(base + bytes, hole_end);
  blocks_.emplace(base, bytes);
  ++FindRegion(base)->second.live;
}

}  // namespace softgpu
