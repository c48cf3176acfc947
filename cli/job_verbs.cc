#include "cli/job_verbs.h"

#include <fmt/format.h>

#include <random>
#include <set>

#include "cli/describe.h"
#include "cli/foreground.h"
#include "cli/job_foreground.h"
#include "coordinator/node/job.h"

namespace stasis {
namespace {

using Verb = JobRequest::Verb;

// The ranks' events as one phase after the other: a phase begins when the first rank is in it, and is as far
// as all of those that are in it are together.
class JobProgress {
 public:
  JobProgress(size_t ranks, Reporter& reporter) : ranks_(ranks), reporter_(reporter) {}

  void Take(int rank, const Json& event) {
    std::string phase = TextField(event, "phase");
    if (phase == "begin") return;
    Rank& mine = ranks_[static_cast<size_t>(rank)];
    mine = {phase, static_cast<uint64_t>(IntegerField(event, "done")),
            static_cast<uint64_t>(IntegerField(event, "total"))};
    if (seen_.insert(phase).second) phase_ = phase;
    if (phase != phase_) return;
    uint64_t done = 0, total = 0;
    for (const Rank& each : ranks_) {
      if (each.phase == phase) done += each.done, total += each.total;
    }
    reporter_.Progress(phase, done, total);
  }
  void StartAgain() { seen_.clear(); }

