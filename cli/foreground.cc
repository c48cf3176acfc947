#include "cli/foreground.h"

#include <algorithm>
#include <csignal>
#include <cstring>

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
    if (IsAlive(task.init)) kill(task.init.pid, signal);
    return;
  }
  context.reporter.Note(task.paths.name + " is paused: ending it");
  Result<GhostClient> ghost = GhostClient::Connect(task.paths, context);
  Status sent = ghost.ok() ? ghost->Send({{"verb", "cancel"}}) : ghost.status();
  if (!sent.ok()) context.reporter.Note("cannot end it: " + sent.ToString());
}

// The user of the signals does not wait for an image that cannot be made: then they mean what they always
// do.
void OnSignal(const ForegroundTask& task, int signal, EndByImage& image, std::optional<int>* by,
              Context& context) {
  bool asks =
      std::find(task.checkpoint_on.begin(), task.checkpoint_on.end(), signal) != task.checkpoint_on.end();
  if (!asks) return PassOn(task, signal, context);
  if (!image.Begin()) return;
  *by = signal;
  context.reporter.Note(std::string(strsignal(signal)) + ": checkpointing " + task.paths.name);
}

void OnImage(const ForegroundTask& task, int signal, EndByImage& image, Context& context) {
  std::optional<Status> result = image.Take();
  if (!result || result->ok() || !IsAlive(task.init)) return;
  context.reporter.Note("no image, so the signal is passed on: " + result->ToString());
  PassOn(task, signal, context);
}

void Forget(const ForegroundTask& task, Context& context) {
  std::string remedy;
  Result<Removed> removed = RemoveByName(task.paths.name, true, context.folders, &remedy);
  if (!removed.ok()) context.reporter.Note("it stays on record: " + removed.status().ToString());
}

}  // namespace

Result<SignalSource> SignalsOf(const Options& options) {
  if (options.checkpoint_on.empty()) return SignalSource::Create();
  std::vector<int> more = options.checkpoint_on;
  more.insert(more.end(), {SIGUSR1, SIGUSR2});
  return SignalSource::Create(more);
}

int StayInForeground(const ForegroundTask& task, TaskFollower& follower, SignalSource& signals,
                     Context& context) {
  Result<std::unique_ptr<EndByImage>> image = EndByImage::Create(task.paths, context);
  if (!image.ok()) return context.reporter.Fail(image.status());
  std::optional<int> by;
  FollowOptions options;
  options.log_offset = task.log_offset;
  options.copy_output = !context.reporter.json();
  options.on_signal = [&](int signal) { OnSignal(task, signal, **image, &by, context); };
  options.also = (*image)->fd();
  options.on_also = [&] { OnImage(task, *by, **image, context); };
  Result<FollowResult> result = follower.Follow(task.init, signals, options);
  if (!result.ok()) {
    return context.reporter.Fail(std::move(result).status().WithContext("follow " + task.paths.name),
                                 "the task goes on; `stasis logs -f " + task.paths.name + "` follows it");
  }
  const TaskView& view = result->view;
  if (task.forget && view.condition == TaskCondition::kExited && view.exit_code == 0) Forget(task, context);
  return ReportTaskEnd({task.paths.name, task.paths.File("output.log"), result->view, result->managed,
                        task.expect_managed, task.fields},
                       context.reporter);
}

}  // namespace stasis
