#include "cli/job_foreground.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <optional>

#include "coordinator/job_operation.h"
#include "coordinator/node/job.h"

namespace stasis {
namespace {

std::string HowItEnded(const RankEnd& end) {
  if (end.view.condition == TaskCondition::kExited) return fmt::format("exited with {}", end.view.exit_code);
  return fmt::format("was ended by signal {} ({})", end.view.signal, strsignal(end.view.signal));
}

int ExitCodeOfRank(const TaskView& view) {
  return view.condition == TaskCondition::kExited ? view.exit_code : 128 + view.signal;
}

// What happens to the job while this process stays with it.
class Stay {
 public:
  Stay(const ForegroundJob& job, JobFollower& follower, Context& context)
      : job_(job), follower_(follower), context_(context), ends_(job.tasks.size()) {}

  void OnSignal(int signal) {
    asked_ = true;
    Send(signal);
  }

  void OnEnd(const RankEnd& end) {
    ends_[static_cast<size_t>(end.rank)] = end;
    if (!HasFailed(end.view) || first_) return;
    first_ = end;
    size_t left = Left();
    TellFirst(end, left);
    if (left == 0) return;
    // They have been told by the user, and may be doing as told.
    if (!asked_) Send(SIGTERM);
    follower_.SetAlarm(job_.grace);
  }

  void OnAlarm() {
    context_.reporter.Note(fmt::format("{} of {} still there: killing", Left(), job_.name));
    Send(SIGKILL);
  }

  int Report();

 private:
  size_t Left() const { return static_cast<size_t>(std::count(ends_.begin(), ends_.end(), std::nullopt)); }
  void Send(int signal);
  bool IsPaused(size_t rank) const;
  void Cancel();
  void TellFirst(const RankEnd& end, size_t left);
  void TellUnmanaged();
  bool AllAre(TaskCondition condition) const;
  Json RankJson(const RankEnd& end) const;
  int ReportCheckpointed(Json fields);

