// ActiveMap: which bytes of the program's allocations hold something that the program can rely on.
//
// An allocation is active as a whole, until an allocator of the program notes a block in it; from then on its
// noted blocks are active and the rest is not. In doubt a byte is active: a block noted twice stays until it
// is freed twice, and an allocation that a block touches without lying in it is active as a whole for good.
//
// Not thread-safe, like any value.
#ifndef VMM_ACTIVE_MAP_H_
#define VMM_ACTIVE_MAP_H_

#include <cstdint>
#include <map>
#include <vector>

#include "base/task_protocol.h"

namespace stasis::vmm {

class ActiveMap {
 public:
  // Allocations do not overlap. With `trusts_notes` false notes in it change nothing.
  void AddAllocation(uint64_t base, uint64_t size, bool trusts_notes = true);
  // Its notes go with it. No-op for what is no allocation.
  void RemoveAllocation(uint64_t base);

  // False when the note makes no sense: no bytes, in no allocation or not in one alone, over another block,
  // or a free of what is no block.
  // `unwritten`: while frozen nothing can have written the block yet.
  bool AddBlock(uint64_t address, uint64_t size, bool unwritten = false);
  bool RemoveBlock(uint64_t address);

  // While frozen, unwritten blocks are left out of Ranges(), being none that somebody could rely on. bytes()
  // has them.
  void Freeze();
  void Thaw() { frozen_ = false; }

  uint64_t bytes() const { return bytes_; }
  // Sorted and disjoint; ranges that touch are one.
  std::vector<TaskRange> Ranges() const;

 private:
  struct NotedBlock {
    uint64_t size = 0;
    uint32_t count = 0;         // notes less frees
    uint64_t unwritten_in = 0;  // the freeze in which it was noted, 0: in none
  };
  using Blocks = std::map<uint64_t, NotedBlock>;  // by address
  struct Allocation {
    uint64_t size = 0;
    bool trusts_notes = true;
    bool managed = false;      // by an allocator that notes its blocks
    bool overlapping = false;  // some blocks may share bytes
    uint64_t noted_bytes = 0;  // in the union of the blocks
    Blocks blocks;
    uint64_t active_bytes() const { return managed && trusts_notes ? noted_bytes : size; }
  };
  using Allocations = std::map<uint64_t, Allocation>;  // by base

  static bool InsertBlock(Allocation& allocation, uint64_t address, uint64_t size, uint64_t unwritten_in);
  static void RecountBlocks(Allocation& allocation);
  // The allocation that contains `address`, or end().
  Allocations::iterator Containing(uint64_t address);
  void DistrustOverlapped(uint64_t begin, uint64_t end);
  // Runs `change` on the allocation and keeps the sum.
  template <typename Change>
  void Apply(Allocation& allocation, Change change) {
    bytes_ -= allocation.active_bytes();
    change();
    bytes_ += allocation.active_bytes();
  }

  Allocations allocations_;
  uint64_t bytes_ = 0;
  bool frozen_ = false;
  uint64_t freezes_ = 0;
};

}  // namespace stasis::vmm

#endif  // VMM_ACTIVE_MAP_H_
