#include "intercept/libraries/nccl_ledger.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "intercept/libraries/nccl_calls.h"
#include "intercept/libraries/nccl_comms.h"
#include "intercept/libraries/nccl_ids.h"

namespace stasis::nccl {
namespace {

using libraries::HeldCall;

// After so long without any movement a thread that the cut waits for is taken to wait for a held one.
constexpr std::chrono::milliseconds kQuiet(100);
// Communicators that do not block tell their state when they are asked, and not by themselves.
constexpr std::chrono::milliseconds kPoll(2);

constinit NcclLedger g_ledger;
constinit pthread_once_t g_once = PTHREAD_ONCE_INIT;
pthread_key_t g_key;
__thread CutThreadPtr* t_thread __attribute__((tls_model("initial-exec")));

bool IsNccl(const HeldCall& call) { return LibraryOf(call.function) == libraries::LibraryId::kNccl; }

// Also a call that has passed the gate and is not noted yet.
bool SomebodyIsInside() {
  const std::vector<TaskBlocker> inside = libraries::LibraryCallsInside();
  return std::any_of(inside.begin(), inside.end(), [](const TaskBlocker& blocker) {
    return blocker.call.starts_with("nccl") || blocker.call.starts_with("pnccl");
  });
}

// Tells when nothing has moved for a while.
class Quiet {
 public:
  bool Over(uint32_t events) {
    const MonotonicTime now = Clock::Real().Now();
    if (events != events_) until_ = now + kQuiet;
    events_ = events;
    return now >= until_;
  }

 private:
  uint32_t events_ = 0;
  MonotonicTime until_ = Clock::Real().Now() + kQuiet;
};

// What the cut lacks, or else the call that goes on.
Status Lacking(std::vector<TaskBlocker> missing, std::vector<TaskBlocker>* blockers) {
  if (missing.empty()) missing = libraries::LibraryCallsInside();
  *blockers = missing;
  if (missing.empty()) return Status(StatusCode::kTimeout, "calls go on without end");
  const TaskBlocker& first = missing.front();
  for (const TaskBlocker& inside : libraries::LibraryCallsInside())
    if (inside.tid == first.tid && inside.call == first.call)
      return Errorf(StatusCode::kTimeout, "thread %d is still in %s", first.tid, first.call.c_str());
  return Status(StatusCode::kTimeout, first.call + " is missing");
}

}  // namespace

NcclLedger& NcclLedger::Get() { return g_ledger; }

// With mutex_ held.
Cut& NcclLedger::Book() {
  if (cut_ == nullptr) cut_ = new Cut;
  return *cut_;
}

void NcclLedger::ForgetThread(void* value) {
  const std::unique_ptr<CutThreadPtr> thread(static_cast<CutThreadPtr*>(value));
  t_thread = nullptr;
  NcclLedger& ledger = Get();
  {
    std::lock_guard<std::mutex> lock(ledger.mutex_);
    ledger.Book().RemoveThread(**thread);
  }
  if (libraries::LibraryGateIsClosed()) libraries::NoteLibraryEvent();
}

// With mutex_ held. A thread that was held before its first call is known already.
CutThreadPtr NcclLedger::ThisThread() {
  pthread_once(&g_once, [] {
    pthread_key_create(&g_key, ForgetThread);
    pthread_atfork(nullptr, nullptr, [] {
      Get().ResetAfterFork();
      CommBook::Get().ResetAfterFork();
      ResetIdsAfterFork();
      ResetCallsAfterFork();
    });
  });
  if (t_thread != nullptr) return *t_thread;
  CutThreadPtr thread = Book().FindThread(gettid());
  if (thread == nullptr) {
    thread = std::make_shared<CutThread>();
    thread->tid = gettid();
    Book().AddThread(thread);
  }
  t_thread = new CutThreadPtr(thread);
  pthread_setspecific(g_key, t_thread);
  return thread;
}

void NcclLedger::Enter(const Operation& operation) {
  const int saved_errno = errno;
  std::lock_guard<std::mutex> lock(mutex_);
  const CutThreadPtr thread = ThisThread();
  Book().Enter(thread, operation);
  // What this call waits for may be held.
  if (libraries::LibraryGateIsClosed()) libraries::NoteLibraryEvent();
  errno = saved_errno;
}

// The library gate tells the pause when the thread has passed out of it.
void NcclLedger::Leave(bool success) {
  std::lock_guard<std::mutex> lock(mutex_);
  Book().Leave(**t_thread, success);
}

int NcclLedger::Depth() {
  std::lock_guard<std::mutex> lock(mutex_);
  return ThisThread()->depth;
}

CutRankPtr NcclLedger::AddRank(uint64_t clique_key, int size, int rank) {
  std::lock_guard<std::mutex> lock(mutex_);
  CutRankPtr added = Book().AddRank(clique_key, size, rank);
  added->driver = ThisThread();
  return added;
}

void NcclLedger::SetOver(const CutRankPtr& rank) {
  if (rank == nullptr) return;
  std::lock_guard<std::mutex> lock(mutex_);
  rank->over = true;
}

void NcclLedger::OpenMeeting(uint64_t meeting, const char* call) {
  std::lock_guard<std::mutex> lock(mutex_);
  Book().OpenMeeting(meeting, call);
}

void NcclLedger::CloseMeeting(uint64_t meeting) {
  std::lock_guard<std::mutex> lock(mutex_);
  Book().CloseMeeting(meeting);
}

Status NcclLedger::Settle(const Deadline& deadline, const Knowledge& knowledge,
                          std::vector<TaskBlocker>* blockers) {
  Quiet quiet;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Book().ForgetHeld();
  }
  for (;;) {
    const uint32_t events = libraries::LibraryGateEvents();
    knowledge.poll();
    const std::vector<HeldCall> held = libraries::HeldCalls();
    const bool inside = SomebodyIsInside();
    if (!inside) RETURN_IF_ERROR(knowledge.check());
    bool polling;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      TakeHeld(held, knowledge);
      if (!inside && Book().Settled()) return {};
      (void)Book().Admit();
      if (quiet.Over(events)) (void)Book().AdmitAll();
      if (deadline.Expired()) return Lacking(Book().Missing(), blockers);
      polling = Book().HasMeetings();
    }
    LetPass(held);
    const MonotonicTime next = Clock::Real().Now() + (polling ? kPoll : kQuiet);
    libraries::AwaitLibraryGate(events, Deadline::At(std::min(next, deadline.when())));
  }
}

