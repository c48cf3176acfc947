// What libstasis.so exports for include/stasis/memory.h. Safe at any time, in every process: before the first
// CUDA call and without a task they do nothing. No driver call, no lock but that of ActiveMemory; errno is
// kept.
#ifndef INTERCEPT_MEMORY_NOTES_H_
#define INTERCEPT_MEMORY_NOTES_H_

#include <cstddef>

extern "C" {
__attribute__((visibility("default"))) void stasis_note_alloc(const void* address, size_t bytes);
__attribute__((visibility("default"))) void stasis_note_free(const void* address);
__attribute__((visibility("default"))) void stasis_note_iteration(void);
}

namespace stasis {

// From now on notes are taken: the process is one of a task.
void TakeMemoryNotes();
// For a child after fork(2), which begins anew or has no memory.
void ResetMemoryNotesAfterFork();

}  // namespace stasis

#endif  // INTERCEPT_MEMORY_NOTES_H_
