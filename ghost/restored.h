// What a restore has left that did not come to its end. CRIU says only afterwards which processes it has
// made, and one that is killed leaves them: as copies of itself that wait for it, or as a program that runs
// on and that nobody knows.
#ifndef GHOST_RESTORED_H_
#define GHOST_RESTORED_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace stasis {

// Processes in PID namespaces other than this process's that belong to a restore from the folder `images`, or
// to the task with the run folder `task_run`: this process's children; those in its mount namespace, where
// alone these paths mean the same, whose command line is still that of such a CRIU or whose environment has
// the task's mark (STASIS_TASK); and all that share a PID namespace with one of them.
// An error: some could not be looked at.
Result<std::vector<pid_t>> FindRestored(const std::string& images, const std::string& task_run);

// CRIU starts processes of its own for what it tries out of the kernel, and lets them stop; those stay when
// it is killed. Ends all whose command line is that of a CRIU with the folder `images`, in this process's
// mount namespace. The CRIU itself must have ended. kTimeout: some are still there.
Status EndCriu(const std::string& images, const Deadline& deadline);

// Waits for the end of the same, of a dump into `images` by a ghost that is gone: until then the task's
// processes show nothing of where they stand. kUnavailable: one is still at work.
Status AwaitCriuOfOthers(const std::string& images, const Deadline& deadline);

// Ends them all, and what EndCriu() does. For a task that has no processes which are to live. kTimeout: some
// are still there.
Status EndRestored(const std::string& images, const std::string& task_run, const Deadline& deadline);

}  // namespace stasis

#endif  // GHOST_RESTORED_H_
