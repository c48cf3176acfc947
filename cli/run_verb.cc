// `stasis run`: puts a task on record, starts its program under the interposer, and stays with it.
#include "cli/run_verb.h"

#include <filesystem>

#include "cli/foreground.h"
#include "cli/run_again.h"
#include "cli/run_job.h"
#include "cli/verbs.h"
#include "coordinator/job_result.h"
#include "coordinator/node/program.h"
#include "coordinator/node/subprocess.h"
#include "coordinator/node/task_claim.h"
#include "coordinator/node/task_start.h"

namespace stasis {
namespace {

constexpr char kMissingRemedy[] = "`stasis doctor` shows what is missing";

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
  Result<SignalSource> signals = SignalsOf(options);
  if (!signals.ok()) return reporter.Fail(signals.status());
  Result<TaskFollower> follower = TaskFollower::Create(paths);
  if (!follower.ok()) return reporter.Fail(follower.status());
  Status written = WriteTaskFile(start, plan);
  if (!written.ok()) return FailRun(written, "", reporter);
  for (const std::string& note : PlanNotes(plan, "task " + paths.name)) reporter.Note(note);
  Result<PendingTask> task = StartTask(start, plan, context);
  Status started = task.status();
  if (started.ok()) started = task->LetGo();
  if (!started.ok()) return FailRun(started, "", reporter);
  claim.Keep();
  Json fields = {
      {"pid", task->init().pid}, {"device", plan.device.kind}, {"driver", plan.device.driver.path}};
  if (options.detach) {
    fields["state"] = TaskConditionName(TaskCondition::kRunning);
    fields["log"] = paths.File("output.log");
    return reporter.Done(fields, paths.name);
  }
  return StayInForeground(
      {paths, task->init(), 0, plan.unmanaged.empty(), fields, options.checkpoint_on, options.forget},
      *follower, *signals, context);
}

int RunTask(const Options& options, Context& context, const TaskPlan& plan) {
  Result<TaskClaim> claim = ClaimName(options, context.folders);
  if (!claim.ok()) {
    bool clash = claim.status().code() == StatusCode::kAlreadyExists;
    return FailRun(claim.status(), clash ? ClashRemedy(context.folders, options.name) : "", context.reporter);
  }
  return Start(options, context, plan, std::move(*claim));
}

}  // namespace

int ExitCodeOfRun(const Json& failure) {
  StatusCode code = StatusCodeByName(TextField(failure, "code"));
  std::string message = TextField(failure, "message");
  if (code == StatusCode::kNotFound && message.starts_with("no program ")) return kExitNoProgram;
  if (message.starts_with("execute ") || message.ends_with(" cannot be executed")) return kExitCannotExecute;
  bool no_driver = code == StatusCode::kUnavailable && TextField(failure, "remedy") == kMissingRemedy;
  return no_driver ? kExitFailed : ExitCodeOf(code);
}

int FailRun(const Status& status, const std::string& remedy, Reporter& reporter) {
  Json failure = FailureJson("run", status, remedy);
  return reporter.FailWith(failure, ExitCodeOfRun(failure));
}

int RunVerb(const Options& options, Context& context) {
  if (options.again) {
    Result<bool> image = MakeWay(options, context);
    if (!image.ok()) return FailRun(image.status(), "", context.reporter);
    if (*image) return RestoreVerb(RestoreAgain(options), context);
  }
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
  if (!program.ok()) return FailRun(program.status(), "", context.reporter);
  spec.executable = *program;
  Result<TaskPlan> plan = PlanTask(std::move(spec), context);
  if (!plan.ok()) {
    if (plan.status().code() != StatusCode::kNotFound) return FailRun(plan.status(), "", context.reporter);
    // NOT_FOUND would say that there is no such program.
    return FailRun(Status(StatusCode::kUnavailable, std::string(plan.status().message())), kMissingRemedy,
                   context.reporter);
  }
  Options counted = options;
  if (CountsByPci(OwnEnvironment())) counted.gpus = NumbersOfDriver(options.gpus, plan->device.driver);
  bool job = options.ranks > 0 || !options.nodes.empty();
  return job ? RunJob(counted, context, *plan) : RunTask(counted, context, *plan);
}

}  // namespace stasis
