// The verbs that a task's ghost carries out: each is one request, its events shown as progress, and its
// result.
#include <fmt/format.h>

#include "cli/foreground.h"
#include "cli/job_verbs.h"
#include "cli/verbs.h"
#include "coordinator/node/ghost_client.h"
#include "coordinator/node/image_names.h"
#include "coordinator/node/job.h"
#include "coordinator/node/values.h"

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
  return context.reporter.Fail(alone, RankRemedy(task, options.verb));
}

int FailUnknown(const Status& status, Context& context) {
  bool unknown = status.code() == StatusCode::kNotFound;
  return context.reporter.Fail(status, unknown ? "`stasis ps --all` lists the tasks" : "");
}

int FailEnded(const std::string& name, const TaskView& view, Context& context) {
  std::string remedy;
  if (!view.last_image.empty())
    remedy = "`stasis restore " + name + "` brings it back from image " + view.last_image;
  return context.reporter.Fail(Errorf(StatusCode::kFailedPrecondition, "%s does not run: it is %s",
                                      name.c_str(), TaskConditionName(view.condition)),
                               remedy);
}

std::string Ms(const Json& result, const char* key) { return MillisecondsText(NumberField(result, key)); }
std::string Bytes(const Json& result, const char* key) {
  return SizeText(static_cast<uint64_t>(IntegerField(result, key)));
}

using Describe = std::string (*)(const std::string& name, const Json& result);

int AskAndReport(const Options& options, const Json& request, Describe describe, Context& context) {
  Status plain = CheckNoJobOptions(options);
  if (!plain.ok()) return context.reporter.Fail(plain);
  Result<TaskFacts> facts = FindTask(options.name, context);
  if (!facts.ok()) return FailUnknown(facts.status(), context);
  Status alone = RefuseRank(TaskPaths(context.folders, options.name), facts->task, options.verb);
  if (!alone.ok()) return FailRank(alone, facts->task, options, context);
  TaskView view = DeriveCondition(*facts);
  if (!IsLive(view.condition)) return FailEnded(options.name, view, context);
  Result<SignalSource> signals = SignalSource::Create();
  if (!signals.ok()) return context.reporter.Fail(signals.status());
  Result<Answer> answer = Ask(TaskPaths(context.folders, options.name), request, *signals, context);
  if (!answer.ok()) return context.reporter.Fail(answer.status());
  if (!answer->ok()) return context.reporter.FailWith(answer->result);
  return context.reporter.Done(answer->result, describe(options.name, answer->result));
}

std::string DescribePause(const std::string& name, const Json& result) {
  return fmt::format("{} is paused after {}: {} of device memory held in {}", name, Ms(result, "pause_ms"),
                     Bytes(result, "device_bytes"), TextField(result, "residency"));
}

std::string DescribeResume(const std::string& name, const Json& result) {
  return fmt::format("{} runs on after {}", name, Ms(result, "resume_ms"));
}

std::string DescribeCheckpoint(const std::string& name, const Json& result) {
  std::string after = "it stood still for " + Ms(result, "standstill_ms");
  if (BoolField(result, "stopped")) after = "it is ended; `stasis restore " + name + "` brings it back";
  return fmt::format("{}: image {} of {}, {} of it new to the store, after {}; {}", name,
                     TextField(result, "image"), Bytes(result, "image_bytes"), Bytes(result, "added_bytes"),
                     Ms(result, "total_ms"), after);
}

std::string DescribeMigrate(const std::string& name, const Json& result) {
  return fmt::format("{} is on GPU {} now; it stood still for {}, {} moved", name,
                     GpuListText(IntegersField(result, "gpus")), Ms(result, "standstill_ms"),
                     Bytes(result, "device_bytes"));
}

std::string DescribeCancel(const std::string& name, const Json& result) {
  if (TextField(result, "what") == "operation") return "the operation on " + name + " is given up";
  return fmt::format("{} is ended", name);
}

