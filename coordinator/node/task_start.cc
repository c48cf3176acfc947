#include "coordinator/node/task_start.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>

#include "base/task_protocol.h"
#include "coordinator/node/program.h"
#include "coordinator/node/subprocess.h"
#include "coordinator/node/values.h"

namespace stasis {
namespace {

// Of all the machine's devices, so that processes of the task know them before they ask the driver. None
// where one is not known, or a part of a device.
std::string DevicesVariable(const DriverInfo& driver) {
  std::string devices;
  for (const DriverDevice& device : driver.devices) {
    if (device.uuid.empty() || device.part) return kTaskDevicesVariable;
    devices += (devices.empty() ? "" : ",") + device.uuid + "@" + device.pci;
  }
  return std::string(kTaskDevicesVariable) + "=" + devices;
}

std::vector<std::string> EnvironmentOf(const TaskStart& start, const TaskPlan& plan, const Site& site) {
  std::vector<std::string> environment =
      ChangeEnvironment(plan.spec.environment, plan.device.task_environment);
  if (start.rank) environment = ChangeEnvironment(std::move(environment), start.rank->environment);
  std::string preloads = EnvironmentValue(environment, "LD_PRELOAD");
  // Beside the interposer lies its other name, libcuda.so, for programs that ask for that one.
  std::string libraries = EnvironmentValue(environment, "LD_LIBRARY_PATH");
  std::string ours = site.files.preload.substr(0, site.files.preload.rfind('/'));
  std::string gpus = kTaskGpusVariable;
  if (!start.gpus.empty()) gpus += "=" + GpuListText(start.gpus);
  return ChangeEnvironment(
      std::move(environment),
      {std::string(kTaskFolderVariable) + "=" + start.paths.run,
       std::string(kTaskDriverVariable) + "=" + plan.device.driver.path,
       std::string(kTaskStrategyVariable) + "=" + plan.spec.strategy,
       std::string(kTaskManagedVariable) + "=" + plan.spec.managed, gpus, DevicesVariable(plan.device.driver),
       "LD_LIBRARY_PATH=" + ours + (libraries.empty() ? "" : ":" + libraries),
       "LD_PRELOAD=" + site.files.preload + (preloads.empty() ? "" : ":" + preloads)});
}

}  // namespace

Result<TaskPlan> PlanTask(RunSpec spec, const Site& site) {
  TaskPlan plan;
  plan.spec = std::move(spec);
  RETURN_IF_ERROR(RequireFile(site.files.preload, R_OK, "the interposer"));
  RETURN_IF_ERROR(RequireFile(site.files.init, X_OK, "stasis-init"));
  ASSIGN_OR_RETURN(plan.unmanaged, WhyUnmanaged(plan.spec.executable));
  ASSIGN_OR_RETURN(plan.device, ChooseDevice(plan.spec.device, site.files, plan.spec.environment));
  RETURN_IF_ERROR(CheckGpus(plan.spec.gpus, plan.device.driver));
  plan.namespaces = HasSysAdmin();
  return plan;
}

Status WriteTaskFile(const TaskStart& start, const TaskPlan& plan) {
  auto now = std::chrono::system_clock::now().time_since_epoch();
  Json task = {{"version", 1},
               {"name", start.paths.name},
               {"argv", plan.spec.argv},
               {"cwd", plan.spec.folder},
               {"created", std::chrono::duration_cast<std::chrono::seconds>(now).count()},
               {"uid", geteuid()},
               {"device", plan.device.kind},
               {"driver", plan.device.driver.path},
               {"driver_environment", plan.device.driver_environment},
               {"strategy", plan.spec.strategy},
               {"gpus", start.gpus},
               {"managed", plan.spec.managed},
               {"pid_namespace", plan.namespaces},
               {"log", start.paths.File("output.log")}};
  if (!plan.spec.operation.empty()) task["operation"] = plan.spec.operation;
  if (start.rank) {
    task["job"] = start.rank->place.job;
    task["rank"] = start.rank->place.rank;
    task["ranks"] = start.rank->place.ranks;
  }
  return WriteJson(start.paths.File("task.json"), task);
}

Result<PendingTask> StartTask(const TaskStart& start, const TaskPlan& plan, const Site& site) {
  LaunchOptions launch;
  launch.init = site.files.init;
  launch.executable = plan.spec.executable;
  launch.argv = plan.spec.argv;
  launch.environment = EnvironmentOf(start, plan, site);
  launch.folder = plan.spec.folder;
  launch.through = start.through;
  launch.namespaces = plan.namespaces;
  return PendingTask::Start(start.paths, launch);
}

std::vector<std::string> PlanNotes(const TaskPlan& plan, const std::string& what) {
  std::vector<std::string> notes = {fmt::format("{} on {}", what, plan.device.sentence)};
  if (!plan.unmanaged.empty()) {
    notes.push_back(
        fmt::format("{} is unmanaged: {}, so the interposer does not reach it; it runs, but cannot be paused",
                    plan.spec.executable, plan.unmanaged));
  }
  if (!plan.namespaces) {
    notes.push_back(
        "without CAP_SYS_ADMIN the task gets no PID namespace: it can be paused and resumed, but not "
        "checkpointed (`stasis doctor` says more)");
  }
  return notes;
}

}  // namespace stasis
