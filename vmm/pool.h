// One memory pool: its settings, what it counts, and which of its memory a stream may have.
//
// A block freed in a stream goes at once to later allocations of that stream, and to others once the device
// has passed the free.
//
// Not thread-safe: everything under the lock of Memory. A pool that is `forwarded` has no arena, and its
// settings and counters are the driver's.
#ifndef VMM_POOL_H_
#define VMM_POOL_H_

#include <cuda.h>

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "vmm/arena.h"
#include "vmm/stream_place.h"

namespace stasis::vmm {

// A free that its stream may not have reached.
struct PendingFree {
  uint64_t base = 0, occupied = 0;
  unsigned long long stream_id = 0;
  CUcontext context = nullptr;  // visible; whose event it is
  CUevent event = nullptr;      // null: it has been reached
};

struct Pool {
  struct Counter {
    uint64_t current = 0, high = 0;
    void Set(uint64_t value) {
      current = value;
      if (value > high) high = value;
    }
  };

  // CUDA_ERROR_INVALID_VALUE for an attribute that is not known, or not one to be set. The driver has
  // accepted the value.
  CUresult Store(CUmemPool_attribute attribute, const void* value);
  CUresult Load(CUmemPool_attribute attribute, void* value) const;

  // Memory for an allocation in the stream `place`; `occupied` is what goes back with it. The driver's error
  // when there is none. `discarded`: as of Arena::Allocate.
  CUresult Take(size_t bytes, const StreamPlace& place, uint64_t* base, uint64_t* occupied,
                std::vector<Extent>* discarded);
  // What nothing uses any more is free for every stream.
  void GiveBack(const PendingFree& free);
  // Gives back the pending frees that the device has passed, or all.
  void Fold(bool all);

  CUmemoryPool visible = nullptr, real = nullptr;  // `real` null: destroyed, or taken down by a pause
  int device = -1;                                 // virtual ordinal; -1: of no device
  CUmemPoolProps props{};                          // of the program: virtual ordinal
  bool is_default = false, forwarded = false, destroyed = false;
  std::shared_ptr<Arena> arena;
  std::list<PendingFree> pending;
  Counter used, reserved;
  uint64_t release_threshold = 0;
  int follow_events = 1, opportunistic = 1, internal_dependencies = 1;
  uint64_t live = 0;  // blocks in the program's hands

 private:
  bool ReuseOfStream(uint64_t size, unsigned long long stream_id, uint64_t* base, uint64_t* occupied);
  bool ReuseByWaiting(uint64_t size, const StreamPlace& place, uint64_t* base, uint64_t* occupied);
};

}  // namespace stasis::vmm

#endif  // VMM_POOL_H_
