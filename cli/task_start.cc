#include "cli/task_start.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "base/task_protocol.h"
#include "cli/program.h"
#include "cli/subprocess.h"
#include "cli/values.h"

namespace stasis {
namespace {

std::vector<std::string> EnvironmentOf(const TaskStart& start, const Options& options, const TaskPlan& plan,
                                       const Context& context) {
  std::vector<std::string> environment = ChangeEnvironment(plan.environment, plan.device.task_environment);
  if (start.rank) environment = ChangeEnvironment(std::move(environment), start.rank->environment);
  std::string preloads = EnvironmentValue(environment, "LD_PRELOAD");
  std::string gpus = kTaskGpusVariable;
  if (!start.gpus.empty()) gpus += "=" + GpuListText(start.gpus);
  return ChangeEnvironment(
      std::move(environment),
      {std::string(kTaskFolderVariable) + "=" + start.paths.run,
       std::string(kTaskDriverVariable) + "=" + plan.device.driver.path,
       std::string(kTaskStrategyVariable) + "=" + options.strategy,
       std::string(kTaskManagedVariable) + "=" + options.managed, gpus,
       "LD_PRELOAD=" + context.files.preload + (preloads.empty() ? "" : ":" + preloads)});
}

}  // namespace

Result<TaskPlan> PlanTask(const Options& options, const Context& context, const std::string& executable,
                          std::vector<std::string> environment) {
  TaskPlan plan;
  plan.executable = executable;
  plan.environment = std::move(environment);
  std::error_code error;
  plan.folder = std::filesystem::current_path(error).string();
  RETURN_IF_ERROR(RequireFile(context.files.preload, R_OK, "the interposer"));
  RETURN_IF_ERROR(RequireFile(context.files.init, X_OK, "stasis-init"));
  ASSIGN_OR_RETURN(plan.unmanaged, WhyUnmanaged(executable));
  ASSIGN_OR_RETURN(plan.device, ChooseDevice(options.device, context.files, plan.environment));
  RETURN_IF_ERROR(CheckGpus(options.gpus, plan.device.driver));
  plan.namespaces = HasSysAdmin();
  return plan;
}

Status WriteTaskFile(const TaskStart& start, const Options& options, const TaskPlan& plan) {
  auto now = std::chrono::system_clock::now().time_since_epoch();
  Json task = {{"version", 1},
               {"name", start.paths.name},
               {"argv", options.program},
               {"cwd", plan.folder},
               {"created", std::chrono::duration_cast<std::chrono::seconds>(now).count()},
               {"uid", geteuid()},
               {"device", plan.device.kind},
               {"driver", plan.device.driver.path},
               {"driver_environment", plan.device.driver_environment},
               {"strategy", options.strategy},
               {"gpus", start.gpus},
               {"managed", options.managed},
               {"pid_namespace", plan.namespaces},
               {"log", start.paths.File("output.log")}};
  if (start.rank) {
    task["job"] = start.rank->place.job;
    task["rank"] = start.rank->place.rank;
    task["ranks"] = start.rank->place.ranks;
  }
  return WriteJson(start.paths.File("task.json"), task);
}

Result<PendingTask> StartTask(const TaskStart& start, const Options& options, const TaskPlan& plan,
                              const Context& context) {
  LaunchOptions launch;
  launch.init = context.files.init;
  launch.executable = plan.executable;
  launch.argv = options.program;
  launch.environment = EnvironmentOf(start, options, plan, context);
  launch.folder = plan.folder;
  launch.through = start.through;
  launch.namespaces = plan.namespaces;
  return PendingTask::Start(start.paths, launch);
}

void TellPlan(const TaskPlan& plan, const std::string& what, Reporter& reporter) {
  reporter.Note(fmt::format("{} on {}", what, plan.device.sentence));
  if (!plan.unmanaged.empty()) {
    reporter.Note(
        fmt::format("{} is unmanaged: {}, so the interposer does not reach it; it runs, but cannot be paused",
                    plan.executable, plan.unmanaged));
  }
  if (!plan.namespaces) {
    reporter.Note(
        "without CAP_SYS_ADMIN the task gets no PID namespace: it can be paused and resumed, but not "
        "checkpointed (`stasis doctor` says more)");
  }
}

int FailExecute(const Status& status, Reporter& reporter) {
  bool executed = std::string_view(status.message()).find("execute ") == 0;
  return reporter.Fail(status, "", executed ? kExitCannotExecute : -1);
}

}  // namespace stasis
