// `stasis run`: puts a task on record, starts its program under the interposer, and stays with it.
#include "cli/run_verb.h"

#include <filesystem>

#include "cli/foreground.h"
#include "cli/run_job.h"
#include "cli/verbs.h"
#include "coordinator/node/program.h"
#include "coordinator/node/subprocess.h"
#include "coordinator/node/task_claim.h"
#include "coordinator/node/task_start.h"

namespace stasis {
namespace {

Result<TaskClaim> ClaimName(const Options& options, const Folders& folders) {
  if (!options.name.empty()) return TaskClaim::Make(folders, options.name);
  return ClaimNumbered<TaskClaim>(NameStem(options.program[0]),
                                  [&](const std::string& name) { return TaskClaim::Make(folders, name); });
}

int Start(const Options& options, Context& context, const TaskPlan& plan, TaskClaim claim) {
  TaskStart start{claim.paths(), options.gpus, {}, std::nullopt};
  const TaskPaths& paths = start.paths;
  Reporter& reporter = context.reporter;
  reporter.set_task(paths.name);
  Result<SignalSource> signals = SignalSource::Create();
  if (!signals.ok()) return reporter.Fail(signals.status());
  Result<TaskFollower> follower = TaskFollower::Create(paths);
  if (!follower.ok()) return reporter.Fail(follower.status());
  Status written = WriteTaskFile(start, plan);
  if (!written.ok()) return reporter.Fail(written);
  for (const std::string& note : PlanNotes(plan, "task " + paths.name)) reporter.Note(note);
  Result<PendingTask> task = StartTask(start, plan, context);
  Status started = task.status();
  if (started.ok()) started = task->LetGo();
  if (!started.ok()) return FailExecute(started, reporter);
  claim.Keep();
  Json fields = {
      {"pid", task->init().pid}, {"device", plan.device.kind}, {"driver", plan.device.driver.path}};
  if (options.detach) {
    fields["state"] = TaskConditionName(TaskCondition::kRunning);
    fields["log"] = paths.File("output.log");
    return reporter.Done(fields, paths.name);
  }
  return StayInForeground({paths, task->init(), 0, plan.unmanaged.empty(), fields}, *follower, *signals,
                          context);
}

int RunTask(const Options& options, Context& context, const TaskPlan& plan) {
  Result<TaskClaim> claim = ClaimName(options, context.folders);
  if (!claim.ok()) {
    bool clash = claim.status().code() == StatusCode::kAlreadyExists;
    return context.reporter.Fail(claim.status(), clash ? ClashRemedy(context.folders, options.name) : "");
  }
  return Start(options, context, plan, std::move(*claim));
}

}  // namespace

int FailExecute(const Status& status, Reporter& reporter) {
  bool executed = std::string_view(status.message()).find("execute ") == 0;
  return reporter.Fail(status, "", executed ? kExitCannotExecute : -1);
}

int RunVerb(const Options& options, Context& context) {
  RunSpec spec;
  spec.argv = options.program;
  spec.environment = ChangeEnvironment(OwnEnvironment(), options.environment);
  std::error_code error;
  spec.folder = std::filesystem::current_path(error).string();
  spec.device = options.device;
  spec.strategy = options.strategy;
  spec.managed = options.managed;
  spec.gpus = options.gpus;
  Result<std::string> program = FindProgram(options.program[0], EnvironmentValue(spec.environment, "PATH"));
  if (!program.ok()) {
    bool missing = program.status().code() == StatusCode::kNotFound;
    return context.reporter.Fail(program.status(), "", missing ? kExitNoProgram : kExitCannotExecute);
  }
  spec.executable = *program;
  Result<TaskPlan> plan = PlanTask(std::move(spec), context);
  if (!plan.ok()) {
    bool missing = plan.status().code() == StatusCode::kNotFound;
    // 3 would say that there is no such task.
    return context.reporter.Fail(plan.status(), missing ? "`stasis doctor` shows what is missing" : "",
                                 missing ? kExitFailed : -1);
  }
  bool job = options.ranks > 0 || !options.nodes.empty();
  return job ? RunJob(options, context, *plan) : RunTask(options, context, *plan);
}

}  // namespace stasis
