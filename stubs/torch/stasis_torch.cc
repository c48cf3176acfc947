// libstasis_torch.so, for stasis_torch.py: connects PyTorch's caching allocator with include/stasis/memory.h.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <stasis/memory.h>

#include "allocator_notes.h"

extern "C" {

// Needs a CUDA device. To be called once, before the program has memory there; what it has already stays
// active as a whole.
__attribute__((visibility("default"))) void stasis_torch_attach() {
  namespace allocator = c10::cuda::CUDACachingAllocator;
  using Notes = stasis::torch_stub::AllocatorNotes<allocator::TraceEntry>;
  // Trackers are never detached.
  static Notes* const notes = new Notes({&stasis_memory_alloc, &stasis_memory_free});
  // No tracker reaches devices that are added later.
  allocator::get()->init(c10::cuda::device_count());
  allocator::attachAllocatorTraceTracker([](const allocator::TraceEntry& entry) { notes->Take(entry); });
}

__attribute__((visibility("default"))) void stasis_torch_iteration() { stasis_iteration(); }
}
