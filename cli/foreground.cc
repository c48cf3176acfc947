#include "cli/foreground.h"

#include <fmt/format.h>

#include <csignal>
#include <cstring>

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

int ReportEnd(const ForegroundTask& task, const FollowResult& result, Context& context) {
  const TaskView& view = result.view;
  Json fields = task.fields;
  fields["state"] = TaskConditionName(view.condition);
  fields["managed"] = result.managed;
  fields["log"] = task.paths.File("output.log");
  int exit_code = view.exit_code;
  switch (view.condition) {
    case TaskCondition::kExited:
      fields["exit_code"] = view.exit_code;
      break;
    case TaskCondition::kCheckpointed:
      exit_code = kExitCheckpointed;
      fields["image"] = view.last_image;
      context.reporter.Note(
          fmt::format("{0} was stopped by checkpoint {1}; `stasis restore {0}` brings it back",
                      task.paths.name, view.last_image));
      break;
    default:
      exit_code = 128 + view.signal;
      fields["signal"] = view.signal;
      context.reporter.Note(fmt::format("{} was ended by signal {} ({})", task.paths.name, view.signal,
                                        strsignal(view.signal)));
  }
  if (task.expect_managed && !result.managed) {
    context.reporter.Note(
        task.paths.name +
        " was unmanaged: it made no CUDA call that Stasis saw, so it could not have been paused");
  }
  return context.reporter.DoneWith(exit_code, fields, "");
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
  return ReportEnd(task, *result, context);
}

}  // namespace stasis
