// `stasis run --ranks N`: one task for each rank of a job, all of them or none.
#ifndef CLI_RUN_JOB_H_
#define CLI_RUN_JOB_H_

#include "cli/task_start.h"
#include "cli/verbs.h"

namespace stasis {

// As a verb: does everything, reports, returns the exit code.
int RunJob(const Options& options, Context& context, const TaskPlan& plan);

// For `free-port`, which answers for the place that it is started in.
int FreePortMain();
Result<int> FindFreePort();

// What a launcher such as torchrun tells each rank by its environment.
std::vector<std::string> RankEnvironment(const JobRecord& record, int rank);

}  // namespace stasis

#endif  // CLI_RUN_JOB_H_
