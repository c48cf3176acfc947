// What a node has on record of a job that has left it, while the job comes again: set aside before the new
// record is written, and put back when the job does not come after all. Without it images of the earlier stay
// would be nobody's. Whatever is interrupted can be done again. Tasks that have left are known by their mark
// (coordinator/moved_mark.h); another record is of no use any more. Not thread-safe for one job.
#ifndef COORDINATOR_AGENT_EARLIER_STAY_H_
#define COORDINATOR_AGENT_EARLIER_STAY_H_

#include <string>

#include "base/status.h"
#include "coordinator/node/layout.h"

namespace stasis {

// There is no record in the task's folder afterwards.
Status SetEarlierTaskAside(const TaskPaths& paths);
// Removes what has come since, and the folder where there is no earlier record. Does nothing where none was
// set aside.
Status PutEarlierTaskBack(const TaskPaths& paths);
// It is there to stay.
void ForgetEarlierTask(const TaskPaths& paths);

// The same of the record of a job of ranks, set aside before its tasks are; its images stay where they are.
Status SetEarlierJobAside(const Folders& folders, const std::string& job, const TaskPaths& first_rank);
Status PutEarlierJobBack(const Folders& folders, const std::string& job);
void ForgetEarlierJob(const Folders& folders, const std::string& job);

}  // namespace stasis

#endif  // COORDINATOR_AGENT_EARLIER_STAY_H_