// With mutex_ held.
void NcclLedger::TakeHeld(const std::vector<HeldCall>& held, const Knowledge& knowledge) {
  for (const HeldCall& call : held) {
    if (!IsNccl(call)) continue;
    CutThreadPtr thread = Book().FindThread(call.tid);
    if (thread == nullptr) {
      thread = std::make_shared<CutThread>();
      thread->tid = call.tid;
      Book().AddThread(thread);
    }
    if (thread->held && thread->held_id == call.id) continue;
    Book().Hold(*thread, knowledge.describe(call));
    thread->held_id = call.id;
  }
}

// Of other libraries all calls go on as long as the ranks are not at the cut: what is missing may come behind
// them, and they wait for nobody.
void NcclLedger::LetPass(const std::vector<HeldCall>& held) {
  for (const HeldCall& call : held) {
    bool pass = !IsNccl(call);
    if (!pass) {
      std::lock_guard<std::mutex> lock(mutex_);
      const CutThreadPtr thread = Book().FindThread(call.tid);
      pass = thread != nullptr && thread->held_id == call.id && thread->admitted;
    }
    if (pass) (void)libraries::AdmitHeldCall(call.id);
  }
}

Counters NcclLedger::IssuedBy(const CutRank& rank) {
  std::lock_guard<std::mutex> lock(mutex_);
  return rank.issued;
}

void NcclLedger::SetTarget(CutRank& rank, const Counters& target) {
  std::lock_guard<std::mutex> lock(mutex_);
  rank.target = target;
}

void NcclLedger::ResetAfterFork() {
  new (&mutex_) std::mutex;
  if (cut_ == nullptr) return;
  cut_->Reset();
  // The child's only thread may have been inside of a group; that group is the parent's.
  if (t_thread == nullptr) return;
  *t_thread = std::make_shared<CutThread>();
  (*t_thread)->tid = gettid();
  cut_->AddThread(*t_thread);
}

}  // namespace stasis::nccl
