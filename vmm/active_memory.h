// What of the program's device memory is active, how that changes, and when it is least. One per process.
//
// Thread-safe; the lock is a leaf, held for no driver call, and may be taken below the lock of Memory.
#ifndef VMM_ACTIVE_MEMORY_H_
#define VMM_ACTIVE_MEMORY_H_

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "base/task_protocol.h"
#include "vmm/active_map.h"
#include "vmm/memory_cycle.h"

namespace stasis::vmm {

class ActiveMemory {
 public:
  static ActiveMemory& Get();

  // Of the program's calls. With `trusts_notes` false the allocation has lost what was noted in it.
  void AllocationMade(uint64_t base, uint64_t size, bool trusts_notes);
  void AllocationGone(uint64_t base);

  // Of the program's allocators: include/stasis/memory.h.
  // `gated`: the caller cannot make the device write the block before the gate opens, if that is shut.
  void NoteAlloc(uint64_t address, uint64_t size, bool gated);
  void NoteFree(uint64_t address);
  void NoteIteration();

  // From here, the gate being shut, to Thaw(), Ranges() does not grow by what gated callers note. Thaw()
  // comes before the gate opens.
  void Freeze();
  void Thaw();

  uint64_t bytes() const;
  std::vector<TaskRange> Ranges() const;
  std::optional<MemoryCycle::Learned> Learn() const;
  void FillStatus(TaskStatus* status) const;
  // Boundaries that the program has told.
  uint64_t Iterations() const;

  // Called under the lock by the thread whose allocation, free or note has led to the low point, to shut the
  // gate; then freezes. False when the program cannot be stopped there; then the next one counts.
  using Reached = bool (*)(void* context);
  // Calls `reached` until it returns true, first at once if active memory is low already. Low is what the
  // latest cycles have come down to, with a little tolerance; while no cycle has been seen, the next boundary
  // that the program tells. One watch at a time.
  void Watch(Reached reached, void* context);
  // `reached` is called no more when this has returned.
  void StopWatching();

  // In a child, whose parent had no device memory: another thread may have held the lock.
  void ResetAfterFork();

 private:
  ActiveMemory() = default;
  void ChangedLocked();
  void ReachLocked();

  mutable std::mutex mutex_;
  ActiveMap map_;
  MemoryCycle cycle_;
  uint64_t ignored_notes_ = 0;
  Reached reached_ = nullptr;  // null: nobody watches
  void* reached_context_ = nullptr;
  std::optional<uint64_t> low_;  // at most this is low; of the watch
};

}  // namespace stasis::vmm

#endif  // VMM_ACTIVE_MEMORY_H_
