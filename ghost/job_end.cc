// The end of a task: on request, or by itself while it is held.
#include <signal.h>
#include <sys/wait.h>

#include <cerrno>

#include "ghost/child.h"
#include "ghost/job.h"
#include "ghost/proc.h"

namespace stasis {
namespace {

constexpr std::chrono::seconds kKillTime(30);
constexpr std::chrono::seconds kLeftThawTime(5);

void KillAll(const std::vector<pid_t>& tree) {
  for (pid_t pid : tree) (void)kill(pid, SIGKILL);
}

}  // namespace

// The first process takes the others of its PID namespace with it; without one each is ended by itself.
Status Job::KillTree(pid_t root) {
  Deadline deadline = Deadline::After(kKillTime);
  for (;;) {
    Result<std::vector<pid_t>> tree = ProcessTree(root);
    if (tree.status().code() == StatusCode::kNotFound) break;
    if (!tree.ok()) return tree.status();
    KillAll(*tree);
    RETURN_IF_ERROR(WaitProcess(root, deadline));
  }
  // A restored task's first process is a child of ours.
  while (waitpid(root, nullptr, WNOHANG) < 0 && errno == EINTR) continue;
  return Status();
}

Status Job::EndTask(Duration grace) {
  {
    std::lock_guard lock(mutex_);
    record_.ended_by = op_.request.verb == Verb::kCancel ? "cancel" : "checkpoint";
    if (op_.committed) record_.last_image = op_.image_id;
  }
  // Before the end: who waits for the task looks here as soon as it is gone.
  SetRecord("ended");
  int used = SIGKILL;
  // What ends by itself at this moment needs no signal.
  if (grace > Duration::zero() && !HasEnded(process_.init_pid)) {
    (void)kill(process_.init_pid, SIGTERM);
    if (WaitProcess(process_.init_pid, Deadline::After(grace)).ok()) used = SIGTERM;
  }
  RETURN_IF_ERROR(KillTree(process_.init_pid));
  op_.answer.fields["signal"] = used;
  holdings_.Clear();
  members_.clear();
  left_stopped_ = false;
  return Status();
}

Status Job::CancelTask() {
  if (phase_ == Phase::kAbsent) {
    return Status(StatusCode::kFailedPrecondition, "task " + config_.name + " has ended");
  }
  RETURN_IF_ERROR(ThawTree(frozen_, Deadline::After(kThawTime)));
  frozen_ = Frozen();
  // One that is gone may have left it in a cgroup, which would be there for ever.
  const Frozen left = FindFrozenTree(process_.init_pid, config_.name);
  // It does not thaw while a cgroup around it is frozen, and what is killed in it ends all the same.
  (void)ThawTree(left, Deadline::After(kLeftThawTime));
  RETURN_IF_ERROR(EndTask(op_.request.grace));
  RemoveFreezer(left);
  phase_ = Phase::kAbsent;
  in_doubt_ = false;
  guard_.Dismiss();
  op_.answer.fields["what"] = "task";
  return Status();
}

void Job::TaskEnded() {
  (void)ThawTree(frozen_, Deadline::After(kThawTime));
  frozen_ = Frozen();
  holdings_.Clear();
  members_.clear();
  phase_ = Phase::kAbsent;
  in_doubt_ = false;
  guard_.Dismiss();
  SetRecord("ended");
}

// A frozen first process cannot take note of the program's end.
void Job::ThawForTheEnd(const std::string& why) {
  Log(LogLevel::kInfo, why + ": thawing the task");
  (void)ThawTree(frozen_, Deadline::After(kThawTime));
  frozen_.thawed = true;
}

void Job::DeliverSignals() {
  if (frozen_.kind == FreezeKind::kNone || frozen_.thawed) return;
  if (HasEnded(process_.pid)) return ThawForTheEnd("the program has been killed");
  constexpr int kEnding[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGKILL};
  Result<std::vector<pid_t>> tree = ProcessTree(process_.init_pid);
  if (!tree.ok()) return;
  for (pid_t pid : *tree) {
    Result<ProcIds> ids = ReadProcIds(pid);
    if (!ids.ok()) continue;
    bool pending = false;
    for (int signal : kEnding) pending = pending || ((ids->pending_signals >> (signal - 1)) & 1);
    if (!pending) continue;
    return ThawForTheEnd("a signal waits for process " + Named(pid));
  }
}

}  // namespace stasis
