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

// Communicators that do not block tell their state when they are asked, and not by themselves.
constexpr std::chrono::milliseconds kPoll(2);
// The longest round, in times of quiet.
constexpr int kRound = 4;

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

// Tells when nothing has moved for so long.
class Stillness {
 public:
  explicit Stillness(Duration time) : time_(time), end_(Clock::Real().Now() + time) {}
  bool Over(uint32_t events) {
    const MonotonicTime now = Clock::Real().Now();
    if (events != events_) end_ = now + time_;
    events_ = events;
    return now >= end_;
  }
  MonotonicTime end() const { return end_; }

 private:
  const Duration time_;
  uint32_t events_ = 0;
  MonotonicTime end_;
};

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
  NoteMove(operation);
  // What this call waits for may be held.
  if (libraries::LibraryGateIsClosed()) libraries::NoteLibraryEvent();
  errno = saved_errno;
}

// The library gate tells the pause when the thread has passed out of it.
void NcclLedger::Leave(bool success) {
  std::lock_guard<std::mutex> lock(mutex_);
  NoteMove((*t_thread)->call);
  Book().Leave(**t_thread, success);
}

// With mutex_ held. Calls that need no other rank may be those of a thread that asks again and again.
void NcclLedger::NoteMove(const Operation& operation) {
  if (operation.kind != Operation::Kind::kLocal) ++moves_;
}

int NcclLedger::Depth() {
  std::lock_guard<std::mutex> lock(mutex_);
  return ThisThread()->depth;
}

CutRankPtr NcclLedger::AddRank(uint64_t clique_key, int size, int rank, const char* made_by) {
  std::lock_guard<std::mutex> lock(mutex_);
  CutRankPtr added = Book().AddRank(clique_key, size, rank, made_by);
  added->driver = ThisThread();
  return added;
}

void NcclLedger::SetOver(const CutRankPtr& rank) {
  if (rank == nullptr) return;
  std::lock_guard<std::mutex> lock(mutex_);
  Book().SetOver(*rank);
}

void NcclLedger::OpenMeeting(uint64_t meeting, const char* call) {
  std::lock_guard<std::mutex> lock(mutex_);
  Book().OpenMeeting(meeting, call);
  ++moves_;
}

void NcclLedger::CloseMeeting(uint64_t meeting) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Book().CloseMeeting(meeting);
    ++moves_;
  }
  if (libraries::LibraryGateIsClosed()) libraries::NoteLibraryEvent();
}

Status NcclLedger::Advance(const CutTargets& targets, Duration quiet, const Deadline& deadline,
                           const Knowledge& knowledge, CutReport* report) {
  Stillness stillness(quiet);
  // What moves here may depend on what another process has not been told yet.
  const Deadline round = Deadline::At(std::min(deadline.when(), Clock::Real().Now() + kRound * quiet));
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Book().ForgetHeld();
    Book().SetTargets(targets);
  }
  for (bool admit_all = targets.admit_all;; admit_all = false) {
    const uint32_t events = libraries::LibraryGateEvents();
    knowledge.poll();
    const std::vector<HeldCall> held = libraries::HeldCalls();
    const bool inside = SomebodyIsInside();
    if (!inside) RETURN_IF_ERROR(knowledge.check());
    bool polling;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      TakeHeld(held, knowledge);
      *report = Book().Report();
      report->settled = report->settled && !inside;
      report->events = moves_;
      polling = Book().HasMeetings();
      if (!report->settled) (void)Book().Admit();
      if (admit_all) (void)Book().AdmitAll();
    }
    if (report->settled && !admit_all) return {};
    LetPass(held);
    if (stillness.Over(report->events) || round.Expired()) break;
    const MonotonicTime next = std::min(stillness.end(), round.when());
    libraries::AwaitLibraryGate(events,
                                Deadline::At(polling ? std::min(next, Clock::Real().Now() + kPoll) : next));
  }
  if (report->missing.empty()) report->missing = libraries::LibraryCallsInside();
  return {};
}

CutReport NcclLedger::Report() {
  std::lock_guard<std::mutex> lock(mutex_);
  CutReport report = Book().Report();
  report.events = moves_;
  return report;
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
    if (thread->held_id != call.id) NoteMove(thread->call);
    thread->held_id = call.id;
  }
}

// Of other libraries all calls go on as long as the ranks are not at the cut: what is missing may come behind
// them, and they wait for nobody.
void NcclLedger::LetPass(const std::vector<HeldCall>& held) {
  for (const HeldCall& call : held)
    if (Passes(call)) (void)libraries::AdmitHeldCall(call.id);
}

bool NcclLedger::Passes(const HeldCall& call) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!IsNccl(call)) {
    ++moves_;
    return true;
  }
  const CutThreadPtr thread = Book().FindThread(call.tid);
  return thread != nullptr && thread->held_id == call.id && thread->admitted;
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
