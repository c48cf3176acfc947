// `stasis logs`: what a task, or each rank of a job, has printed.
#include <unistd.h>

#include <algorithm>

#include "cli/foreground.h"
#include "cli/job_follow.h"
#include "cli/verbs.h"
#include "coordinator/node/job.h"
#include "coordinator/node/task.h"

namespace stasis {
namespace {

// The one task that a verb is about.
Result<TaskFacts> FindTask(const Options& options, Context& context, TaskPaths* paths) {
  RETURN_IF_ERROR(CheckTaskName(options.name));
  context.reporter.set_task(options.name);
  *paths = TaskPaths(context.folders, options.name);
  return ReadTaskFacts(*paths);
}

// One rank after the other, as nothing tells when a line was printed.
Status CopyRank(const TaskPaths& paths, int rank) {
  ASSIGN_OR_RETURN(LogFollower log, LogFollower::Open(paths.File("output.log"), 0));
  RankLines lines(rank);
  ASSIGN_OR_RETURN(bool read, log.Pump([&](std::string_view bytes) {
    return WriteOutput(STDOUT_FILENO, lines.Take(bytes));
  }));
  if (!read) return Status(StatusCode::kPeerDied, "nobody reads the output");
  return WriteOutput(STDOUT_FILENO, lines.Finish()).status();
}

Result<Json> RankOutputs(const JobFacts& job, const Context& context) {
  Json ranks = Json::array();
  for (int rank = 0; rank < job.record.ranks(); rank++) {
    TaskPaths paths(context.folders, job.record.TaskOf(rank));
    if (!job.ranks[static_cast<size_t>(rank)].on_record) continue;
    ASSIGN_OR_RETURN(std::string text, ReadFile(paths.File("output.log")));
    ranks.push_back(
        {{"rank", rank}, {"task", paths.name}, {"log", paths.File("output.log")}, {"output", text}});
  }
  return ranks;
}

Status CopyRanks(const JobFacts& job, const Context& context) {
  for (int rank = 0; rank < job.record.ranks(); rank++) {
    if (!job.ranks[static_cast<size_t>(rank)].on_record) continue;
    RETURN_IF_ERROR(CopyRank(TaskPaths(context.folders, job.record.TaskOf(rank)), rank));
  }
  return Status();
}

Status FollowRanks(const JobFacts& job, const Context& context) {
  std::vector<TaskPaths> tasks;
  std::vector<JobFollower::Start> starts;
  for (int rank = 0; rank < job.record.ranks(); rank++) {
    tasks.emplace_back(context.folders, job.record.TaskOf(rank));
    starts.push_back({IdentityOf(job.ranks[static_cast<size_t>(rank)].facts.process), 0});
  }
  ASSIGN_OR_RETURN(JobFollower follower, JobFollower::Create(std::move(tasks)));
  ASSIGN_OR_RETURN(SignalSource signals, SignalSource::Create());
  JobFollowOptions options;
  options.stop_when_unread = true;
  options.on_signal = [](int signal) { _exit(128 + signal); };
  options.on_end = [](const RankEnd&) {};
  options.on_alarm = [] {};
  return follower.Follow(starts, signals, options);
}

int LogsOfJob(const Options& options, Context& context) {
  context.reporter.set_task(options.name);
  Result<JobFacts> job = ReadJobFacts(context.folders, options.name);
  if (!job.ok()) return context.reporter.Fail(job.status());
  if (context.reporter.json()) {
    Result<Json> ranks = RankOutputs(*job, context);
    if (!ranks.ok()) return context.reporter.Fail(ranks.status());
    return context.reporter.Done({{"ranks", *ranks}}, "");
  }
  JobView view = DeriveJobView(job->ranks);
  bool whole =
      std::all_of(job->ranks.begin(), job->ranks.end(), [](const RankFacts& rank) { return rank.on_record; });
  Status copied =
      options.follow && view.live && whole ? FollowRanks(*job, context) : CopyRanks(*job, context);
  bool unread = copied.code() == StatusCode::kPeerDied;
  return copied.ok() || unread ? kExitOk : context.reporter.Fail(copied);
}

}  // namespace

int LogsVerb(const Options& options, Context& context) {
  if (IsJob(context.folders, options.name)) return LogsOfJob(options, context);
  TaskPaths paths(context.folders, "");
  Result<TaskFacts> facts = FindTask(options, context, &paths);
  if (!facts.ok()) return context.reporter.Fail(facts.status());
  std::string path = paths.File("output.log");
  if (context.reporter.json()) {
    Result<std::string> text = ReadFile(path);
    if (!text.ok()) return context.reporter.Fail(text.status());
    return context.reporter.Done({{"log", path}, {"output", *text}}, "");
  }
  Result<LogFollower> log = LogFollower::Open(path, 0);
  if (!log.ok()) return context.reporter.Fail(log.status());
  if (!options.follow || !facts->alive) {
    Result<bool> copied = log->Pump(STDOUT_FILENO);
    return copied.ok() ? kExitOk : context.reporter.Fail(copied.status());
  }
  Result<TaskFollower> follower = TaskFollower::Create(paths);
  if (!follower.ok()) return context.reporter.Fail(follower.status());
  Result<SignalSource> signals = SignalSource::Create();
  if (!signals.ok()) return context.reporter.Fail(signals.status());
  FollowOptions follow;
  follow.stop_when_unread = true;
  // Who only looks must not end the task by leaving.
  follow.on_signal = [](int signal) { _exit(128 + signal); };
  Result<FollowResult> result = follower->Follow(IdentityOf(facts->process), *signals, follow);
  bool unread = !result.ok() && result.status().code() == StatusCode::kPeerDied;
  return result.ok() || unread ? kExitOk : context.reporter.Fail(result.status());
}

}  // namespace stasis
