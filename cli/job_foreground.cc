#include "cli/job_foreground.h"

#include <algorithm>
#include <csignal>

#include "cli/end_by_image.h"
#include "cli/foreground.h"
#include "cli/stay.h"
#include "coordinator/job_operation.h"
#include "coordinator/node/job.h"

namespace stasis {
namespace {

// Without a PID namespace nothing ends with stasis-init, and with one it ends when the program has.
void SignalProgram(const Json& process, int signal) {
  ProcessIdentity init = IdentityOf(process);
  auto program = static_cast<pid_t>(IntegerField(process, "pid"));
  const Result<bool> alive = CheckAlive(init);
  if (!alive.ok() || !*alive) return;
  if (signal != SIGKILL || program <= 1) {
    kill(init.pid, signal);
    return;
  }
  kill(-program, signal);
  kill(program, signal);
}

bool IsPaused(const TaskPaths& paths) {
  Result<TaskFacts> facts = ReadTaskFacts(paths);
  return facts.ok() && DeriveCondition(*facts).condition == TaskCondition::kPaused;
}

// Frozen programs cannot act on a signal.
void EndPaused(const std::string& name, Context& context) {
  context.reporter.Note(name + " is paused: ending it");
  Result<JobRecord> record = ReadJobRecord(context.folders.state, name);
  if (!record.ok()) return context.reporter.Note("cannot end it: " + record.status().ToString());
  JobRequest request;
  request.verb = JobRequest::Verb::kCancel;
  JobPlace place{context.folders.state, context.folders.run, context.files.ghost};
  Json result = JobOperation(place, *record, JobWatcher()).Run(request);
  if (!BoolField(result, "ok")) context.reporter.Note("cannot end it: " + TextField(result, "message", "?"));
}

void Send(const std::string& name, const std::vector<TaskPaths>& left, int signal, Context& context) {
  if (std::any_of(left.begin(), left.end(), IsPaused)) return EndPaused(name, context);
  for (const TaskPaths& paths : left) {
    Result<Json> process = ReadJson(paths.File("process.json"));
    if (process.ok()) SignalProgram(*process, signal);
  }
}

StayOfJob StayOf(const ForegroundJob& job, JobFollower& follower, Context& context) {
  StayOfJob stay;
  stay.name = job.name;
  for (const TaskPaths& paths : job.tasks) stay.ranks.push_back({paths.name, paths.File("output.log")});
  stay.grace = job.grace;
  stay.expect_managed = job.expect_managed;
  stay.fields = job.fields;
  stay.set_alarm = [&](Duration time) { follower.SetAlarm(time); };
  stay.last_image = [&] {
    Result<JobFacts> facts = ReadJobFacts(context.folders, job.name);
    return facts.ok() ? facts->last_image : "";
  };
  return stay;
}

}  // namespace

int StayWithJob(const ForegroundJob& job, JobFollower& follower, SignalSource& signals, Context& context) {
  StayOfJob what = StayOf(job, follower, context);
  const Stay* followed_by = nullptr;
  what.send = [&](int signal) {
    std::vector<TaskPaths> left;
    for (size_t rank = 0; rank < job.tasks.size(); rank++) {
      if (!followed_by->HasEnded(rank)) left.push_back(job.tasks[rank]);
    }
    Send(job.name, left, signal, context);
  };
  Stay stay(std::move(what), context.reporter);
  followed_by = &stay;
  EndByImage::Options signalled{job.name, job.checkpoint_on, [&] { return EndJobByImage(job.name, context); },
                                [&](int signal) { stay.OnSignal(signal); }};
  Result<std::unique_ptr<EndByImage>> image = EndByImage::Create(std::move(signalled), context.reporter);
  if (!image.ok()) return context.reporter.Fail(image.status());
  JobFollowOptions options;
  options.copy_output = !context.reporter.json();
  options.on_signal = [&](int signal) { (*image)->OnSignal(signal); };
  options.also = (*image)->fd();
  options.on_also = [&] { (*image)->OnReadable(); };
  options.on_end = [&](const RankEnd& end) { stay.OnEnd(end); };
  options.on_alarm = [&] { stay.OnAlarm(); };
  Status followed = follower.Follow(job.starts, signals, options);
  if (!followed.ok()) {
    return context.reporter.Fail(std::move(followed).WithContext("follow " + job.name),
                                 "the job goes on; `stasis logs -f " + job.name + "` follows it");
  }
  int exit_code = stay.Report();
  if (job.forget && exit_code == kExitOk) Forget(job.name, context);
  return exit_code;
}

}  // namespace stasis
