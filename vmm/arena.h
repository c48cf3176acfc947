// Arena: device memory of one owner (a context, a pool) on one device, cut into allocations.
//
// An arena reserves large regions of addresses and maps physical memory only where an allocation lies, so
// that allocations may follow each other without regard to the 2 MiB granularity. What it costs:
//   - every page of 2 MiB that is mapped holds at least one byte of a live allocation, except one spare page
//     and, in extents made for small allocations, at most a 64th of the arena (kGrowthShare) in advance;
//   - allocations that are no multiple of a page are packed one behind the other and share their border
//     pages; those that are a multiple lie on pages of their own. Without frees an arena wastes less than
//     a page, a 64th, and the rounding of each allocation to kAlignment.
// Pages that an allocation covers as a whole form an extent of its own, which goes back to the driver with
// it; border pages are extents that go back when their last user has gone.
//
// Not thread-safe: all methods run under the owner's lock. None of them waits for device work: what must be
// unmapped is handed out, and the caller discards it outside the lock and says so by Discarded().
#ifndef VMM_ARENA_H_
#define VMM_ARENA_H_

#include <cuda.h>

#include <cstdint>
#include <map>
#include <vector>

#include "base/status.h"
#include "vmm/extent.h"
#include "vmm/range_set.h"
#include "vmm/reservation.h"

namespace stasis::vmm {

class Arena {
 public:
  // Of every address and size. CUDA promises 256 bytes and its allocator gives 512, which programs rely on.
  static constexpr uint64_t kAlignment = 512;
  static constexpr uint64_t kGrowthShare = 64;
  static constexpr uint64_t kMaxGrowth = 16ull << 20;

  // `device` is a virtual ordinal. With `retains`, free memory stays until TakeFree(), as in a pool.
  explicit Arena(int device, bool retains = false) : device_(device), retains_(retains) {
    rights_[device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  }
  // Gives the addresses back, unless an extent is left that the driver would not unmap.
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  int device() const { return device_; }

  // The driver's error when there is no memory; nothing has changed then, except that `discarded` may have
  // something for the caller to discard.
  CUresult Allocate(uint64_t bytes, uint64_t* address, std::vector<Extent>* discarded);
  // The same from memory that is mapped already; false when there is no room. Calls no driver.
  bool AllocateMapped(uint64_t bytes, uint64_t* address);
  // Bytes that an allocation of `bytes` occupies.
  static uint64_t Capacity(uint64_t bytes) { return RoundUp(bytes, kAlignment); }
  // Ends the allocation at `address`; appends the extents that nobody uses any more.
  void Free(uint64_t address, uint64_t bytes, std::vector<Extent>* discarded);
  // The spare page and all else that is wholly free, as long as more than `keep` bytes are mapped; of
  // extents with an id above `after` alone.
  void TakeFree(std::vector<Extent>* discarded, uint64_t keep = 0, uint64_t after = 0);
  // Everything, for when the owner has gone; allocations that are freed later are none any more.
  void TakeAll(std::vector<Extent>* discarded);
  // The caller has tried to discard an extent that was taken out; what is still mapped is kept as free
  // memory.
  void Discarded(const Extent& extent);

  // Rights of another device, for extents to come; returns those that exist.
  std::vector<Extent> SetRights(int device, CUmemAccess_flags flags);
  const AccessRights& rights() const { return rights_; }
  bool HasExtent(uint64_t id, uint64_t address) const;
  // Whether the address is one that allocations of this arena may get.
  bool Covers(uint64_t address) const;

  // What lies behind an allocation, in the order of addresses.
  std::vector<Extent*> ExtentsOf(uint64_t address, uint64_t bytes);

  // Physical bytes, and those of whole pages that nobody uses.
  uint64_t mapped_bytes() const { return mapped_bytes_; }
  uint64_t FreePageBytes() const;

  // --- For the pause; no allocation or free is under way.
  std::map<uint64_t, Extent>& extents() { return extents_; }  // by address
  // Discards all physical memory. With `hold`, gives the addresses back to the driver too and holds them with
  // pages of the process; afterwards nothing counts as mapped, since the driver is about to be closed. Goes
  // on past errors and reports the first.
  Status Detach(bool hold);
  // Holds its addresses, as far as that has not been done.
  Status Hold();
  // Takes the addresses back from the hold; no-op where they are reserved.
  Status Reserve();

 private:
  struct Plan {
    uint64_t start = 0;  // of the allocation
    Range body, border;  // what must be mapped
  };

  CUresult AddRegion(uint64_t bytes);
  bool FindPlan(uint64_t size, Plan* plan) const;
  Plan PlanPages(uint64_t size, Range run) const;
  Plan PlanPacked(uint64_t size, Range run) const;
  uint64_t Growth(uint64_t size) const;
  CUresult MapPlan(const Plan& plan, std::vector<Extent>* discarded);
  void Adopt(Extent extent);
  void Vacate(std::map<uint64_t, Extent>::iterator where, std::vector<Extent>* discarded);
  void MaybeVacate(std::map<uint64_t, Extent>::iterator where, std::vector<Extent>* discarded);
  bool WhollyFree(const Extent& extent) const {
    return free_.Contains({extent.address, extent.address + extent.size});
  }
  std::map<uint64_t, Extent>::iterator ExtentAt(uint64_t address);
  void DropEmptyRegions();

  const int device_;
  const bool retains_;
  AccessRights rights_;
  std::map<uint64_t, Reservation> regions_;  // by address
  std::map<uint64_t, Extent> extents_;
  RangeSet free_;          // mapped, in no allocation
  RangeSet unmapped_;      // reserved only; whole pages
  uint64_t frontier_ = 0;  // where the last border page ends
  uint64_t spare_ = 0;     // address of an extent that may be kept though free
  uint64_t mapped_bytes_ = 0, border_bytes_ = 0;
  bool gone_ = false;
};

}  // namespace stasis::vmm

#endif  // VMM_ARENA_H_
