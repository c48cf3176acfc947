#include "cli/foreground.h"

#include <csignal>

#include "cli/stay.h"
#include "coordinator/node/ghost_client.h"

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

}  // namespace

int StayInForeground(const ForegroundTask& task, TaskFollower& follower, SignalSource& signals,
                     Context& context) {
  FollowOptions options;
  options.log_offset = task.log_offset;
  options.copy_output = !context.reporter.json();
  options.on_signal = [&](int signal) { PassOn(task, signal, context); };
  Result<FollowResult> result = follower.Follow(task.init, signals, options);
  if (!result.ok()) {
    return context.reporter.Fail(std::move(result).status().WithContext("follow " + task.paths.name),
                                 "the task goes on; `stasis logs -f " + task.paths.name + "` follows it");
  }
  return ReportTaskEnd({task.paths.name, task.paths.File("output.log"), result->view, result->managed,
                        task.expect_managed, task.fields},
                       context.reporter);
}

}  // namespace stasis
