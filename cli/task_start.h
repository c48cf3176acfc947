// What `stasis run` does for each task that it starts, be it alone or a rank of a job.
#ifndef CLI_TASK_START_H_
#define CLI_TASK_START_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "cli/device_choice.h"
#include "cli/job.h"
#include "cli/launch.h"
#include "cli/options.h"
#include "cli/verbs.h"

namespace stasis {

// What is decided before anything of the task exists.
struct TaskPlan {
  std::string executable;
  std::string unmanaged;  // why, or ""
  DeviceChoice device;
  std::vector<std::string> environment;  // the user's, with --env
  std::string folder;                    // working folder
  bool namespaces = false;
};
// kNotFound: something of Stasis, or a driver, is missing.
Result<TaskPlan> PlanTask(const Options& options, const Context& context, const std::string& executable,
                          std::vector<std::string> environment);

// What makes a task a rank: written into task.json and into the environment of its program.
struct RankStart {
  RankPlace place;
  std::vector<std::string> environment;
};

// A task that is about to be started in the folders `paths`, which exist.
struct TaskStart {
  TaskPaths paths;
  std::vector<int> gpus;  // physical ordinals; empty: all
  std::vector<std::string> through;
  std::optional<RankStart> rank;
};

// Writes task.json.
Status WriteTaskFile(const TaskStart& start, const Options& options, const TaskPlan& plan);
Result<PendingTask> StartTask(const TaskStart& start, const Options& options, const TaskPlan& plan,
                              const Context& context);

// What the user should know of the plan: `what` is "task train".
void TellPlan(const TaskPlan& plan, const std::string& what, Reporter& reporter);
// Ends with the failure of PendingTask::LetGo().
int FailExecute(const Status& status, Reporter& reporter);

}  // namespace stasis

#endif  // CLI_TASK_START_H_
