// The verbs on jobs of several ranks, carried out by this process as the job's coordinator.
#ifndef CLI_JOB_VERBS_H_
#define CLI_JOB_VERBS_H_

#include "cli/verbs.h"
#include "coordinator/job_operation.h"
#include "coordinator/node/image_names.h"

namespace stasis {

// Each does all of its work, reports, and returns the exit code. The job of options.name is on record.
int JobPauseVerb(const Options& options, Context& context);
int JobResumeVerb(const Options& options, Context& context);
int JobCheckpointVerb(const Options& options, Context& context);
int JobMigrateVerb(const Options& options, Context& context);
int JobCancelVerb(const Options& options, Context& context);
// From an image of the job.
int JobRestoreVerb(const ImageName& image, const Options& options, Context& context);

// Options that only jobs have, given for a task. OK when there are none.
Status CheckNoJobOptions(const Options& options);

}  // namespace stasis

#endif  // CLI_JOB_VERBS_H_
