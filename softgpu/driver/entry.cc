#include "softgpu/driver/entry.h"

#include <pthread.h>

#include <algorithm>
#include <new>

#include "softgpu/driver/context.h"
#include "softgpu/driver/state.h"

namespace softgpu {

namespace {

std::atomic<Phase> phase{Phase::kOpen};
constinit thread_local ThreadCalls calls;

// Thread states hang on a pthread key instead of a thread_local object: its destructor can be taken back when
// the library is unloaded.
pthread_once_t key_once = PTHREAD_ONCE_INIT;
pthread_key_t key;
std::atomic<bool> key_made{false};
// All thread states, so that those of threads that live on can be freed at the end. Never destroyed.
struct ThreadList {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<ThreadState*> threads;
  int ending = 0;  // threads that free their own state
};
ThreadList& Threads() {
  static ThreadList* list = new ThreadList;
  return *list;
}

// A state is freed by whoever takes it out of the list: its thread, or Unload(). False: it was Unload().
bool TakeOwn(ThreadState* thread) {
  std::lock_guard lock(Threads().mutex);
  if (std::erase(Threads().threads, thread) == 0) return false;
  Threads().ending++;
  return true;
}

void ThreadEnded(void* value) {
  if (CurrentPhase() == Phase::kForked) return;  // another thread of the parent may have held the lock
  auto* thread = static_cast<ThreadState*>(value);
  if (!TakeOwn(thread)) return;
  // Unload() waits for threads that found the phase open.
  State* state = CurrentPhase() == Phase::kOpen ? State::Get() : nullptr;
  if (state != nullptr) {
    for (const std::shared_ptr<Context>& context : state->Contexts()) context->ForgetThread(thread->number);
  }
  delete thread;
  std::lock_guard lock(Threads().mutex);
  Threads().ending--;
  Threads().changed.notify_all();
}

void AwaitEndingThreads(std::unique_lock<std::mutex>& lock) {
  Threads().changed.wait(lock, [] { return Threads().ending == 0; });
}

// In the child of a process that had not called cuInit: the other threads are not there, nor anything of
// theirs needed.
void ForgetOtherThreads() {
  auto* own = static_cast<ThreadState*>(pthread_getspecific(key));
  auto* list = new (&Threads()) ThreadList;
  if (own != nullptr) list->threads.push_back(own);
  new (&CallGate()) Gate;
}

void ForkChild() {
  State* state = State::Get();
  if (state == nullptr) return ForgetOtherThreads();
  SetPhase(Phase::kForked);
  state->AbandonAfterFork();
}

void MakeKey() {
  if (pthread_key_create(&key, ThreadEnded) != 0) return;
  pthread_atfork(nullptr, nullptr, ForkChild);
  key_made.store(true, std::memory_order_release);
}

// When the process exits, or dlclose() unloads the library.
__attribute__((destructor)) void Unload() {
  if (CurrentPhase() == Phase::kForked) return;
  SetPhase(Phase::kClosed);
  CallGate().Open();
  std::unique_lock lock(Threads().mutex);
  AwaitEndingThreads(lock);
  lock.unlock();
  State* state = State::Get();
  bool all_left = state == nullptr || state->Shutdown();
  if (key_made.load(std::memory_order_acquire)) pthread_key_delete(key);
  lock.lock();
  AwaitEndingThreads(lock);
  // What a call that never returned may still look at stays.
  if (!all_left) return;
  for (ThreadState* thread : Threads().threads) delete thread;
  Threads().threads.clear();
}

}  // namespace

Phase CurrentPhase() { return phase.load(std::memory_order_acquire); }
void SetPhase(Phase to) { phase.store(to, std::memory_order_release); }

ThreadCalls& CurrentCalls() { return calls; }

ThreadState* CurrentThread() {
  pthread_once(&key_once, MakeKey);
  if (!key_made.load(std::memory_order_acquire)) return nullptr;
  auto* thread = static_cast<ThreadState*>(pthread_getspecific(key));
  if (thread != nullptr || CurrentPhase() != Phase::kOpen) return thread;
  static std::atomic<uint64_t> next_number{1};
  thread = new (std::nothrow) ThreadState;
  if (thread == nullptr) return nullptr;
  thread->number = next_number.fetch_add(1, std::memory_order_relaxed);
  pthread_setspecific(key, thread);
  std::lock_guard lock(Threads().mutex);
  Threads().threads.push_back(thread);
  return thread;
}

Gate& CallGate() {
  static Gate* gate = new Gate;
  return *gate;
}

void Gate::Enter() {
  for (;;) {
    inside_.fetch_add(1);
    if (!closed_.load()) return;
    Leave();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !closed_.load(); });
  }
}

void Gate::Leave() {
  if (inside_.fetch_sub(1) == 0 || !closed_.load()) return;
  std::lock_guard lock(mutex_);
  changed_.notify_all();
}

bool Gate::Close(const stasis::Deadline& deadline, int mine) {
  std::unique_lock lock(mutex_);
  closed_.store(true);
  auto empty = [this, mine] { return inside_.load() <= mine; };
  bool closed = true;
  if (deadline.never()) {
    changed_.wait(lock, empty);
  } else {
    closed = changed_.wait_for(lock, deadline.Remaining(), empty);
  }
  if (!closed) {
    closed_.store(false);
    changed_.notify_all();
  }
  return closed;
}

void Gate::Open() {
  std::lock_guard lock(mutex_);
  closed_.store(false);
  changed_.notify_all();
}

// In the body: Admit() sets members that are initialised after result_.
Entry::Entry(Need need) { result_ = Admit(need); }

Entry::~Entry() {
  // The last reference may end here, and a context does not outlive the state.
  context_.reset();
  if (!inside_) return;
  if (--CurrentCalls().depth == 0) CallGate().Leave();
}

CUresult Entry::Admit(Need need) {
  if (CurrentPhase() == Phase::kForked) return CUDA_ERROR_NOT_INITIALIZED;
  if (CurrentPhase() == Phase::kClosed) return CUDA_ERROR_DEINITIALIZED;
  ThreadCalls& thread_calls = CurrentCalls();
  if (thread_calls.in_callback) return CUDA_ERROR_NOT_PERMITTED;
  if (thread_calls.depth++ == 0) CallGate().Enter();
  inside_ = true;
  // Unload() waits for those inside that found the phase open; only they may look at what it frees.
  if (CurrentPhase() != Phase::kOpen) return CUDA_ERROR_DEINITIALIZED;
  state_ = State::Get();
  if (state_ == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  thread_ = CurrentThread();
  if (thread_ == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  if (need == Need::kInit) return CUDA_SUCCESS;
  if (thread_->stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  context_ = state_->FindContext(thread_->stack.back());
  if (context_ == nullptr) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return need == Need::kContext ? context_->error() : CUDA_SUCCESS;
}

}  // namespace softgpu