std::string DescribeRestore(const std::string& name, const Json& result) {
  return fmt::format("{} runs again from image {} after {}", name, TextField(result, "image"),
                     Ms(result, "total_ms"));
}

int StayWithRestored(const TaskPaths& paths, const Json& result, TaskFollower& follower,
                     SignalSource& signals, Context& context) {
  Result<Json> process = ReadJson(paths.File("process.json"));
  if (!process.ok()) return context.reporter.Fail(process.status());
  ForegroundTask task{paths, IdentityOf(*process), static_cast<uint64_t>(IntegerField(result, "log_length")),
                      false, result};
  return StayInForeground(task, follower, signals, context);
}

}  // namespace

int PauseVerb(const Options& options, Context& context) {
  if (IsJob(context.folders, options.name)) return JobPauseVerb(options, context);
  Json request = Request(options, "pause");
  request["residency"] = options.residency;
  if (options.no_freeze) request["freeze"] = false;
  return AskAndReport(options, request, DescribePause, context);
}

int ResumeVerb(const Options& options, Context& context) {
  if (IsJob(context.folders, options.name)) return JobResumeVerb(options, context);
  return AskAndReport(options, Request(options, "resume"), DescribeResume, context);
}

int CheckpointVerb(const Options& options, Context& context) {
  if (IsJob(context.folders, options.name)) return JobCheckpointVerb(options, context);
  Json request = Request(options, "checkpoint");
  if (options.stop) request["stop"] = true;
  request["snapshot"] = options.snapshot;
  request["device_hash"] = options.device_hash;
  request["snapshot_host_percent"] = options.snapshot_host_share;
  return AskAndReport(options, request, DescribeCheckpoint, context);
}

int MigrateVerb(const Options& options, Context& context) {
  if (IsJob(context.folders, options.name)) return JobMigrateVerb(options, context);
  return AskAndReport(options, Request(options, "migrate"), DescribeMigrate, context);
}

int CancelVerb(const Options& options, Context& context) {
  if (IsJob(context.folders, options.name)) return JobCancelVerb(options, context);
  Json request = {{"verb", "cancel"}, {"what", options.operation ? "operation" : "task"}};
  if (options.grace) {
    request["grace_ms"] = std::chrono::duration_cast<std::chrono::milliseconds>(*options.grace).count();
  }
  return AskAndReport(options, request, DescribeCancel, context);
}

int RestoreVerb(const Options& options, Context& context) {
  Reporter& reporter = context.reporter;
  Result<ImageName> choice = ParseImageName(options.target, context.folders);
  if (!choice.ok()) return reporter.Fail(choice.status());
  if (IsJob(context.folders, choice->task)) return JobRestoreVerb(*choice, options, context);
  Status plain = CheckNoJobOptions(options);
  if (!plain.ok()) return reporter.Fail(plain);
  Result<TaskFacts> facts = FindTask(choice->task, context);
  if (!facts.ok()) return FailUnknown(facts.status(), context);
  TaskPaths paths(context.folders, choice->task);
  Status alone = RefuseRank(paths, facts->task, options.verb);
  if (!alone.ok()) return FailRank(alone, facts->task, options, context);
  Status made = MakeFolders(paths.ctl);
  if (!made.ok()) return reporter.Fail(made);
  Result<SignalSource> signals = SignalSource::Create();
  if (!signals.ok()) return reporter.Fail(signals.status());
  Result<TaskFollower> follower = TaskFollower::Create(paths);
  if (!follower.ok()) return reporter.Fail(follower.status());
  Json request = Request(options, "restore");
  if (!choice->id.empty()) request["image"] = choice->id;
  Result<Answer> answer = Ask(paths, request, *signals, context);
  if (!answer.ok()) return reporter.Fail(answer.status());
  if (!answer->ok()) return reporter.FailWith(answer->result);
  std::string text = DescribeRestore(paths.name, answer->result);
  if (options.detach) return reporter.Done(answer->result, text);
  reporter.Note(text);
  return StayWithRestored(paths, answer->result, *follower, *signals, context);
}

}  // namespace stasis