 private:
  struct Rank {
    std::string phase;
    uint64_t done = 0, total = 0;
  };
  std::vector<Rank> ranks_;
  Reporter& reporter_;
  std::set<std::string> seen_;
  std::string phase_;
};

int FailNodes(const Status& status, Context& context) {
  return context.reporter.Fail(Status(StatusCode::kInvalidArgument, std::string(status.message())));
}

Json Ask(const JobRecord& record, const JobRequest& request, SignalSource& signals, Context& context) {
  JobProgress progress(static_cast<size_t>(record.ranks()), context.reporter);
  JobWatcher watcher;
  watcher.interrupt = &signals;
  watcher.on_event = [&](int rank, const Json& event) { progress.Take(rank, event); };
  watcher.on_attempt = [&](int attempt, const std::string& why) {
    progress.StartAgain();
    context.reporter.Note(fmt::format("attempt {} of {} did not work, and all ranks run on: {}", attempt,
                                      request.attempts, why));
  };
  JobPlace place{context.folders.state, context.folders.run, context.files.ghost};
  Json result = JobOperation(place, record, watcher).Run(request);
  for (const std::string& note : TextsField(result, "notes")) {
    if (BoolField(result, "ok")) context.reporter.Note(note);
  }
  return result;
}

JobRequest RequestOf(const Options& options, Verb verb) {
  JobRequest request;
  request.verb = verb;
  if (options.deadline) request.deadline = *options.deadline;
  if (options.wait_low) request.wait_low = *options.wait_low;
  if (options.attempts > 0) request.attempts = options.attempts;
  request.cut = options.pause_protocol != "timeout";
  request.gpus = options.gpus;
  request.seed = std::random_device()();
  return request;
}

int AskAndReport(const Options& options, const JobRequest& request, Context& context) {
  context.reporter.set_task(options.name);
  Result<JobRecord> record = ReadJobRecord(context.folders.state, options.name);
  if (!record.ok()) return context.reporter.Fail(record.status());
  Result<SignalSource> signals = SignalSource::Create();
  if (!signals.ok()) return context.reporter.Fail(signals.status());
  Json result = Ask(*record, request, *signals, context);
  if (!BoolField(result, "ok")) return context.reporter.FailWith(result);
  return context.reporter.Done(result, DescribeResult(options.verb, record->name, result));
}

std::vector<TaskPaths> TasksOf(const JobRecord& record, const Folders& folders) {
  std::vector<TaskPaths> tasks;
  for (int rank = 0; rank < record.ranks(); ++rank) tasks.emplace_back(folders, record.TaskOf(rank));
  return tasks;
}

Status MakeRunFolders(const std::vector<TaskPaths>& tasks) {
  for (const TaskPaths& paths : tasks) RETURN_IF_ERROR(MakeFolders(paths.ctl));
  return Status();
}

int StayWithRestored(const Options& options, const JobRecord& record, const Json& result,
                     JobFollower& follower, SignalSource& signals, Context& context) {
  ForegroundJob job;
  job.name = record.name;
  job.tasks = TasksOf(record, context.folders);
  job.fields = result;
  job.checkpoint_on = options.checkpoint_on;
  job.forget = options.forget;
  for (size_t rank = 0; rank < job.tasks.size(); ++rank) {
    Result<Json> process = ReadJson(job.tasks[rank].File("process.json"));
    if (!process.ok()) return context.reporter.Fail(process.status());
    uint64_t log = static_cast<uint64_t>(IntegerField(result["ranks"][rank], "log_length"));
    job.starts.push_back({IdentityOf(*process), log});
  }
  return StayWithJob(job, follower, signals, context);
}

}  // namespace

int JobPauseVerb(const Options& options, Context& context) {
  JobRequest request = RequestOf(options, Verb::kPause);
  request.fields["residency"] = options.residency;
  if (options.no_freeze) request.fields["freeze"] = false;
  return AskAndReport(options, request, context);
}

int JobResumeVerb(const Options& options, Context& context) {
  return AskAndReport(options, RequestOf(options, Verb::kResume), context);
}

int JobCheckpointVerb(const Options& options, Context& context) {
  JobRequest request = RequestOf(options, Verb::kCheckpoint);
  request.stop = options.stop;
  request.fields["snapshot"] = options.snapshot;
  request.fields["device_hash"] = options.device_hash;
  request.fields["snapshot_host_percent"] = options.snapshot_host_share;
  return AskAndReport(options, request, context);
}

int JobMigrateVerb(const Options& options, Context& context) {
  return AskAndReport(options, RequestOf(options, Verb::kMigrate), context);
}

int JobCancelVerb(const Options& options, Context& context) {
  JobRequest request = RequestOf(options, Verb::kCancel);
  request.whole_job = !options.operation;
  if (options.grace) {
    request.fields["grace_ms"] =
        std::chrono::duration_cast<std::chrono::milliseconds>(*options.grace).count();
  }
  return AskAndReport(options, request, context);
}

int JobRestoreVerb(const ImageName& image, const Options& options, Context& context) {
  Reporter& reporter = context.reporter;
  reporter.set_task(image.task);
  JobRequest request = RequestOf(options, Verb::kRestore);
  request.image = image.id;
  if (!options.nodes.empty()) {
    Result<std::vector<JobNode>> nodes = ReadNodes(options.nodes);
    if (!nodes.ok()) return FailNodes(nodes.status(), context);
    request.nodes = *std::move(nodes);
  }
  Result<JobRecord> record = ReadJobRecord(context.folders.state, image.task);
  if (!record.ok()) return reporter.Fail(record.status());
  std::vector<TaskPaths> tasks = TasksOf(*record, context.folders);
  if (Status made = MakeRunFolders(tasks); !made.ok()) return reporter.Fail(made);
  Result<SignalSource> signals = SignalsOf(options);
  if (!signals.ok()) return reporter.Fail(signals.status());
  Result<JobFollower> follower = JobFollower::Create(tasks);
  if (!follower.ok()) return reporter.Fail(follower.status());
  Json result = Ask(*record, request, *signals, context);
  if (!BoolField(result, "ok")) return reporter.FailWith(result, ExitCodeOfRestore(result, options));
  std::string text = DescribeResult("restore", record->name, result);
  if (options.detach) return reporter.Done(result, text);
  reporter.Note(text);
  return StayWithRestored(options, *record, result, *follower, *signals, context);
}

Status CheckNoJobOptions(const Options& options) {
  const char* option = options.attempts > 0     ? "attempts are"
                       : !options.nodes.empty() ? "--nodes is"
                                                : nullptr;
  if (option == nullptr) return Status();
  return Errorf(StatusCode::kInvalidArgument, "%s for jobs of several ranks", option);
}

}  // namespace stasis
