// Staying with a task until it ends, as `run` and `restore` do, and exiting as its program does.
#ifndef CLI_FOREGROUND_H_
#define CLI_FOREGROUND_H_

#include "cli/follow.h"
#include "cli/verbs.h"

namespace stasis {

struct ForegroundTask {
  TaskPaths paths;
  ProcessIdentity init;
  uint64_t log_offset = 0;
  bool expect_managed = false;          // say so when no process of the task ever reported
  Json fields = Json::object();         // of the document
  std::vector<int> checkpoint_on = {};  // signals of this process that end it by an image
  bool forget = false;                  // remove it once it has exited with 0
};

// What a command that stays with a task has to listen for.
Result<SignalSource> SignalsOf(const Options& options);
// Of a restore's failure; < 0: what belongs to it. One that was given up by a signal that asks for an image
// has one.
int ExitCodeOfRestore(const Json& failure, const Options& options);
// Removes what has ended, with its images; says so where that is not possible.
void Forget(const std::string& name, Context& context);

// Forwards signals to the program; a paused task is ended through its ghost instead, as a frozen program
// cannot act on a signal. Returns the exit code.
int StayInForeground(const ForegroundTask& task, TaskFollower& follower, SignalSource& signals,
                     Context& context);

}  // namespace stasis

#endif  // CLI_FOREGROUND_H_
