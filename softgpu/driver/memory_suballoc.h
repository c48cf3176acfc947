// Cuts regions of address space into blocks: the bookkeeping behind slabs of small allocations and behind
// pools.
//
// Knows addresses only, no memory. Best fit, neighbours are merged at once, blocks never span two regions.
// Not thread-safe: its owner's lock guards it.
#ifndef SOFTGPU_DRIVER_MEMORY_SUBALLOC_H_
#define SOFTGPU_DRIVER_MEMORY_SUBALLOC_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace softgpu {

class SubAllocator {
 public:
  // Every block is a multiple of `grain` bytes (a power of two) and starts at a multiple of it.
  explicit SubAllocator(uint64_t grain) : grain_(grain) {}

  // The region's base and size are multiples of the grain; regions do not overlap.
  void AddRegion(uint64_t base, uint64_t size);
  // Needs a region without live blocks.
  void RemoveRegion(uint64_t base);
  // The base of a block of at least `bytes`; nothing when no region has room.
  std::optional<uint64_t> Allocate(uint64_t bytes);
  // True when [base, base+bytes) is free, which is then taken.
  bool AllocateAt(uint64_t base, uint64_t bytes);
  // Needs a live block's base. The base of the region when its last block has gone, else nothing.
  std::optional<uint64_t> Free(uint64_t base);

  // Bytes that the block at `base` takes, 0 when there is none.
  uint64_t BlockSize(uint64_t base) const;
  // Base and size of the region that holds `address`.
  std::optional<std::pair<uint64_t, uint64_t>> RegionOf(uint64_t address) const;
  bool empty() const { return regions_.empty(); }
  const std::map<uint64_t, uint64_t>& blocks() const { return blocks_; }

 private:
  struct Region {
    uint64_t size;
    uint64_t live = 0;  // blocks
  };
  std::map<uint64_t, Region>::iterator FindRegion(uint64_t address);
  void AddFree(uint64_t base, uint64_t size);
  void RemoveFree(std::map<uint64_t, uint64_t>::iterator hole);
  void Take(std::map<uint64_t, uint64_t>::iterator hole, uint64_t base, uint64_t bytes);

  const uint64_t grain_;
  std::map<uint64_t, Region> regions_;               // by base
  std::map<uint64_t, uint64_t> blocks_;              // base -> size
  std::map<uint64_t, uint64_t> free_;                // base -> size
  std::set<std::pair<uint64_t, uint64_t>> by_size_;  // {size, base} of every free hole
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_MEMORY_SUBALLOC_H_
