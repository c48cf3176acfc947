#include "coordinator/agent/signal_job.h"

#include <algorithm>
#include <csignal>
#include <iterator>

#include "coordinator/node/task.h"

namespace stasis {
namespace {

constexpr int kSignals[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGKILL};

// Of the ranks that live.
Result<std::vector<TaskFacts>> ReadLiving(const v1::Job& job, const Folders& folders) {
  std::vector<TaskFacts> living;
  for (const v1::Rank& rank : job.ranks()) {
    Result<TaskFacts> facts = ReadTaskFacts(TaskPaths(folders, rank.task()));
    if (facts.status().code() == StatusCode::kNotFound) continue;
    if (!facts.ok()) return facts.status();
    if (IsLive(DeriveCondition(*facts).condition)) living.push_back(*std::move(facts));
  }
  return living;
}

// stasis-init passes signals on to the program. SIGKILL would reach stasis-init only; where that is the first
// of a PID namespace all ends with it, else the program's group is killed, and it ends after that.
Status Send(const Json& process, int signal) {
  ProcessIdentity init = IdentityOf(process);
  auto program = static_cast<pid_t>(IntegerField(process, "pid"));
  ASSIGN_OR_RETURN(const bool alive, CheckAlive(init));
  if (!alive) return Status();
  if (signal != SIGKILL || program <= 1) {
    kill(init.pid, signal);
    return Status();
  }
  kill(-program, signal);
  kill(program, signal);
  return Status();
}

}  // namespace

Result<bool> SignalJob(const Site& site, const v1::Job& job, int signal) {
  if (std::find(std::begin(kSignals), std::end(kSignals), signal) == std::end(kSignals))
    return Errorf(StatusCode::kInvalidArgument, "signal %d is not passed on", signal);
  ASSIGN_OR_RETURN(const std::vector<TaskFacts> living, ReadLiving(job, site.folders));
  if (living.empty()) return Errorf(StatusCode::kFailedPrecondition, "%s does not run", job.name().c_str());
  bool paused = std::any_of(living.begin(), living.end(), [](const TaskFacts& facts) {
    return DeriveCondition(facts).condition == TaskCondition::kPaused;
  });
  if (paused) return true;
  for (const TaskFacts& facts : living) RETURN_IF_ERROR(Send(facts.process, signal));
  return false;
}

}  // namespace stasis
