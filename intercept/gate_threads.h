// What the driver's gate and that of the libraries have in common: the threads that pass them, and how a
// pauser waits for those. For the two gates alone.
#ifndef INTERCEPT_GATE_THREADS_H_
#define INTERCEPT_GATE_THREADS_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/task_protocol.h"
#include "intercept/futex.h"
#include "intercept/gate.h"
#include "replay/thread_objects.h"

namespace stasis::internal {

struct ThreadRecord {
  GateThread* thread = nullptr;  // null: on no list
  pid_t tid = 0;
  replay::ThreadObjects objects;
  ThreadRecord* next = nullptr;
  ThreadRecord* previous = nullptr;
};

// One of the gates.
class GateStage {
 public:
  using Name = const char* (*)(uint32_t number);
  constexpr GateStage(std::atomic<uint32_t>& word, GateSide GateThread::*side, Name name)
      : word_(word), side_(side), name_(name) {}
  GateStage(const GateStage&) = delete;
  GateStage& operator=(const GateStage&) = delete;

  // ---- Of the calling thread, in the slow path; the fences stand in for membarrier.

  // Announces the call, and waits with nothing announced until `may_pass(word)`, which is called each time
  // that the word may have changed. Returns the word that let it pass.
  template <typename MayPass>
  uint32_t Enter(uint32_t number, MayPass may_pass) {
    AnnounceInside(number);
    for (;;) {
      const uint32_t word = word_.load(std::memory_order_seq_cst);
      if (may_pass(word)) {
        SetSeen(word);
        return word;
      }
      AnnounceOutside();
      NoteEvent();
      FutexWait(word_, word);
      AnnounceInside(number);
    }
  }
  void Leave() {
    AnnounceOutside();
    if (Closed()) NoteEvent();
  }

  // ---- Of any thread.

  bool Closed() const { return (word_.load(std::memory_order_seq_cst) & kGateClosed) != 0; }
  // Sets the word and lets those that wait look at it.
  void Publish(uint32_t word) {
    word_.store(word, std::memory_order_seq_cst);
    FutexWakeAll(word_);
  }
  // Counts departures, and whatever else a pauser may wait for, while the gate is closed.
  void NoteEvent() {
    events_.fetch_add(1, std::memory_order_seq_cst);
    FutexWakeAll(events_);
  }
  uint32_t events() const { return events_.load(std::memory_order_seq_cst); }
  // Returns when events() is not `events` any more, at the deadline, or before; the caller looks again.
  void AwaitEvent(uint32_t events, const Deadline& deadline) { FutexWait(events_, events, deadline); }

  std::vector<TaskBlocker> CallsInside() const;
  // With a closed gate, after WaitForGateBarrier(). kTimeout after `deadline`, with `blockers` naming the
  // calls that go on.
  Status AwaitEmpty(const Deadline& deadline, std::vector<TaskBlocker>* blockers);
  void ResetAfterFork();

 private:
  void AnnounceInside(uint32_t number);
  void AnnounceOutside();
  void SetSeen(uint32_t word);

  std::atomic<uint32_t>& word_;
  GateSide GateThread::*const side_;
  const Name name_;
  std::atomic<uint32_t> events_{0};
  std::atomic<uint32_t> unlisted_inside_{0};  // calls of threads that are on no list
};

extern GateStage driver_stage;
extern GateStage library_stage;

// Makes the calling thread known; does nothing for one that is.
void RegisterThread();
// Makes the calling thread one that is on no list, for the control thread's work on the libraries' objects,
// and back again.
void HideThread();
void UnhideThread();
// After it every thread that runs has either announced itself or will see the closed gate.
Status WaitForGateBarrier();

}  // namespace stasis::internal

namespace stasis {

// For ResetGateAfterFork(): forgets the other threads and opens both gates.
void ResetGateThreadsAfterFork();

}  // namespace stasis

#endif  // INTERCEPT_GATE_THREADS_H_
