// From the trace of PyTorch's caching allocator to notes of active memory.
//
// Only pieces of memory (segments) are noted whose coming from the driver has been traced. What is older was
// given out in part already, and a checkpoint between two notes would miss the rest: it stays active as a
// whole. So do private pools, whose blocks are written by replays of graphs before the allocator calls them
// live.
#ifndef STUBS_TORCH_ALLOCATOR_NOTES_H_
#define STUBS_TORCH_ALLOCATOR_NOTES_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>

namespace stasis::torch_stub {

// Where notes go: the functions of include/stasis/memory.h, or a test.
struct Notes {
  void (*alloc)(const void* address, size_t bytes);
  void (*free)(const void* address);
};

// `Entry` is c10::cuda::CUDACachingAllocator::TraceEntry or looks like it. Thread-safe: each device's
// allocator traces under a lock of its own.
template <typename Entry>
class AllocatorNotes {
 public:
  explicit AllocatorNotes(Notes notes) : notes_(notes) {}

  void Take(const Entry& entry) {
    if (entry.mempool_.first != 0 || entry.mempool_.second != 0) return;
    const uintptr_t address = static_cast<uintptr_t>(entry.addr_);
    const size_t size = static_cast<size_t>(entry.size_);
    const std::lock_guard<std::mutex> lock(mutex_);
    switch (entry.action_) {
      case Entry::SEGMENT_ALLOC:
        segments_[address] = size;
        // Nothing in it is in use.
        notes_.alloc(Pointer(address), size);
        return notes_.free(Pointer(address));
      case Entry::SEGMENT_FREE:
        segments_.erase(address);
        return;
      case Entry::ALLOC:
        if (Knows(address)) notes_.alloc(Pointer(address), size);
        return;
      case Entry::FREE_REQUESTED:
        // The device may still use it, on whatever stream: the program is stopped after that.
        if (Knows(address)) notes_.free(Pointer(address));
        return;
      default:
        return;
    }
  }

 private:
  static const void* Pointer(uintptr_t address) { return reinterpret_cast<const void*>(address); }
  bool Knows(uintptr_t address) const {
    auto next = segments_.upper_bound(address);
    return next != segments_.begin() && address - std::prev(next)->first < std::prev(next)->second;
  }

  const Notes notes_;
  std::mutex mutex_;
  std::map<uintptr_t, size_t> segments_;  // by address
};

}  // namespace stasis::torch_stub

#endif  // STUBS_TORCH_ALLOCATOR_NOTES_H_
