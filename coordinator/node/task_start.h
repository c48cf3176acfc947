// What `stasis run` does for each task that it starts, be it alone or a rank of a job.
#ifndef COORDINATOR_NODE_TASK_START_H_
#define COORDINATOR_NODE_TASK_START_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "coordinator/node/device_choice.h"
#include "coordinator/node/job.h"
#include "coordinator/node/launch.h"
#include "coordinator/node/site.h"

namespace stasis {

// What the user wants to run.
struct RunSpec {
  std::vector<std::string> argv;         // [0] as the user has written it
  std::string executable;                // absolute; see FindProgram
  std::vector<std::string> environment;  // all of it
  std::string folder;                    // working folder, absolute
  std::string device = "auto";           // auto, nvidia, soft
  std::string strategy = "auto";
  std::string managed = "refuse";
  std::vector<int> gpus;  // physical ordinals; empty: all
  std::string operation;  // kept in task.json: what whoever starts it knows this start by; may be empty
};

// What is decided before anything of the task exists.
struct TaskPlan {
  RunSpec spec;
  std::string unmanaged;  // why, or ""
  DeviceChoice device;
  bool namespaces = false;
};
// kNotFound: something of Stasis, or a driver, is missing.
Result<TaskPlan> PlanTask(RunSpec spec, const Site& site);

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
Status WriteTaskFile(const TaskStart& start, const TaskPlan& plan);
Result<PendingTask> StartTask(const TaskStart& start, const TaskPlan& plan, const Site& site);

// What the user should know of the plan, a sentence each: `what` is "task train".
std::vector<std::string> PlanNotes(const TaskPlan& plan, const std::string& what);

}  // namespace stasis

#endif  // COORDINATOR_NODE_TASK_START_H_
