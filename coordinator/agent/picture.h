// What is known of a job (coordinator/node/{task,job}.h) as the message that tells it. Pure but for
// `managed`, which looks into the task's folder of control sockets.
#ifndef COORDINATOR_AGENT_PICTURE_H_
#define COORDINATOR_AGENT_PICTURE_H_

#include <string>

#include "coordinator/node/job.h"
#include "coordinator/node/task.h"
#include "stasis/v1/agent.pb.h"

namespace stasis {

// As `stasis ps` calls it: "running", "in-doubt", "mixed". "unknown" for what is none of the enum's.
const char* ConditionName(v1::Condition condition);
v1::Condition ConditionOf(TaskCondition condition);

// A task alone: a job of one rank, with `ranked` false. `revision`, `operation` and `moved_to` are the
// registry's, and not set.
v1::Job PictureOfTask(const TaskPaths& paths, const TaskFacts& facts, const TaskView& view);
// The task of one rank, as if it were alone.
v1::Job JobOfRank(const v1::Job& job, const v1::Rank& rank);
v1::Job PictureOfJob(const Folders& folders, const JobFacts& facts, const JobView& view);

}  // namespace stasis

#endif  // COORDINATOR_AGENT_PICTURE_H_
