// `stasis run --ranks N`: one task for each rank of a job, all of them or none.
#ifndef CLI_RUN_JOB_H_
#define CLI_RUN_JOB_H_

#include "cli/verbs.h"
#include "coordinator/node/task_start.h"

namespace stasis {

// As a verb: does everything, reports, returns the exit code.
int RunJob(const Options& options, Context& context, const TaskPlan& plan);

// For `free-port`, which answers for the place that it is started in.
int FreePortMain();

}  // namespace stasis

#endif  // CLI_RUN_JOB_H_
