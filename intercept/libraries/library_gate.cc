#include "intercept/libraries/library_gate.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <new>

#include "intercept/gate_threads.h"
#include "intercept/libraries/real_functions.h"
#include "intercept/process.h"

namespace stasis::libraries {

namespace internal {

constinit std::atomic<uint32_t> g_library_word{0};

}  // namespace internal

namespace {

using internal::g_library_word;
using internal::t_gate;
using stasis::internal::kGateClosed;
using stasis::internal::library_stage;

constexpr uint32_t kAdmission = 1 << stasis::internal::kGateGenerationShift;

// What `inside` says of the control thread: no function has that number.
constexpr uint32_t kControlInside = kLibraryFnCount + 1;

struct Waiting {
  HeldCall call;
  bool admitted = false;
};

constinit std::mutex g_held_mutex;
constinit std::vector<Waiting*>* g_held = nullptr;  // guarded by g_held_mutex; the threads' own, oldest first
constinit uint64_t g_next_id = 1;                   // guarded by g_held_mutex

// The calling thread's call, from when it finds the gate closed to when it passes.
class Hold {
 public:
  Hold(LibraryFn function, const void* handle) : waiting_{{0, gettid(), function, handle}} {}
  // The call has been announced as inside.
  ~Hold() {
    if (waiting_.call.id == 0) return;
    {
      std::lock_guard<std::mutex> lock(g_held_mutex);
      g_held->erase(std::find(g_held->begin(), g_held->end(), &waiting_));
    }
    library_stage.NoteEvent();
  }
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  // Lists the call the first time.
  bool Admitted() {
    std::lock_guard<std::mutex> lock(g_held_mutex);
    if (waiting_.call.id == 0) {
      waiting_.call.id = g_next_id++;
      if (g_held == nullptr) g_held = new std::vector<Waiting*>;
      g_held->push_back(&waiting_);
    }
    return waiting_.admitted;
  }

 private:
  Waiting waiting_;
};

// Calls that were admitted and have not got to it yet.
std::vector<TaskBlocker> CallsOnTheirWay() {
  std::vector<TaskBlocker> calls;
  std::lock_guard<std::mutex> lock(g_held_mutex);
  if (g_held == nullptr) return calls;
  for (const Waiting* waiting : *g_held)
    if (waiting->admitted) calls.push_back({waiting->call.tid, LibraryFnName(waiting->call.function)});
  return calls;
}

}  // namespace

namespace internal {

// A call out of a library's own code, on a thread that is not inside of it, is made by a thread of the
// library's: it belongs to what is inside.
void EnterLibrarySlowly(LibraryFn function, const void* handle, const void* caller) {
  const int saved_errno = errno;
  StartProcess();
  stasis::internal::RegisterThread();
  Hold hold(function, handle);
  (void)library_stage.Enter(static_cast<uint32_t>(function), [&](uint32_t word) {
    return (word & kGateClosed) == 0 || IsLibraryCode(caller) || hold.Admitted();
  });
  errno = saved_errno;
}

void LeaveLibrarySlowly() {
  const int saved_errno = errno;
  library_stage.Leave();
  errno = saved_errno;
}

}  // namespace internal

Status ShutLibraryGate() {
  g_library_word.fetch_or(kGateClosed, std::memory_order_seq_cst);
  RETURN_IF_ERROR(stasis::internal::WaitForGateBarrier());
  LetLibrariesPass(true);
  return {};
}

// In this order: a call that is on its way no more is inside, or has returned.
Status AwaitLibraryCalls(const Deadline& deadline, std::vector<TaskBlocker>* blockers) {
  for (;;) {
    const uint32_t events = LibraryGateEvents();
    std::vector<TaskBlocker> coming = CallsOnTheirWay();
    if (coming.empty()) break;
    if (deadline.Expired()) {
      Status status =
          Errorf(StatusCode::kTimeout, "thread %d has not come to %s", coming[0].tid, coming[0].call.c_str());
      *blockers = std::move(coming);
      return status;
    }
    AwaitLibraryGate(events, deadline);
  }
  RETURN_IF_ERROR(library_stage.AwaitEmpty(deadline, blockers));
  LetLibrariesPass(false);
  return {};
}

void OpenLibraryGate() { library_stage.Publish(0); }
bool LibraryGateIsClosed() { return library_stage.Closed(); }
std::vector<TaskBlocker> LibraryCallsInside() {
  std::vector<TaskBlocker> calls = CallsOnTheirWay();
  const std::vector<TaskBlocker> inside = library_stage.CallsInside();
  calls.insert(calls.end(), inside.begin(), inside.end());
  return calls;
}

std::vector<HeldCall> HeldCalls() {
  std::vector<HeldCall> calls;
  std::lock_guard<std::mutex> lock(g_held_mutex);
  if (g_held == nullptr) return calls;
  for (const Waiting* waiting : *g_held)
    if (!waiting->admitted) calls.push_back(waiting->call);
  return calls;
}

bool AdmitHeldCall(uint64_t id) {
  {
    std::lock_guard<std::mutex> lock(g_held_mutex);
    if (g_held == nullptr) return false;
    const auto found = std::find_if(g_held->begin(), g_held->end(),
                                    [id](const Waiting* waiting) { return waiting->call.id == id; });
    if (found == g_held->end()) return false;
    (*found)->admitted = true;
  }
  // With the mutex let go of: whoever wakes takes it.
  library_stage.Publish(g_library_word.load(std::memory_order_seq_cst) + kAdmission);
  return true;
}

uint32_t LibraryGateEvents() { return library_stage.events(); }
void AwaitLibraryGate(uint32_t events, const Deadline& deadline) {
  library_stage.AwaitEvent(events, deadline);
}
void NoteLibraryEvent() { library_stage.NoteEvent(); }

LibraryWork::LibraryWork() {
  stasis::internal::HideThread();
  t_gate.library.inside.store(kControlInside, std::memory_order_release);
  LetLibrariesPass(true);
}

LibraryWork::~LibraryWork() {
  LetLibrariesPass(false);
  t_gate.library.inside.store(0, std::memory_order_release);
  stasis::internal::UnhideThread();
}

void ResetLibraryGateAfterFork() {
  new (&g_held_mutex) std::mutex;
  g_held = nullptr;  // of threads that the child does not have
}

}  // namespace stasis::libraries
