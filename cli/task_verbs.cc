// The verbs that a task's ghost carries out: each is one request, its events shown as progress, and its
// result.
#include "cli/describe.h"
#include "cli/foreground.h"
#include "cli/job_verbs.h"
#include "cli/verbs.h"
#include "coordinator/job_result.h"
#include "coordinator/node/device_choice.h"
#include "coordinator/node/ghost_client.h"
#include "coordinator/node/image_names.h"
#include "coordinator/node/job.h"
#include "coordinator/node/subprocess.h"

namespace stasis {
namespace {

// A result that came, good or bad.
struct Answer {
  Json result;
  bool ok() const { return BoolField(result, "ok"); }
};

Json Request(const Options& options, const char* verb) {
  Json request = {{"verb", verb}};
  if (options.deadline) {
    request["deadline_ms"] = std::chrono::duration_cast<std::chrono::milliseconds>(*options.deadline).count();
  }
  if (options.wait_low) {
    request["wait_low_ms"] = std::chrono::duration_cast<std::chrono::milliseconds>(*options.wait_low).count();
  }
  if (!options.gpus.empty()) request["gpus"] = options.gpus;
  if (!options.pause_protocol.empty()) request["pause_protocol"] = options.pause_protocol;
  return request;
}

Result<Answer> Ask(const TaskPaths& paths, const Json& request, SignalSource& signals, Context& context) {
  auto on_event = [&](const Json& event) {
    if (TextField(event, "phase") == "begin") return;  // for whoever must know whether it has begun
    context.reporter.Progress(TextField(event, "phase"), static_cast<uint64_t>(IntegerField(event, "done")),
                              static_cast<uint64_t>(IntegerField(event, "total")));
  };
  ASSIGN_OR_RETURN(Json result, AskGhost(paths, context, request, signals, on_event));
  for (const std::string& note : TextsField(result, "notes")) {
    if (BoolField(result, "ok")) context.reporter.Note(note);
  }
  return Answer{result};
}

// Asks before a ghost is started whether there is such a task at all.
Result<TaskFacts> FindTask(const std::string& name, Context& context) {
  RETURN_IF_ERROR(CheckTaskName(name));
  context.reporter.set_task(name);
  return ReadTaskFacts(TaskPaths(context.folders, name));
}

int FailRank(const Status& alone, const Json& task, const Options& options, Context& context) {
  return context.reporter.FailWith(FailureJson(options.verb, alone, RankRemedy(task, options.verb)));
}

int FailUnknown(const Status& status, const Options& options, Context& context) {
  const bool unknown = status.code() == StatusCode::kNotFound;
  const std::string remedy =
      unknown ? "`stasis ps --all` lists the tasks" : RemedyOfDamage(options.name, status);
  return context.reporter.FailWith(FailureJson(options.verb, status, remedy));
}

int FailEnded(const Options& options, const TaskView& view, Context& context) {
  const std::string& name = options.name;
  std::string remedy;
  if (!view.last_image.empty())
    remedy = "`stasis restore " + name + "` brings it back from image " + view.last_image;
  Status status = Errorf(StatusCode::kFailedPrecondition, "%s does not run: it is %s", name.c_str(),
                         TaskConditionName(view.condition));
  return context.reporter.FailWith(FailureJson(options.verb, status, remedy));
}

int AskAndReport(const Options& options, const Json& request, Context& context) {
  Result<TaskFacts> facts = FindTask(options.name, context);
  if (!facts.ok()) return FailUnknown(facts.status(), options, context);
  Status plain = CheckNoJobOptions(options);
  if (!plain.ok()) return FailUnknown(plain, options, context);
  Status alone = RefuseRank(TaskPaths(context.folders, options.name), facts->task, options.verb);
  if (!alone.ok()) return FailRank(alone, facts->task, options, context);
  TaskView view = DeriveCondition(*facts);
  if (!IsLive(view.condition)) return FailEnded(options, view, context);
  Result<SignalSource> signals = SignalSource::Create();
  if (!signals.ok()) return context.reporter.Fail(signals.status());
  Result<Answer> answer = Ask(TaskPaths(context.folders, options.name), request, *signals, context);
  if (!answer.ok()) return context.reporter.Fail(answer.status());
  if (!answer->ok()) return context.reporter.FailWith(answer->result);
  return context.reporter.Done(answer->result, DescribeResult(options.verb, options.name, answer->result));
}

// With --gpus in the numbers of the driver that `task` has.
Result<Options> InDriversNumbers(Options options, const std::string& task, const Context& context) {
  constexpr auto kProbeTime = std::chrono::seconds(60);
  if (options.gpus.empty() || !CountsByPci(OwnEnvironment())) return options;
  Result<Json> record = ReadJson(TaskPaths(context.folders, task).File("task.json"));
  if (!record.ok()) return options;  // the verb says that there is no such task
  ASSIGN_OR_RETURN(DriverInfo driver,
                   ProbeDrivers(context.files.stasis, {TextField(*record, "driver")},
                                {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"}, Deadline::After(kProbeTime)));
  options.gpus = NumbersOfDriver(std::move(options.gpus), driver);
  return options;
}

// The same of a task or a job. A job's first rank is a task of this machine, or its numbers stay as they are.
Result<Options> InNumbersOf(const Options& options, const std::string& name, const Context& context) {
  if (!IsJob(context.folders, name)) return InDriversNumbers(options, name, context);
  ASSIGN_OR_RETURN(JobRecord record, ReadJobRecord(context.folders.state, name));
  return record.nodes.size() > 1 ? options : InDriversNumbers(options, record.TaskOf(0), context);
}

int StayWithRestored(const Options& options, const TaskPaths& paths, const Json& result,
                     TaskFollower& follower, SignalSource& signals, Context& context) {
  Result<Json> process = ReadJson(paths.File("process.json"));
  if (!process.ok()) return context.reporter.Fail(process.status());
  ForegroundTask task{paths,
                      IdentityOf(*process),
                      static_cast<uint64_t>(IntegerField(result, "log_length")),
                      false,
                      result,
                      options.checkpoint_on,
                      options.forget};
  return StayInForeground(task, follower, signals, context);
}

}  // namespace

int PauseVerb(const Options& options, Context& context) {
  if (IsJob(context.folders, options.name)) return JobPauseVerb(options, context);
  Json request = Request(options, "pause");
  request["residency"] = options.residency;
  if (options.no_freeze) request["freeze"] = false;
  return AskAndReport(options, request, context);
}

int ResumeVerb(const Options& given, Context& context) {
  Result<Options> counted = InNumbersOf(given, given.name, context);
  if (!counted.ok()) return context.reporter.Fail(counted.status());
  const Options& options = *counted;
  if (IsJob(context.folders, options.name)) return JobResumeVerb(options, context);
  return AskAndReport(options, Request(options, "resume"), context);
}

int CheckpointVerb(const Options& options, Context& context) {
  if (IsJob(context.folders, options.name)) return JobCheckpointVerb(options, context);
  Json request = Request(options, "checkpoint");
  if (options.stop) request["stop"] = true;
  request["snapshot"] = options.snapshot;
  request["device_hash"] = options.device_hash;
  request["snapshot_host_percent"] = options.snapshot_host_share;
  return AskAndReport(options, request, context);
}

int MigrateVerb(const Options& given, Context& context) {
  Result<Options> counted = InNumbersOf(given, given.name, context);
  if (!counted.ok()) return context.reporter.Fail(counted.status());
  const Options& options = *counted;
  if (IsJob(context.folders, options.name)) return JobMigrateVerb(options, context);
  return AskAndReport(options, Request(options, "migrate"), context);
}

int CancelVerb(const Options& options, Context& context) {
  if (IsJob(context.folders, options.name)) return JobCancelVerb(options, context);
  Json request = {{"verb", "cancel"}, {"what", options.operation ? "operation" : "task"}};
  if (options.grace) {
    request["grace_ms"] = std::chrono::duration_cast<std::chrono::milliseconds>(*options.grace).count();
  }
  return AskAndReport(options, request, context);
}

int RestoreVerb(const Options& given, Context& context) {
  Reporter& reporter = context.reporter;
  Result<ImageName> choice = ParseImageName(given.target, context.folders);
  if (!choice.ok()) return reporter.Fail(choice.status());
  Result<Options> counted = InNumbersOf(given, choice->task, context);
  if (!counted.ok()) return reporter.Fail(counted.status());
  const Options& options = *counted;
  if (IsJob(context.folders, choice->task)) return JobRestoreVerb(*choice, options, context);
  Result<TaskFacts> facts = FindTask(choice->task, context);
  if (!facts.ok()) return FailUnknown(facts.status(), options, context);
  Status plain = CheckNoJobOptions(options);
  if (!plain.ok()) return FailUnknown(plain, options, context);
  TaskPaths paths(context.folders, choice->task);
  Status alone = RefuseRank(paths, facts->task, options.verb);
  if (!alone.ok()) return FailRank(alone, facts->task, options, context);
  Status made = MakeFolders(paths.ctl);
  if (!made.ok()) return reporter.Fail(made);
  Result<SignalSource> signals = SignalsOf(options);
  if (!signals.ok()) return reporter.Fail(signals.status());
  Result<TaskFollower> follower = TaskFollower::Create(paths);
  if (!follower.ok()) return reporter.Fail(follower.status());
  Json request = Request(options, "restore");
  if (!choice->id.empty()) request["image"] = choice->id;
  Result<Answer> answer = Ask(paths, request, *signals, context);
  if (!answer.ok()) return reporter.Fail(answer.status());
  if (!answer->ok()) return reporter.FailWith(answer->result, ExitCodeOfRestore(answer->result, options));
  std::string text = DescribeResult("restore", paths.name, answer->result);
  if (options.detach) return reporter.Done(answer->result, text);
  reporter.Note(text);
  return StayWithRestored(options, paths, answer->result, *follower, *signals, context);
}

}  // namespace stasis
