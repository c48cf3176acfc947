// The agent was killed while it started something. Until it has let a program go, the program waits before
// its first instruction, and ends with the agent: nothing has been done that a second start would do again.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/files.h"
#include "base/process.h"
#include "coordinator/agent/kind_run.h"
#include "coordinator/job_result.h"
#include "coordinator/node/init_protocol.h"
#include "coordinator/node/job.h"

namespace stasis {
namespace {

constexpr Duration kStartTime = std::chrono::seconds(30), kEndTime = std::chrono::seconds(30);
constexpr Duration kLookAgain = std::chrono::milliseconds(10);

std::string ExecutableOf(int64_t pid) {
  Result<std::string> link = ReadLink(fmt::format("/proc/{}/exe", pid));
  return link.ok() ? *link : "";
}

// The program has become what it is to be: until then it is a child of stasis-init like itself.
bool IsExecuted(const Json& process) {
  std::string init = ExecutableOf(IntegerField(process, "init_pid"));
  std::string program = ExecutableOf(IntegerField(process, "pid"));
  return !init.empty() && !program.empty() && init != program;
}

// What was being written when the agent was killed may be anything; what cannot be looked at is not nothing.
bool Cannot(const Status& read) {
  return !read.ok() && read.code() != StatusCode::kNotFound && read.code() != StatusCode::kCorrupt;
}

Status AwaitEnd(const ProcessIdentity& init, Duration longest) {
  Result<Fd> process = OpenPidFd(init);
  if (process.status().code() == StatusCode::kNotFound) return Status();
  if (!process.ok()) return process.status();
  pollfd wait{process->get(), POLLIN, 0};
  Deadline deadline = Deadline::After(longest);
  while (poll(&wait, 1, deadline.PollTimeout()) < 0 && errno == EINTR) {
  }
  return wait.revents != 0 ? Status() : Status(StatusCode::kTimeout, "a process of the task does not end");
}

// No event tells that a process has executed another program.
Status AwaitExecutedOrEnded(const Json& process) {
  ProcessIdentity init = IdentityOf(process);
  Deadline deadline = Deadline::After(kStartTime);
  for (;;) {
    ASSIGN_OR_RETURN(const bool alive, CheckAlive(init));
    if (!alive || IsExecuted(process)) return Status();
    if (deadline.Expired()) return Status(StatusCode::kTimeout, "the program neither starts nor ends");
    (void)AwaitEnd(init, kLookAgain);
  }
}

void Forget(const TaskPaths& paths) {
  (void)RemoveTree(paths.run);
  (void)RemoveTree(paths.folder);
}

Status EndTask(const TaskPaths& paths) {
  Result<Json> process = ReadJson(paths.File("process.json"));
  if (process.status().code() == StatusCode::kNotFound) return Status();
  if (!process.ok()) return process.status();
  ProcessIdentity init = IdentityOf(*process);
  ASSIGN_OR_RETURN(const bool alive, CheckAlive(init));
  if (!alive) return Status();
  auto program = static_cast<pid_t>(IntegerField(*process, "pid"));
  // Without a PID namespace nothing ends with stasis-init.
  if (program > 1) (void)kill(-program, SIGKILL);
  (void)kill(init.pid, SIGKILL);
  return AwaitEnd(init, kEndTime);
}

struct Remains {
  std::vector<TaskPaths> tasks;
  std::vector<StartStand> stands;
  size_t Count(StartStand stand) const {
    return static_cast<size_t>(std::count(stands.begin(), stands.end(), stand));
  }
};

Result<Remains> FindRemains(const std::string& name, int ranks, const std::string& token,
                            const Folders& folders) {
  Remains remains;
  for (int rank = 0; rank < std::max(1, ranks); rank++) {
    remains.tasks.emplace_back(folders, ranks > 0 ? RankName(name, rank) : name);
    ASSIGN_OR_RETURN(StartStand stand, StandOfStart(remains.tasks.back(), token));
    remains.stands.push_back(stand);
  }
  return remains;
}

}  // namespace

Result<StartStand> StandOfStart(const TaskPaths& paths, const std::string& token) {
  Result<Json> task = ReadJson(paths.File("task.json"));
  if (Cannot(task.status())) return task.status();
  if (!task.ok()) return StartStand::kNothing;
  if (TextField(*task, "operation") != token) return StartStand::kForeign;
  Result<Json> process = ReadJson(paths.File("process.json"));
  if (Cannot(process.status())) return process.status();
  if (!process.ok()) return StartStand::kNothing;
  RETURN_IF_ERROR(AwaitExecutedOrEnded(*process));
  ASSIGN_OR_RETURN(const bool alive, CheckAlive(IdentityOf(*process)));
  if (alive) return StartStand::kStarted;
  return Exists(paths.File("exit.json") + kUnstartedSuffix) ? StartStand::kNothing : StartStand::kStarted;
}

Json RunKind::RolledBack(OperationContext& context, const v1::RunRequest& request) {
  std::string name = TextField(context.remembered(), "name");
  Status gone;
  for (int rank = 0; rank < static_cast<int>(request.ranks()); rank++) {
    TaskPaths paths(site_.folders, RankName(name, rank));
    if (Status ended = EndTask(paths); !ended.ok()) gone = ended;
    if (gone.ok()) Forget(paths);
  }
  if (gone.ok()) (void)RemoveTree(JobFolder(site_.folders, name));
  Json result = FailureJson("run",
                            Status(StatusCode::kUnavailable,
                                   "the agent was killed while some ranks began, and before the others did"),
                            "run it again");
  result["left"] = gone.ok() ? "rolled-back" : "in-doubt";
  if (!gone.ok()) AddNote(gone.ToString(), &result);
  return result;
}

Json RunKind::Recover(OperationContext& context) {
  v1::RunRequest request;
  std::string name = TextField(context.remembered(), "name");
  if (!request.ParseFromString(context.request()) || name.empty()) return Carry(context);
  int ranks = static_cast<int>(request.ranks());
  Result<Remains> remains = FindRemains(name, ranks, context.token(), site_.folders);
  if (!remains.ok()) {
    Json result = FailureJson("run", remains.status(), "");
    result["left"] = "in-doubt";
    return result;
  }
  // Another one was quicker with the name.
  if (remains->Count(StartStand::kForeign) > 0) return Carry(context);
  size_t started = remains->Count(StartStand::kStarted);
  if (started == remains->tasks.size()) {
    context.SetJob(name);
    return Succeed(context, request);
  }
  if (started > 0) return RolledBack(context, request);
  for (const TaskPaths& paths : remains->tasks) Forget(paths);
  if (ranks > 0) (void)RemoveTree(JobFolder(site_.folders, name));
  return Carry(context);
}

}  // namespace stasis
