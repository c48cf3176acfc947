#include "intercept/memory_notes.h"

#include <atomic>
#include <cerrno>
#include <cstdint>

#include "intercept/gate.h"
#include "vmm/active_memory.h"
#include "vmm/held_memory.h"

namespace stasis {
namespace {

constinit std::atomic<bool> g_taking{false};

template <typename Note>
void Take(Note note) {
  if (!g_taking.load(std::memory_order_acquire)) return;
  const int saved_errno = errno;
  note(vmm::ActiveMemory::Get());
  errno = saved_errno;
}

uint64_t Address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

}  // namespace

void TakeMemoryNotes() { g_taking.store(true, std::memory_order_release); }

void ResetMemoryNotesAfterFork() {
  // Where nothing was taken nothing exists.
  if (!g_taking.exchange(false, std::memory_order_relaxed)) return;
  vmm::ActiveMemory::Get().ResetAfterFork();
  vmm::HeldMemory::Get().ResetAfterFork();
}

}  // namespace stasis

void stasis_note_alloc(const void* address, size_t bytes) {
  stasis::Take([=](stasis::vmm::ActiveMemory& memory) {
    memory.NoteAlloc(stasis::Address(address), bytes, !stasis::InsideGate());
  });
}

void stasis_note_free(const void* address) {
  stasis::Take([=](stasis::vmm::ActiveMemory& memory) { memory.NoteFree(stasis::Address(address)); });
}

void stasis_note_iteration(void) {
  stasis::Take([](stasis::vmm::ActiveMemory& memory) { memory.NoteIteration(); });
}
