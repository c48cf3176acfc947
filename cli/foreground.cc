#include "cli/foreground.h"

#include <csignal>

#include "cli/end_by_image.h"
#include "cli/stay.h"
#include "coordinator/node/ghost_client.h"
#include "coordinator/node/removal.h"

namespace stasis {
namespace {

void PassOn(const ForegroundTask& task, int signal, Context& context) {
  Result<TaskFacts> facts = ReadTaskFacts(task.paths);
  bool paused = facts.ok() && DeriveCondition(*facts).condition == TaskCondition::kPaused;
  if (!paused) {
    const Result<bool> alive = CheckAlive(task.init);
    if (!alive.ok()) context.reporter.Note("cannot pass on the signal: " + alive.status().ToString());
    if (alive.ok() && *alive) kill(task.init.pid, signal);
    return;
  }
  context.reporter.Note(task.paths.name + " is paused: ending it");
  Result<GhostClient> ghost = GhostClient::Connect(task.paths, context);
  Status sent = ghost.ok() ? ghost->Send({{"verb", "cancel"}}) : ghost.status();
  if (!sent.ok()) context.reporter.Note("cannot end it: " + sent.ToString());
}

}  // namespace

int ExitCodeOfRestore(const Json& failure, const Options& options) {
  bool cancelled = StatusCodeByName(TextField(failure, "code")) == StatusCode::kCancelled;
  return cancelled && !options.checkpoint_on.empty() ? int{kExitCheckpointed} : -1;
}

void Forget(const std::string& name, Context& context) {
  std::string remedy;
  Result<Removed> removed = RemoveByName(name, true, context.folders, &remedy);
  if (!removed.ok()) context.reporter.Note("it stays on record: " + removed.status().ToString());
}

Result<SignalSource> SignalsOf(const Options& options) {
  if (options.checkpoint_on.empty()) return SignalSource::Create();
  std::vector<int> more = options.checkpoint_on;
  more.insert(more.end(), {SIGUSR1, SIGUSR2});
  return SignalSource::Create(more);
}

int StayInForeground(const ForegroundTask& task, TaskFollower& follower, SignalSource& signals,
                     Context& context) {
  EndByImage::Options signalled{task.paths.name, task.checkpoint_on,
                                [&] { return EndTaskByImage(task.paths, context); },
                                [&](int signal) { PassOn(task, signal, context); }};
  Result<std::unique_ptr<EndByImage>> image = EndByImage::Create(std::move(signalled), context.reporter);
  if (!image.ok()) return context.reporter.Fail(image.status());
  FollowOptions options;
  options.log_offset = task.log_offset;
  options.copy_output = !context.reporter.json();
  options.on_signal = [&](int signal) { (*image)->OnSignal(signal); };
  options.also = (*image)->fd();
  options.on_also = [&] { (*image)->OnReadable(); };
  Result<FollowResult> result = follower.Follow(task.init, signals, options);
  if (!result.ok()) {
    return context.reporter.Fail(std::move(result).status().WithContext("follow " + task.paths.name),
                                 "the task goes on; `stasis logs -f " + task.paths.name + "` follows it");
  }
  const TaskView& view = result->view;
  if (task.forget && view.condition == TaskCondition::kExited && view.exit_code == 0)
    Forget(task.paths.name, context);
  return ReportTaskEnd({task.paths.name, task.paths.File("output.log"), result->view, result->managed,
                        task.expect_managed, task.fields},
                       context.reporter);
}

}  // namespace stasis
