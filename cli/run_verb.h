// What `run` says of a program that could not be executed.
#ifndef CLI_RUN_VERB_H_
#define CLI_RUN_VERB_H_

#include "base/status.h"
#include "cli/report.h"

namespace stasis {

// Ends with the failure of PendingTask::LetGo().
int FailExecute(const Status& status, Reporter& reporter);

}  // namespace stasis

#endif  // CLI_RUN_VERB_H_
