// Starting one task for each rank of a job, all of them or none.
#ifndef COORDINATOR_NODE_JOB_START_H_
#define COORDINATOR_NODE_JOB_START_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "coordinator/job_record.h"
#include "coordinator/node/launch.h"
#include "coordinator/node/task_claim.h"
#include "coordinator/node/task_start.h"

namespace stasis {

// The one node of a job that runs on this machine as it is.
JobNode ThisNode(int ranks, std::vector<int> gpus);

// A record without its name. The ranks' plan is the same for all. `master_port` 0: one that is free where
// rank 0 is going to listen. kInvalidArgument: a node that cannot be; kUnavailable: one that cannot be
// reached.
Result<JobRecord> PlanJob(std::vector<JobNode> nodes, int master_port, const TaskPlan& plan,
                          const Site& site);

// All ranks, waiting before their first instruction.
Result<std::vector<PendingTask>> StartRanks(const JobRecord& record, const JobClaim& claim,
                                            const TaskPlan& plan, const Site& site);
// Lets all run, or none.
Status LetGoAll(std::vector<PendingTask>& tasks);

// A TCP port that is free in the network namespace of this process.
Result<int> FindFreePort();

// What a launcher such as torchrun tells each rank by its environment.
std::vector<std::string> RankEnvironment(const JobRecord& record, int rank);

}  // namespace stasis

#endif  // COORDINATOR_NODE_JOB_START_H_