  const ForegroundJob& job_;
  JobFollower& follower_;
  Context& context_;
  std::vector<std::optional<RankEnd>> ends_;  // by rank
  std::optional<RankEnd> first_;              // that failed
  bool asked_ = false;                        // a signal of the user's has been passed on
};

// Without a PID namespace nothing ends with stasis-init, and with one it ends when the program has.
void SignalProgram(const Json& process, int signal) {
  ProcessIdentity init = IdentityOf(process);
  auto program = static_cast<pid_t>(IntegerField(process, "pid"));
  if (!IsAlive(init)) return;
  if (signal != SIGKILL || program <= 1) {
    kill(init.pid, signal);
    return;
  }
  kill(-program, signal);
  kill(program, signal);
}

bool Stay::IsPaused(size_t rank) const {
  Result<TaskFacts> facts = ReadTaskFacts(job_.tasks[rank]);
  return facts.ok() && DeriveCondition(*facts).condition == TaskCondition::kPaused;
}

// Frozen programs cannot act on a signal.
void Stay::Cancel() {
  context_.reporter.Note(job_.name + " is paused: ending it");
  Result<JobRecord> record = ReadJobRecord(context_.folders.state, job_.name);
  if (!record.ok()) return context_.reporter.Note("cannot end it: " + record.status().ToString());
  JobRequest request;
  request.verb = JobRequest::Verb::kCancel;
  JobPlace place{context_.folders.state, context_.folders.run, context_.files.ghost};
  Json result = JobOperation(place, *record, JobWatcher()).Run(request);
  if (!BoolField(result, "ok")) context_.reporter.Note("cannot end it: " + TextField(result, "message", "?"));
}

void Stay::Send(int signal) {
  bool paused = false;
  for (size_t rank = 0; rank < ends_.size(); rank++) paused = paused || (!ends_[rank] && IsPaused(rank));
  if (paused) return Cancel();
  for (size_t rank = 0; rank < ends_.size(); rank++) {
    if (ends_[rank]) continue;
    Result<Json> process = ReadJson(job_.tasks[rank].File("process.json"));
    if (process.ok()) SignalProgram(*process, signal);
  }
}

void Stay::TellFirst(const RankEnd& end, size_t left) {
  if (end.cancelled) {
    context_.reporter.Note(job_.name + " was cancelled");
    return;
  }
  std::string others = left == 0   ? ""
                       : left == 1 ? ": ending the other one"
                                   : fmt::format(": ending the other {}", left);
  context_.reporter.Note(fmt::format("rank {} of {} {}{}", end.rank, job_.name, HowItEnded(end), others));
}

bool Stay::AllAre(TaskCondition condition) const {
  return std::all_of(ends_.begin(), ends_.end(), [&](const std::optional<RankEnd>& end) {
    return end && end->view.condition == condition;
  });
}

Json Stay::RankJson(const RankEnd& end) const {
  const TaskPaths& paths = job_.tasks[static_cast<size_t>(end.rank)];
  Json rank = {{"rank", end.rank},
               {"task", paths.name},
               {"state", TaskConditionName(end.view.condition)},
               {"managed", end.managed},
               {"log", paths.File("output.log")}};
  if (end.view.condition == TaskCondition::kExited) rank["exit_code"] = end.view.exit_code;
  if (end.view.condition == TaskCondition::kKilled) rank["signal"] = end.view.signal;
  return rank;
}

void Stay::TellUnmanaged() {
  bool managed = std::any_of(ends_.begin(), ends_.end(), [](const auto& end) { return end && end->managed; });
  if (managed || !job_.expect_managed) return;
  context_.reporter.Note(
      job_.name + " was unmanaged: it made no CUDA call that Stasis saw, so it could not have been paused");
}

int Stay::ReportCheckpointed(Json fields) {
  Result<JobFacts> facts = ReadJobFacts(context_.folders, job_.name);
  std::string image = facts.ok() ? facts->last_image : "";
  fields["state"] = TaskConditionName(TaskCondition::kCheckpointed);
  fields["image"] = image;
  context_.reporter.Note(fmt::format("{0} was stopped by checkpoint {1}; `stasis restore {0}` brings it back",
                                     job_.name, image));
  return context_.reporter.DoneWith(kExitCheckpointed, fields, "");
}

int Stay::Report() {
  Json fields = job_.fields;
  fields["job"] = job_.name;
  fields["ranks"] = Json::array();
  for (const std::optional<RankEnd>& end : ends_) fields["ranks"].push_back(RankJson(*end));
  TellUnmanaged();
  if (AllAre(TaskCondition::kCheckpointed)) return ReportCheckpointed(fields);
  TaskView view = first_ ? first_->view : TaskView{TaskCondition::kExited, 0, 0, ""};
  fields["state"] = TaskConditionName(view.condition);
  if (view.condition == TaskCondition::kExited) fields["exit_code"] = view.exit_code;
  if (view.condition == TaskCondition::kKilled) fields["signal"] = view.signal;
  if (first_) fields["failed_rank"] = first_->rank;
  return context_.reporter.DoneWith(ExitCodeOfRank(view), fields, "");
}

}  // namespace

int StayWithJob(const ForegroundJob& job, JobFollower& follower, SignalSource& signals, Context& context) {
  Stay stay(job, follower, context);
  JobFollowOptions options;
  options.copy_output = !context.reporter.json();
  options.on_signal = [&](int signal) { stay.OnSignal(signal); };
  options.on_end = [&](const RankEnd& end) { stay.OnEnd(end); };
  options.on_alarm = [&] { stay.OnAlarm(); };
  Status followed = follower.Follow(job.starts, signals, options);
  if (!followed.ok()) {
    return context.reporter.Fail(std::move(followed).WithContext("follow " + job.name),
                                 "the job goes on; `stasis logs -f " + job.name + "` follows it");
  }
  return stay.Report();
}

}  // namespace stasis
