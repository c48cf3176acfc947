// The gate that the program's calls of CUDA's libraries pass, before the driver's (intercept/gate.h).
//
// A library's function makes driver calls, and may wait for threads of its own that make others. So a pause
// closes this gate first: new calls wait here, those inside come to their end with the driver's gate still
// open to them. A library's call that a library makes, on the same thread, is part of the outer one: it is
// passed on as it is, and what it makes is the outer one's business.
#ifndef INTERCEPT_LIBRARIES_LIBRARY_GATE_H_
#define INTERCEPT_LIBRARIES_LIBRARY_GATE_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/task_protocol.h"
#include "intercept/captures.h"
#include "intercept/gate.h"
#include "intercept/libraries/handles.h"
#include "library_functions.h"

namespace stasis::libraries {

namespace internal {

using stasis::internal::t_gate;

// Bits as those of the driver's gate; above them a count that moves when a held call is admitted.
extern std::atomic<uint32_t> g_library_word;

void EnterLibrarySlowly(LibraryFn function, const void* handle, const void* caller);
// See HandleLibrary::Keep().
void KeepUsedInCapture(const void* handle);
void LeaveLibrarySlowly();

inline bool LibraryGateUnchanged() {
  return __builtin_expect(
      g_library_word.load(std::memory_order_acquire) == t_gate.library.seen.load(std::memory_order_relaxed),
      1);
}

}  // namespace internal

// Inside of the library gate from construction to destruction. Keeps errno.
class LibraryScope {
 public:
  // `handle`: the first handle among the parameters, as the program sees it; null when there is none.
  __attribute__((always_inline)) LibraryScope(LibraryFn function, const void* handle)
      : nested_(internal::t_gate.library.inside.load(std::memory_order_relaxed) != 0) {
    if (__builtin_expect(nested_, 0)) return;
    internal::t_gate.library.inside.store(static_cast<uint32_t>(function) + 1, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (!internal::LibraryGateUnchanged())
      internal::EnterLibrarySlowly(function, handle, __builtin_return_address(0));
    if (__builtin_expect(CapturesInProgress() != 0, 0)) internal::KeepUsedInCapture(handle);
  }
  __attribute__((always_inline)) ~LibraryScope() {
    if (__builtin_expect(nested_, 0)) return;
    internal::t_gate.library.inside.store(0, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (!internal::LibraryGateUnchanged()) internal::LeaveLibrarySlowly();
  }
  LibraryScope(const LibraryScope&) = delete;
  LibraryScope& operator=(const LibraryScope&) = delete;

  // Made inside of a library's call: its handles are real ones.
  bool nested() const { return nested_; }
  template <typename Handle>
  Handle* Real(Handle* handle) const {
    return __builtin_expect(nested_, 0) ? handle : ToReal(handle);
  }

 private:
  const bool nested_;
};

// ---- For the pausing thread.

// Keeps new calls out from now on and waits for nothing. While the driver's gate is shut already, what the
// libraries do passes that one.
Status ShutLibraryGate();
// Waits until no thread is inside. kTimeout after `deadline`, with `blockers` naming the functions.
Status AwaitLibraryCalls(const Deadline& deadline, std::vector<TaskBlocker>* blockers);
void OpenLibraryGate();
bool LibraryGateIsClosed();
// Held calls that were admitted count as soon as that.
std::vector<TaskBlocker> LibraryCallsInside();

// A call that waits at the closed gate.
struct HeldCall {
  uint64_t id = 0;
  pid_t tid = 0;
  LibraryFn function{};
  const void* handle = nullptr;  // visible; null when the function has none
};
// Those that wait now, oldest first. Others may come at any time.
std::vector<HeldCall> HeldCalls();
// Lets that one call pass; the thread's next call waits again. False when it waits no more.
bool AdmitHeldCall(uint64_t id);
// Moves whenever a call is held or an admitted or other call has returned, while the gate is closed.
uint32_t LibraryGateEvents();
// Returns when LibraryGateEvents() is not `events` any more, at the deadline, or before; the caller looks
// again. Others than the gate may wake the pauser with NoteLibraryEvent().
void AwaitLibraryGate(uint32_t events, const Deadline& deadline);
void NoteLibraryEvent();

// While one lives, the calling thread, which is the control thread, may call the libraries: their calls, its
// own wrapped calls of the driver, and driver calls of threads that the library runs, pass the closed gates.
// The driver's gate is closed when the scope begins and when it has ended, except that calls of the library's
// threads may still be inside: CloseGate() waits for them.
class LibraryWork {
 public:
  LibraryWork();
  ~LibraryWork();
  LibraryWork(const LibraryWork&) = delete;
  LibraryWork& operator=(const LibraryWork&) = delete;
};

// Of a child after fork(2), after ResetGateAfterFork().
void ResetLibraryGateAfterFork();

}  // namespace stasis::libraries

#endif  // INTERCEPT_LIBRARIES_LIBRARY_GATE_H_
