// One job as its files and the kernel tell it now, and what will tell of its next change.
#ifndef COORDINATOR_AGENT_JOB_READING_H_
#define COORDINATOR_AGENT_JOB_READING_H_

#include <string>
#include <vector>

#include "base/process.h"
#include "base/status.h"
#include "coordinator/node/layout.h"
#include "stasis/v1/agent.pb.h"

namespace stasis {

struct JobReading {
  v1::Job job;
  // Whose end changes it: processes of its ranks, and ghosts.
  std::vector<ProcessIdentity> processes;
};
// A task alone, or a job of ranks. kNotFound: there is none of that name, or it is the task of a rank. While
// a ghost has not said yet why it ended its task, that is still being checkpointed.
Result<JobReading> ReadJob(const Folders& folders, const std::string& name);

// The tasks that `name` has if it is a job of ranks on record; else itself. Their folders tell of changes.
std::vector<std::string> TasksOfJob(const Folders& folders, const std::string& name);

}  // namespace stasis

#endif  // COORDINATOR_AGENT_JOB_READING_H_
