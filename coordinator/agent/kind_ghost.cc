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

// Of what is remembered: what was marked as handed over before it was taken back.
constexpr char kMarks[] = "moved";

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

Result<std::vector<std::string>> GhostKind::TasksOf(const std::string& job) const {
  if (!IsJob(site_.folders, job)) return std::vector<std::string>{job};
  ASSIGN_OR_RETURN(const JobRecord record, ReadJobRecord(site_.folders.state, job));
  std::vector<std::string> tasks;
  for (int rank = 0; rank < record.ranks(); ++rank) tasks.push_back(record.TaskOf(rank));
  return tasks;
}

// "train lives: it is running"; "": nothing of it lives here.
Result<std::string> GhostKind::LiveTaskOf(const std::string& job) const {
  ASSIGN_OR_RETURN(const std::vector<std::string> tasks, TasksOf(job));
  for (const std::string& task : tasks) {
    const Result<TaskFacts> facts = ReadTaskFacts(TaskPaths(site_.folders, task));
    if (!facts.ok() && facts.status().code() != StatusCode::kNotFound) return facts.status();
    if (!facts.ok()) continue;
    const TaskCondition condition = DeriveCondition(*facts).condition;
    if (IsLive(condition)) return task + " lives: it is " + TaskConditionName(condition);
  }
  return std::string();
}

// By task, the node that it was handed over to. Of what still lives here nobody knows yet whether it goes on
// here or there.
Result<Json> GhostKind::MarksToTake(const std::string& job) const {
  ASSIGN_OR_RETURN(const std::string live, LiveTaskOf(job));
  if (!live.empty()) return Status(StatusCode::kFailedPrecondition, live);
  ASSIGN_OR_RETURN(const std::vector<std::string> tasks, TasksOf(job));
  Json marks = Json::object();
  for (const std::string& task : tasks) {
    const std::string node = MovedTo(TaskPaths(site_.folders, task).folder);
    if (!node.empty()) marks[task] = node;
  }
  return marks;
}

Status GhostKind::TakeBack(const std::string& job) const {
  ASSIGN_OR_RETURN(const std::vector<std::string> tasks, TasksOf(job));
  for (const std::string& task : tasks) {
    const std::string folder = TaskPaths(site_.folders, task).folder;
    // Nor is it any more what had come from a node that may ask for it.
    RETURN_IF_ERROR(UnmarkCame(folder));
    RETURN_IF_ERROR(UnmarkMoved(folder));
  }
  if (set_moved_to_) set_moved_to_(job, "");
  return Status();
}

// What could not be brought back may still run there.
Json GhostKind::OrGivenBack(const std::string& job, const Json& before, Json result) const {
  if (BoolField(result, "ok")) return result;
  const Result<std::string> live = LiveTaskOf(job);
  if (!live.ok() || !live->empty()) return result;
  std::string there;
  const auto marks = before.find(kMarks);
  if (marks == before.end() || !marks->is_object()) return result;
  for (const auto& [task, node] : marks->items()) {
    if (!node.is_string()) continue;
    there = node.get<std::string>();
    Status marked = MarkMoved(TaskPaths(site_.folders, task).folder, there);
    if (!marked.ok()) AddNote(task + " is not marked as handed over any more: " + marked.ToString(), &result);
  }
  if (!there.empty() && set_moved_to_) set_moved_to_(job, there);
  return result;
}

// Who cancels a job, or takes it back, says that no other node is to have it.
bool GhostKind::decides(const std::string& request) const {
  if (verb_ == Verb::kCancel) return true;
  Result<GhostAsk> ask = read_(request);
  return ask.ok() && ask->take_back;
}

Json GhostKind::Carry(OperationContext& context) {
  Result<GhostAsk> ask = read_(context.request());
  if (!ask.ok()) return Failed(ask.status());
  const std::string job = context.job();
  if (Status named = CheckTaskName(job); !named.ok()) return Failed(named);
  const bool ranked = IsJob(site_.folders, job);
  Result<Json> before = ranked ? JobBefore(site_.folders, job) : Json::object();
  if (!before.ok()) return Failed(before.status(), RemedyOfDamage(job, before.status()));
  if (ask->take_back) {
    Result<Json> marks = MarksToTake(job);
    if (!marks.ok()) return Failed(marks.status(), RemedyOfDamage(job, marks.status()));
    (*before)[kMarks] = *std::move(marks);
  }
  if (!before->empty()) {
    if (Status kept = context.Remember(*before); !kept.ok()) return Failed(kept, RemedyOfDamage(job, kept));
  }
  if (!ask->take_back) return ranked ? CarryJob(context, *ask) : CarryTask(context, *ask, false);
  if (Status taken = TakeBack(job); !taken.ok()) return Failed(taken, RemedyOfDamage(job, taken));
  return OrGivenBack(job, *before, ranked ? CarryJob(context, *ask) : CarryTask(context, *ask, false));
}

Json GhostKind::Recover(OperationContext& context) {
  Result<GhostAsk> ask = read_(context.request());
  if (!ask.ok()) return Failed(ask.status());
  const std::string job = context.job();
  const Json before = context.remembered();
  if (!ask->take_back) return RecoverAsked(context, *ask, before);
  // It was killed before it did anything.
  if (before.empty()) return Carry(context);
  // The marks may be there: it was killed before they were taken away, or when they were put back.
  const Result<std::string> live = LiveTaskOf(job);
  Status taken = live.status();
  if (live.ok() && live->empty()) taken = TakeBack(job);
  if (!taken.ok()) return Failed(taken, RemedyOfDamage(job, taken));
  return OrGivenBack(job, before, RecoverAsked(context, *ask, before));
}

Json GhostKind::RecoverAsked(OperationContext& context, const GhostAsk& ask, const Json& before) {
  if (!IsJob(site_.folders, context.job()))
    return TakeGoal(verb_, TaskPaths(site_.folders, context.job()), CarryTask(context, ask, true));
  // It was killed before it did anything.
  if (before.empty()) return Carry(context);
  Result<JobRecord> record = ReadJobRecord(site_.folders.state, context.job());
  if (!record.ok()) return Failed(record.status());
  LedJobOperation led(context, site_, *std::move(record));
  return RecoverJob(led, ask.job, before, site_.folders);
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
