#include "intercept/gate_threads.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <new>

#include "intercept/libraries/library_gate.h"
#include "intercept/thread_ends.h"
#include "replay/pause.h"

namespace stasis {

namespace internal {

__thread GateThread t_gate __attribute__((tls_model("initial-exec")));
constinit GateStage driver_stage(g_gate_word, &GateThread::driver,
                                 [](uint32_t number) { return FnName(static_cast<Fn>(number)); });
constinit GateStage library_stage(libraries::internal::g_library_word, &GateThread::library,
                                  [](uint32_t number) {
                                    return libraries::LibraryFnName(
                                        static_cast<libraries::LibraryFn>(number));
                                  });

}  // namespace internal

namespace {

using internal::driver_stage;
using internal::library_stage;
using internal::t_gate;
using internal::ThreadRecord;

constinit std::mutex g_list_mutex;
constinit ThreadRecord* g_list = nullptr;  // guarded by g_list_mutex
constinit uint32_t g_thread_count = 0;     // guarded by g_list_mutex
constinit uint64_t g_ended_launches = 0;   // of threads that are on the list no more; guarded by g_list_mutex

enum class Barrier : uint8_t { kUnknown, kMembarrier, kFences };
constinit std::atomic<Barrier> g_barrier{Barrier::kUnknown};

constinit pthread_once_t g_key_once = PTHREAD_ONCE_INIT;
pthread_key_t g_key;

void Link(ThreadRecord* record) {
  std::lock_guard<std::mutex> lock(g_list_mutex);
  record->next = g_list;
  if (g_list != nullptr) g_list->previous = record;
  g_list = record;
  ++g_thread_count;
}

void Unlink(ThreadRecord* record) {
  std::lock_guard<std::mutex> lock(g_list_mutex);
  (record->previous != nullptr ? record->previous->next : g_list) = record->next;
  if (record->next != nullptr) record->next->previous = record->previous;
  --g_thread_count;
  g_ended_launches += record->thread->launches.exchange(0, std::memory_order_relaxed);
}

void NeverFast() {
  t_gate.driver.seen.store(internal::kGateNeverSeen, std::memory_order_relaxed);
  t_gate.library.seen.store(internal::kGateNeverSeen, std::memory_order_relaxed);
}

// Runs in the exiting thread. Later destructors of the thread may still call CUDA; the thread's storage goes
// away after them without another word, so those calls are counted instead of listed.
void ForgetThread(void* value) {
  if (value == &g_key) return LeaveThreadEnd();
  ThreadRecord* record = static_cast<ThreadRecord*>(value);
  const bool first = !t_gate.unlisted;
  if (record->thread != nullptr) Unlink(record);
  t_gate.record = nullptr;
  t_gate.unlisted = true;
  NeverFast();
  delete record;
  for (internal::GateStage* stage : {&driver_stage, &library_stage})
    if (stage->Closed()) stage->NoteEvent();
  if (!first) return;
  // In the next round of destructors we are called once more: those of the driver have then had their turn.
  EnterThreadEnd();
  pthread_setspecific(g_key, &g_key);
}

int Membarrier(int command) { return static_cast<int>(syscall(SYS_membarrier, command, 0, 0)); }

bool RegisterMembarrier() { return Membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0; }

}  // namespace

namespace internal {

void RegisterThread() {
  if (t_gate.record != nullptr) return;
  LeaveThreadEnd();
  pthread_once(&g_key_once, [] { pthread_key_create(&g_key, ForgetThread); });
  ThreadRecord* record = new ThreadRecord;
  record->tid = gettid();
  record->objects.generation = replay::Generation();
  if (!t_gate.unlisted) {
    record->thread = &t_gate;
    Link(record);
  }
  t_gate.record = record;
  pthread_setspecific(g_key, record);
}

void HideThread() { t_gate.unlisted = true; }

void UnhideThread() {
  if (t_gate.record != nullptr) pthread_setspecific(g_key, nullptr);
  delete t_gate.record;
  t_gate.record = nullptr;
  t_gate.unlisted = false;
}

Status WaitForGateBarrier() {
  if (g_barrier.load(std::memory_order_relaxed) != Barrier::kMembarrier) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return {};
  }
  if (Membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0) return {};
  return ErrnoStatus(errno, "membarrier");
}

void GateStage::AnnounceInside(uint32_t number) {
  if (t_gate.unlisted) unlisted_inside_.fetch_add(1, std::memory_order_seq_cst);
  (t_gate.*side_).inside.store(number + 1, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void GateStage::AnnounceOutside() {
  (t_gate.*side_).inside.store(0, std::memory_order_seq_cst);
  if (t_gate.unlisted) unlisted_inside_.fetch_sub(1, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

// A thread that was let through a closed gate has to ask again at its next call.
void GateStage::SetSeen(uint32_t word) {
  const bool may_be_fast = (word & kGateClosed) == 0 && !t_gate.unlisted &&
                           g_barrier.load(std::memory_order_relaxed) != Barrier::kFences;
  (t_gate.*side_).seen.store(may_be_fast ? word : kGateNeverSeen, std::memory_order_relaxed);
}

std::vector<TaskBlocker> GateStage::CallsInside() const {
  std::vector<TaskBlocker> calls;
  std::lock_guard<std::mutex> lock(g_list_mutex);
  for (ThreadRecord* record = g_list; record != nullptr; record = record->next) {
    const uint32_t inside = (record->thread->*side_).inside.load(std::memory_order_acquire);
    if (inside != 0) calls.push_back({record->tid, name_(inside - 1)});
  }
  if (unlisted_inside_.load(std::memory_order_seq_cst) != 0)
    calls.push_back({0, "a call of an exiting thread"});
  return calls;
}

Status GateStage::AwaitEmpty(const Deadline& deadline, std::vector<TaskBlocker>* blockers) {
  for (;;) {
    const uint32_t seen = events();
    std::vector<TaskBlocker> inside = CallsInside();
    if (inside.empty()) return {};
    if (deadline.Expired()) {
      Status status =
          Errorf(StatusCode::kTimeout, "thread %d is still in %s", inside[0].tid, inside[0].call.c_str());
      *blockers = std::move(inside);
      return status;
    }
    AwaitEvent(seen, deadline);
  }
}

void GateStage::ResetAfterFork() {
  events_.store(0, std::memory_order_relaxed);
  unlisted_inside_.store(0, std::memory_order_relaxed);
  word_.store(0, std::memory_order_relaxed);
}

}  // namespace internal

uint32_t GateThreadCount() {
  std::lock_guard<std::mutex> lock(g_list_mutex);
  return g_thread_count;
}

uint64_t LaunchCount() {
  std::lock_guard<std::mutex> lock(g_list_mutex);
  uint64_t launches = g_ended_launches;
  for (ThreadRecord* record = g_list; record != nullptr; record = record->next)
    launches += record->thread->launches.load(std::memory_order_relaxed);
  return launches;
}

std::vector<replay::ThreadObjects*> AllThreadObjects() {
  std::vector<replay::ThreadObjects*> objects;
  std::lock_guard<std::mutex> lock(g_list_mutex);
  for (ThreadRecord* record = g_list; record != nullptr; record = record->next)
    objects.push_back(&record->objects);
  return objects;
}

void RegisterGateBarrier() {
  if (g_barrier.load(std::memory_order_relaxed) == Barrier::kFences) return;
  // Threads that know of no membarrier are all in the slow path; there is no way back for the others.
  const bool first = g_barrier.load(std::memory_order_relaxed) == Barrier::kUnknown;
  const bool registered = RegisterMembarrier();
  if (first) g_barrier.store(registered ? Barrier::kMembarrier : Barrier::kFences, std::memory_order_relaxed);
}

void ResetGateThreadsAfterFork() {
  new (&g_list_mutex) std::mutex;
  g_list = nullptr;
  g_thread_count = 0;
  g_ended_launches = 0;
  t_gate.launches.store(0, std::memory_order_relaxed);
  g_barrier.store(Barrier::kUnknown, std::memory_order_relaxed);
  // The child has one thread; whatever its record says belongs to a thread of the parent.
  if (t_gate.record != nullptr) pthread_setspecific(g_key, nullptr);
  t_gate.record = nullptr;
  ResetThreadEndsAfterFork();
  NeverFast();
  driver_stage.ResetAfterFork();
  library_stage.ResetAfterFork();
}

}  // namespace stasis
