// The gate every driver call of the program passes, so that a pause can keep all threads out of the driver.
//
// A call stores its name into its thread and compares one global word with the value it knows; it leaves by
// clearing the name and comparing again. No lock, no atomic read-modify-write, no fence: the pausing side
// makes up for it with membarrier(2), after which either the caller has seen the closed gate or the pauser
// sees the caller. Where the kernel has no membarrier every call takes the slow path, which fences.
//
// Calls inside of calls (a callback that runs in the calling thread) are part of the outer one.
//
// Before it lies a gate of the same make for the calls of CUDA's libraries (libraries/library_gate.h): a
// pause closes that one first and lets what is inside come to its end, driver calls and all.
#ifndef INTERCEPT_GATE_H_
#define INTERCEPT_GATE_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/task_protocol.h"
#include "replay/thread_objects.h"
#include "vmm/real_driver.h"

namespace stasis {

namespace internal {

struct ThreadRecord;

// Bit 0: closed. Bit 1: never set in a global word, so a thread that holds it always takes the slow path.
// Bit 2: what the libraries do passes all the same. Above: the generation.
inline constexpr uint32_t kGateClosed = 1;
inline constexpr uint32_t kGateNeverSeen = 2;
inline constexpr uint32_t kGateLibrariesPass = 4;
inline constexpr uint32_t kGateGenerationShift = 3;

// What one gate knows of a thread.
struct GateSide {
  std::atomic<uint32_t> inside{0};             // number of the outermost call + 1; read by the pauser
  std::atomic<uint32_t> seen{kGateNeverSeen};  // of the thread alone
};

struct GateThread {
  GateSide driver;                    // numbers are those of Fn
  GateSide library;                   // numbers are those of LibraryFn
  std::atomic<uint64_t> launches{0};  // written by the thread alone
  ThreadRecord* record = nullptr;
  bool unlisted = false;  // known to nobody: its key destructor has run, or it is the control thread
};

extern __thread GateThread t_gate __attribute__((tls_model("initial-exec")));
extern std::atomic<uint32_t> g_gate_word;

// True when the call must go to the driver as it is: a child of a process that had used the driver. `caller`:
// an address in the code that calls.
bool EnterGateSlowly(Fn function, const void* caller);
void LeaveGateSlowly();

inline bool GateUnchanged() {
  return __builtin_expect(
      g_gate_word.load(std::memory_order_acquire) == t_gate.driver.seen.load(std::memory_order_relaxed), 1);
}

}  // namespace internal

// Inside of the gate from construction to destruction. Keeps errno.
class GateScope {
 public:
  __attribute__((always_inline)) explicit GateScope(Fn function)
      : outermost_(internal::t_gate.driver.inside.load(std::memory_order_relaxed) == 0) {
    if (__builtin_expect(!outermost_, 0)) return;
    internal::t_gate.driver.inside.store(static_cast<uint32_t>(function) + 1, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (!internal::GateUnchanged())
      bypass_ = internal::EnterGateSlowly(function, __builtin_return_address(0));
  }
  __attribute__((always_inline)) ~GateScope() {
    if (__builtin_expect(!outermost_, 0)) return;
    internal::t_gate.driver.inside.store(0, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (!internal::GateUnchanged()) internal::LeaveGateSlowly();
  }
  GateScope(const GateScope&) = delete;
  GateScope& operator=(const GateScope&) = delete;

  // The call is none of our business: forward it untouched.
  bool bypass() const { return bypass_; }

 private:
  const bool outermost_;
  bool bypass_ = false;
};

// One more launch of the calling thread; costs an addition to memory that is its own.
inline __attribute__((always_inline)) void CountLaunch() {
  std::atomic<uint64_t>& launches = internal::t_gate.launches;
  launches.store(launches.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}
// Of all threads, also of those that have ended.
uint64_t LaunchCount();

// Whether the calling thread is inside: then its calls go through even a shut gate.
inline bool InsideGate() { return internal::t_gate.driver.inside.load(std::memory_order_relaxed) != 0; }
// What the driver keeps for the calling thread. Inside of the gate only.
replay::ThreadObjects& CurrentThreadObjects();

// ---- For the pausing thread, which never passes the gate itself.

// Keeps new calls out and waits until no thread is inside. kTimeout after `deadline`, with `blockers` naming
// the calls that go on; the gate stays closed then.
Status CloseGate(const Deadline& deadline, std::vector<TaskBlocker>* blockers);
// Keeps new calls out from now on, as CloseGate() does, and waits for nothing. Of any thread, also one
// inside.
void ShutGate();
// Keeps the gate shut and lets pass what the libraries do: calls of threads that are inside of a library's
// function, and calls out of the code of a library that is known to have threads of its own. Nothing else
// that the program does can look like that while the library gate keeps it out. Of the gate's state, `false`
// is as ShutGate() leaves it; CloseGate() waits for those that are still inside.
void LetLibrariesPass(bool pass);
// Lets the threads in again; each rebuilds itself first when replay::Generation() has changed.
void OpenGate();
bool GateIsClosed();
// The calls that are inside now; with a closed gate also one that is about to find it closed.
std::vector<TaskBlocker> CallsInside();
// Threads that have called CUDA and live.
uint32_t GateThreadCount();
// What the driver keeps for each thread that has called CUDA. While the gate is closed and empty.
std::vector<replay::ThreadObjects*> AllThreadObjects();
// Makes the kernel ready for CloseGate(): once a process, and again in a restored one.
void RegisterGateBarrier();

// ---- For fork(2): in the child, before anything else of ours.

// Forgets the other threads and opens the gate. With `bypass` every later call is passed on untouched.
void ResetGateAfterFork(bool bypass);

}  // namespace stasis

#endif  // INTERCEPT_GATE_H_
