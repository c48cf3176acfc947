#include "intercept/gate.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <new>

#include "intercept/futex.h"
#include "intercept/process.h"
#include "replay/pause.h"

namespace stasis {

namespace internal {

struct ThreadRecord {
  GateThread* thread = nullptr;  // null: on no list, because the thread is exiting
  pid_t tid = 0;
  replay::ThreadObjects objects;
  ThreadRecord* next = nullptr;
  ThreadRecord* previous = nullptr;
};

__thread GateThread t_gate __attribute__((tls_model("initial-exec")));
constinit std::atomic<uint32_t> g_gate_word{0};

}  // namespace internal

namespace {

using internal::g_gate_word;
using internal::GateThread;
using internal::kGateClosed;
using internal::kGateGenerationShift;
using internal::kGateNeverSeen;
using internal::t_gate;
using internal::ThreadRecord;

constinit std::mutex g_list_mutex;
constinit ThreadRecord* g_list = nullptr;  // guarded by g_list_mutex
constinit uint32_t g_thread_count = 0;     // guarded by g_list_mutex

// Counts departures while the gate is closed; the pauser sleeps on it.
constinit std::atomic<uint32_t> g_departures{0};
// Calls of exiting threads, which are on no list.
constinit std::atomic<uint32_t> g_unlisted_inside{0};

enum class Barrier : uint8_t { kUnknown, kMembarrier, kFences };
constinit std::atomic<Barrier> g_barrier{Barrier::kUnknown};
constinit std::atomic<bool> g_bypass{false};

constinit pthread_once_t g_key_once = PTHREAD_ONCE_INIT;
pthread_key_t g_key;

bool Closed(uint32_t word) { return (word & kGateClosed) != 0; }
uint32_t GenerationOf(uint32_t word) { return word >> kGateGenerationShift; }

void NoteDeparture() {
  g_departures.fetch_add(1, std::memory_order_seq_cst);
  FutexWakeAll(g_departures);
}

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
}

// Runs in the exiting thread. Later destructors of the thread may still call CUDA; the thread's storage goes
// away after them without another word, so those calls are counted instead of listed.
void ForgetThread(void* value) {
  ThreadRecord* record = static_cast<ThreadRecord*>(value);
  if (record->thread != nullptr) Unlink(record);
  t_gate.record = nullptr;
  t_gate.exiting = true;
  t_gate.seen.store(kGateNeverSeen, std::memory_order_relaxed);
  delete record;
  if (GateIsClosed()) NoteDeparture();
}

void RegisterThread() {
  pthread_once(&g_key_once, [] { pthread_key_create(&g_key, ForgetThread); });
  ThreadRecord* record = new ThreadRecord;
  record->tid = gettid();
  record->objects.generation = replay::Generation();
  if (!t_gate.exiting) {
    record->thread = &t_gate;
    Link(record);
  }
  t_gate.record = record;
  pthread_setspecific(g_key, record);
}

// The next two are for the slow path: their fences stand in for membarrier.
void AnnounceInside(Fn function) {
  if (t_gate.exiting) g_unlisted_inside.fetch_add(1, std::memory_order_seq_cst);
  t_gate.inside.store(static_cast<uint32_t>(function) + 1, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void AnnounceOutside() {
  t_gate.inside.store(0, std::memory_order_seq_cst);
  if (t_gate.exiting) g_unlisted_inside.fetch_sub(1, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

// Returns the open gate's word, with the thread announced inside.
uint32_t PassWhenOpen(Fn function) {
  AnnounceInside(function);
  for (;;) {
    const uint32_t word = g_gate_word.load(std::memory_order_seq_cst);
    if (!Closed(word)) return word;
    AnnounceOutside();
    NoteDeparture();
    FutexWait(g_gate_word, word);
    AnnounceInside(function);
  }
}

void RebuildIfStale(uint32_t word) {
  replay::ThreadObjects& objects = t_gate.record->objects;
  if (objects.generation == GenerationOf(word)) return;
  replay::RebuildThread(objects);
  objects.generation = GenerationOf(word);
}

int Membarrier(int command) { return static_cast<int>(syscall(SYS_membarrier, command, 0, 0)); }

bool RegisterMembarrier() { return Membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0; }

// After it every thread that runs has either announced itself or will see the closed gate.
Status WaitForBarrier() {
  if (g_barrier.load(std::memory_order_relaxed) != Barrier::kMembarrier) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return {};
  }
  if (Membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0) return {};
  return ErrnoStatus(errno, "membarrier");
}

}  // namespace

namespace internal {

bool EnterGateSlowly(Fn function) {
  const int saved_errno = errno;
  if (g_bypass.load(std::memory_order_relaxed)) return true;
  StartProcess();
  if (t_gate.record == nullptr) RegisterThread();
  const uint32_t word = PassWhenOpen(function);
  RebuildIfStale(word);
  const bool may_be_fast = g_barrier.load(std::memory_order_relaxed) != Barrier::kFences && !t_gate.exiting;
  t_gate.seen.store(may_be_fast ? word : kGateNeverSeen, std::memory_order_relaxed);
  errno = saved_errno;
  return false;
}

void LeaveGateSlowly() {
  const int saved_errno = errno;
  if (!g_bypass.load(std::memory_order_relaxed)) {
    AnnounceOutside();
    if (GateIsClosed()) NoteDeparture();
  }
  errno = saved_errno;
}

}  // namespace internal

replay::ThreadObjects& CurrentThreadObjects() { return t_gate.record->objects; }

bool GateIsClosed() { return Closed(g_gate_word.load(std::memory_order_seq_cst)); }

std::vector<TaskBlocker> CallsInside() {
  std::vector<TaskBlocker> calls;
  std::lock_guard<std::mutex> lock(g_list_mutex);
  for (ThreadRecord* record = g_list; record != nullptr; record = record->next) {
    const uint32_t inside = record->thread->inside.load(std::memory_order_acquire);
    if (inside != 0) calls.push_back({record->tid, FnName(static_cast<Fn>(inside - 1))});
  }
  if (g_unlisted_inside.load(std::memory_order_seq_cst) != 0)
    calls.push_back({0, "a call of an exiting thread"});
  return calls;
}

void ShutGate() { g_gate_word.fetch_or(kGateClosed, std::memory_order_seq_cst); }

Status CloseGate(const Deadline& deadline, std::vector<TaskBlocker>* blockers) {
  ShutGate();
  RETURN_IF_ERROR(WaitForBarrier());
  for (;;) {
    const uint32_t departures = g_departures.load(std::memory_order_seq_cst);
    std::vector<TaskBlocker> inside = CallsInside();
    if (inside.empty()) return {};
    if (deadline.Expired()) {
      Status status =
          Errorf(StatusCode::kTimeout, "thread %d is still in %s", inside[0].tid, inside[0].call.c_str());
      *blockers = std::move(inside);
      return status;
    }
    FutexWait(g_departures, departures, deadline);
  }
}

void OpenGate() {
  g_gate_word.store(replay::Generation() << kGateGenerationShift, std::memory_order_seq_cst);
  FutexWakeAll(g_gate_word);
}

uint32_t GateThreadCount() {
  std::lock_guard<std::mutex> lock(g_list_mutex);
  return g_thread_count;
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

void ResetGateAfterFork(bool bypass) {
  new (&g_list_mutex) std::mutex;
  g_list = nullptr;
  g_thread_count = 0;
  g_departures.store(0, std::memory_order_relaxed);
  g_unlisted_inside.store(0, std::memory_order_relaxed);
  g_barrier.store(Barrier::kUnknown, std::memory_order_relaxed);
  g_bypass.store(bypass, std::memory_order_relaxed);
  // The child has one thread; whatever its record says belongs to a thread of the parent.
  if (t_gate.record != nullptr) pthread_setspecific(g_key, nullptr);
  t_gate.record = nullptr;
  t_gate.seen.store(kGateNeverSeen, std::memory_order_relaxed);
  g_gate_word.store(0, std::memory_order_relaxed);
}

}  // namespace stasis
