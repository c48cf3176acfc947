#include "vmm/active_map.h"

#include <algorithm>
#include <iterator>

namespace stasis::vmm {
namespace {

// Joins what comes in the order of addresses.
class RangeJoiner {
 public:
  void Add(uint64_t begin, uint64_t end) {
    if (!ranges_.empty() && begin <= end_) {
      end_ = std::max(end_, end);
      ranges_.back().size = end_ - ranges_.back().address;
      return;
    }
    ranges_.push_back({begin, end - begin});
    end_ = end;
  }
  std::vector<TaskRange> Take() { return std::move(ranges_); }

 private:
  std::vector<TaskRange> ranges_;
  uint64_t end_ = 0;  // of the last range
};

}  // namespace

void ActiveMap::AddAllocation(uint64_t base, uint64_t size, bool trusts_notes) {
  RemoveAllocation(base);
  Allocation& allocation = allocations_[base];
  allocation.size = size;
  allocation.trusts_notes = trusts_notes;
  bytes_ += size;
}

void ActiveMap::RemoveAllocation(uint64_t base) {
  auto found = allocations_.find(base);
  if (found == allocations_.end()) return;
  bytes_ -= found->second.active_bytes();
  allocations_.erase(found);
}

ActiveMap::Allocations::iterator ActiveMap::Containing(uint64_t address) {
  auto next = allocations_.upper_bound(address);
  if (next == allocations_.begin()) return allocations_.end();
  auto found = std::prev(next);
  return address - found->first < found->second.size ? found : allocations_.end();
}

void ActiveMap::DistrustOverlapped(uint64_t begin, uint64_t end) {
  auto first = Containing(begin);
  if (first == allocations_.end()) first = allocations_.lower_bound(begin);
  for (; first != allocations_.end() && first->first < end; ++first) {
    Allocation& allocation = first->second;
    Apply(allocation, [&allocation] { allocation.trusts_notes = false; });
  }
}

void ActiveMap::RecountBlocks(Allocation& allocation) {
  uint64_t sum = 0, joined = 0, end = 0;
  for (const auto& [address, block] : allocation.blocks) {
    const uint64_t block_end = address + block.size;
    sum += block.size;
    if (block_end > end) joined += block_end - std::max(address, end);
    end = std::max(end, block_end);
  }
  allocation.noted_bytes = joined;
  allocation.overlapping = sum != joined;
}

// False when it is over another block.
bool ActiveMap::InsertBlock(Allocation& allocation, uint64_t address, uint64_t size, uint64_t unwritten_in) {
  Blocks& blocks = allocation.blocks;
  auto next = blocks.lower_bound(address);
  const bool hits_next = next != blocks.end() && next->first - address < size;
  const bool hits_previous =
      next != blocks.begin() && address - std::prev(next)->first < std::prev(next)->second.size;
  NotedBlock& block = blocks[address];
  block.size = std::max(block.size, size);
  if (block.count++ == 0) block.unwritten_in = unwritten_in;
  if (!hits_next && !hits_previous && !allocation.overlapping) {
    allocation.noted_bytes += size;
    return true;
  }
  RecountBlocks(allocation);
  return !hits_next && !hits_previous;
}

void ActiveMap::Freeze() {
  if (!frozen_) ++freezes_;
  frozen_ = true;
}

bool ActiveMap::AddBlock(uint64_t address, uint64_t size, bool unwritten) {
  if (size == 0) return false;
  auto found = Containing(address);
  if (found == allocations_.end() || size > found->second.size - (address - found->first)) {
    DistrustOverlapped(address, address + size < address ? UINT64_MAX : address + size);
    return false;
  }
  Allocation& allocation = found->second;
  bool makes_sense = true;
  Apply(allocation, [&] {
    allocation.managed = true;
    makes_sense = InsertBlock(allocation, address, size, frozen_ && unwritten ? freezes_ : 0);
  });
  return makes_sense;
}

bool ActiveMap::RemoveBlock(uint64_t address) {
  auto found = Containing(address);
  if (found == allocations_.end()) return false;
  Allocation& allocation = found->second;
  auto block = allocation.blocks.find(address);
  if (block == allocation.blocks.end()) return false;
  if (--block->second.count > 0) return true;
  Apply(allocation, [&] {
    allocation.noted_bytes -= block->second.size;
    allocation.blocks.erase(block);
    if (allocation.overlapping) RecountBlocks(allocation);
  });
  return true;
}

std::vector<TaskRange> ActiveMap::Ranges() const {
  RangeJoiner joiner;
  for (const auto& [base, allocation] : allocations_) {
    if (!allocation.managed || !allocation.trusts_notes) {
      joiner.Add(base, base + allocation.size);
      continue;
    }
    for (const auto& [address, block] : allocation.blocks)
      if (!frozen_ || block.unwritten_in != freezes_) joiner.Add(address, address + block.size);
  }
  return joiner.Take();
}

}  // namespace stasis::vmm
