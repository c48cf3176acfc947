// What `run` says of a program that could not be started.
#ifndef CLI_RUN_VERB_H_
#define CLI_RUN_VERB_H_

#include "base/status.h"
#include "cli/report.h"

namespace stasis {

// Of a failure in the form of a ghost's: 127 and 126 where the program is not there or cannot be executed, 1
// where there is no driver for it, else that of its code.
int ExitCodeOfRun(const Json& failure);
// Ends with a failure of `run`.
int FailRun(const Status& status, const std::string& remedy, Reporter& reporter);

}  // namespace stasis

#endif  // CLI_RUN_VERB_H_
