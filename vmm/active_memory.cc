#include "vmm/active_memory.h"

#include <new>

namespace stasis::vmm {
namespace {

// Of the distance between the least and the most of a cycle.
constexpr uint64_t kToleranceShare = 128;

}  // namespace

ActiveMemory& ActiveMemory::Get() {
  static ActiveMemory* const memory = new ActiveMemory;  // outlives every destructor
  return *memory;
}

void ActiveMemory::ReachLocked() {
  if (!reached_(reached_context_)) return;
  reached_ = nullptr;
  map_.Freeze();
}

void ActiveMemory::ChangedLocked() {
  cycle_.Note(map_.bytes());
  if (reached_ != nullptr && low_ && map_.bytes() <= *low_) ReachLocked();
}

void ActiveMemory::AllocationMade(uint64_t base, uint64_t size, bool trusts_notes) {
  const std::lock_guard lock(mutex_);
  map_.AddAllocation(base, size, trusts_notes);
  ChangedLocked();
}

void ActiveMemory::AllocationGone(uint64_t base) {
  const std::lock_guard lock(mutex_);
  map_.RemoveAllocation(base);
  ChangedLocked();
}

void ActiveMemory::NoteAlloc(uint64_t address, uint64_t size, bool gated) {
  const std::lock_guard lock(mutex_);
  if (!map_.AddBlock(address, size, gated)) ++ignored_notes_;
  ChangedLocked();
}

void ActiveMemory::NoteFree(uint64_t address) {
  const std::lock_guard lock(mutex_);
  if (!map_.RemoveBlock(address)) ++ignored_notes_;
  ChangedLocked();
}

void ActiveMemory::NoteIteration() {
  const std::lock_guard lock(mutex_);
  cycle_.Boundary();
  if (reached_ != nullptr && !low_) ReachLocked();
}

void ActiveMemory::Freeze() {
  const std::lock_guard lock(mutex_);
  map_.Freeze();
}

void ActiveMemory::Thaw() {
  const std::lock_guard lock(mutex_);
  map_.Thaw();
}

uint64_t ActiveMemory::bytes() const {
  const std::lock_guard lock(mutex_);
  return map_.bytes();
}

std::vector<TaskRange> ActiveMemory::Ranges() const {
  const std::lock_guard lock(mutex_);
  return map_.Ranges();
}

std::optional<MemoryCycle::Learned> ActiveMemory::Learn() const {
  const std::lock_guard lock(mutex_);
  return cycle_.Learn();
}

void ActiveMemory::FillStatus(TaskStatus* status) const {
  const std::lock_guard lock(mutex_);
  const MemoryCycle::Learned learned = cycle_.Learn().value_or(MemoryCycle::Learned());
  status->active_bytes = map_.bytes();
  status->low_bytes = learned.low;
  status->high_bytes = learned.high;
  status->iterations = cycle_.boundaries();
  status->ignored_notes = ignored_notes_;
}

uint64_t ActiveMemory::Iterations() const {
  const std::lock_guard lock(mutex_);
  return cycle_.boundaries();
}

void ActiveMemory::Watch(Reached reached, void* context) {
  const std::lock_guard lock(mutex_);
  reached_ = reached;
  reached_context_ = context;
  low_.reset();
  if (const auto learned = cycle_.Learn())
    low_ = learned->low + (learned->high - learned->low) / kToleranceShare;
  if (low_ && map_.bytes() <= *low_) ReachLocked();
}

void ActiveMemory::StopWatching() {
  const std::lock_guard lock(mutex_);
  reached_ = nullptr;
}

void ActiveMemory::ResetAfterFork() {
  new (&mutex_) std::mutex;
  reached_ = nullptr;
}

}  // namespace stasis::vmm
