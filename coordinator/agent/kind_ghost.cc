#include "coordinator/agent/kind_ghost.h"

#include <random>

#include "base/files.h"
#include "coordinator/job_result.h"
#include "coordinator/moved_mark.h"
#include "coordinator/node/ghost_client.h"
#include "coordinator/node/job.h"

namespace stasis {
namespace {

using Verb = JobRequest::Verb;

std::string RestoreRemedy(const std::string& name, const TaskView& view) {
  if (view.last_image.empty()) return "";
  return "`stasis restore " + name + "` brings it back from image " + view.last_image;
}

// What became of a task whose ghost has given no answer.
std::string LeftOfTask(const TaskPaths& paths) {
  Result<TaskFacts> facts = ReadTaskFacts(paths);
  if (!facts.ok()) return "in-doubt";
  TaskCondition condition = DeriveCondition(*facts).condition;
  if (condition == TaskCondition::kRunning) return "rolled-back";
  if (condition == TaskCondition::kPaused) return "paused";
  return IsLive(condition) ? "in-doubt" : "lost";
}

bool IsReached(Verb verb, TaskCondition condition) {
  switch (verb) {
    case Verb::kPause:
      return condition == TaskCondition::kPaused;
    case Verb::kResume:
    case Verb::kRestore:
      return condition == TaskCondition::kRunning;
    case Verb::kCancel:
      return !IsLive(condition);
    default:
      return false;
  }
}

// The ghost that has done it was killed before it could say so.
Json TakeGoal(Verb verb, const TaskPaths& paths, Json result) {
  std::string code = TextField(result, "code");
  bool there_already = code == StatusCodeName(StatusCode::kFailedPrecondition) ||
                       code == StatusCodeName(StatusCode::kAlreadyExists);
  Result<TaskFacts> facts = ReadTaskFacts(paths);
  if (!there_already || !facts.ok() || !IsReached(verb, DeriveCondition(*facts).condition)) return result;
  return {{"ok", true},
          {"verb", JobVerbName(verb)},
          {"notes",
           {"the agent was started anew meanwhile, and has found it so: " + TextField(result, "message")}}};
}

}  // namespace

Json GhostKind::Failed(const Status& status, const std::string& remedy) const {
  return FailureJson(JobVerbName(verb_), status, remedy);
}

// Of what still lives here nobody knows yet whether it goes on here or there.
Status GhostKind::TakeBack(const std::string& job) const {
  std::vector<std::string> tasks = {job};
  if (IsJob(site_.folders, job)) {
    ASSIGN_OR_RETURN(const JobRecord record, ReadJobRecord(site_.folders.state, job));
    tasks.clear();
    for (int rank = 0; rank < record.ranks(); ++rank) tasks.push_back(record.TaskOf(rank));
  }
  for (const std::string& task : tasks) {
    const Result<TaskFacts> facts = ReadTaskFacts(TaskPaths(site_.folders, task));
    if (!facts.ok() && facts.status().code() != StatusCode::kNotFound) return facts.status();
    if (!facts.ok()) continue;
    const TaskCondition condition = DeriveCondition(*facts).condition;
    if (IsLive(condition))
      return Errorf(StatusCode::kFailedPrecondition, "%s lives: it is %s", task.c_str(),
                    TaskConditionName(condition));
  }
  for (const std::string& task : tasks) RETURN_IF_ERROR(UnmarkMoved(TaskPaths(site_.folders, task).folder));
  if (taken_back_) taken_back_(job);
  return Status();
}

Json GhostKind::Carry(OperationContext& context) {
  Result<GhostAsk> ask = read_(context.request());
  if (!ask.ok()) return Failed(ask.status());
  if (Status named = CheckTaskName(context.job()); !named.ok()) return Failed(named);
  if (ask->take_back) {
    if (Status taken = TakeBack(context.job()); !taken.ok())
      return Failed(taken, RemedyOfDamage(context.job(), taken));
  }
  if (!IsJob(site_.folders, context.job())) return CarryTask(context, *ask, false);
  Result<Json> before = JobBefore(site_.folders, context.job());
  Status kept = before.ok() ? context.Remember(*before) : before.status();
  return kept.ok() ? CarryJob(context, *ask) : Failed(kept, RemedyOfDamage(context.job(), kept));
}

Json GhostKind::Recover(OperationContext& context) {
  Result<GhostAsk> ask = read_(context.request());
  if (!ask.ok()) return Failed(ask.status());
  if (!IsJob(site_.folders, context.job()))
    return TakeGoal(verb_, TaskPaths(site_.folders, context.job()), CarryTask(context, *ask, true));
  Json before = context.remembered();
  // It was killed before it did anything.
  if (before.empty()) return Carry(context);
  Result<JobRecord> record = ReadJobRecord(site_.folders.state, context.job());
  if (!record.ok()) return Failed(record.status());
  LedJobOperation led(context, site_, *std::move(record));
  return RecoverJob(led, ask->job, before, site_.folders);
}

// Asks before a ghost is started. One that may have done it already is asked in any case.
Status GhostKind::CheckTask(const TaskPaths& paths, const GhostAsk& ask, bool again,
                            std::string* remedy) const {
  Result<TaskFacts> facts = ReadTaskFacts(paths);
  if (!facts.ok()) {
    if (facts.status().code() == StatusCode::kNotFound) *remedy = "`stasis ps --all` lists the tasks";
    *remedy += RemedyOfDamage(paths.name, facts.status());
    return facts.status();
  }
  if (Status alone = RefuseRank(paths, facts->task, JobVerbName(verb_)); !alone.ok()) {
    *remedy = RankRemedy(facts->task, JobVerbName(verb_));
    return alone;
  }
  if (ask.only_jobs) return Status(StatusCode::kInvalidArgument, "attempts are for jobs of several ranks");
  TaskView view = DeriveCondition(*facts);
  if (again || verb_ == Verb::kRestore || IsLive(view.condition)) return Status();
  *remedy = RestoreRemedy(paths.name, view);
  return Errorf(StatusCode::kFailedPrecondition, "%s does not run: it is %s", paths.name.c_str(),
                TaskConditionName(view.condition));
}

// The ghost knows the operation by its token: asked again, it gives the same answer.
Json GhostKind::CarryTask(OperationContext& context, const GhostAsk& ask, bool again) {
  TaskPaths paths(site_.folders, context.job());
  std::string remedy;
  if (Status fit = CheckTask(paths, ask, again, &remedy); !fit.ok()) return Failed(fit, remedy);
  if (Status made = MakeFolders(paths.ctl); !made.ok()) return Failed(made);
  Json request = ask.task;
  request["operation"] = context.token();
  Result<Json> result = AskGhost(paths, site_, request, context.interrupt(),
                                 [&](const Json& event) { context.TakeEvent("", event); });
  if (result.ok()) return *result;
  Json failed = Failed(result.status());
  failed["left"] = LeftOfTask(paths);
  return failed;
}

Json GhostKind::CarryJob(OperationContext& context, const GhostAsk& ask) {
  Result<JobRecord> record = ReadJobRecord(site_.folders.state, context.job());
  if (!record.ok()) return Failed(record.status());
  LedJobOperation led(context, site_, *std::move(record));
  return led.Run(ask.job);
}

LedJobOperation::LedJobOperation(OperationContext& context, const Site& site, JobRecord record)
    : context_(context), site_(site), record_(std::move(record)) {}

JobOperation LedJobOperation::Make(int attempts) {
  JobWatcher watcher;
  watcher.interrupt = &context_.interrupt();
  watcher.on_event = [this](int rank, const Json& event) { context_.TakeEvent(record_.TaskOf(rank), event); };
  watcher.on_attempt = [this, attempts](int attempt, const std::string& why) {
    context_.Note("attempt " + std::to_string(attempt) + " of " + std::to_string(attempts) +
                  " did not work, and all ranks run on: " + why);
  };
  JobPlace place{site_.folders.state, site_.folders.run, site_.files.ghost};
  return JobOperation(place, record_, watcher);
}

Json LedJobOperation::Run(JobRequest request) {
  request.seed = std::random_device()();
  for (int rank = 0; rank < record_.ranks(); ++rank) {
    Status made = MakeFolders(TaskPaths(site_.folders, record_.TaskOf(rank)).ctl);
    if (!made.ok()) return FailureJson(JobVerbName(request.verb), made, "");
  }
  return Make(request.attempts).Run(request);
}

Result<std::vector<RankStand>> LedJobOperation::AwaitRest() { return Make(1).AwaitRest(); }

}  // namespace stasis
