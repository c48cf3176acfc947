// Child processes of the ghost: started without anything of ours in them, waited for by event.
#ifndef GHOST_CHILD_H_
#define GHOST_CHILD_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"

namespace stasis {

struct ChildOptions {
  std::vector<std::string> argv = {};  // argv[0] is the path of the program
  std::string output = {};             // stdout and stderr are appended there; empty: /dev/null
  int input = -1;                      // stdin; -1: /dev/null
  // Descriptors that the child inherits under their own numbers.
  std::vector<int> inherit = {};
  // False: LD_* and STASIS_* do not reach it. True: the environment is ours.
  bool keep_environment = false;
  bool new_session = false;
};

// Signals are unblocked and set to their defaults in it.
Result<pid_t> StartChild(const ChildOptions& options);

// A child that waits to be let go, so that whoever takes over from this process can be told of it before it
// does anything. It ends by itself, with kNeverLetGo, when this is destroyed before Go(), as when this
// process dies.
struct HeldChild {
  static constexpr int kNeverLetGo = 125;
  pid_t pid = 0;
  Fd go;
  Status Go();
};
// `options.argv` is what it becomes.
Result<HeldChild> StartHeldChild(ChildOptions options);
// Its exit status as waitpid(2) gives it. kTimeout: it still runs.
Result<int> WaitChild(pid_t pid, const Deadline& deadline);
// For a process that may be nobody's child of ours.
Status WaitProcess(pid_t pid, const Deadline& deadline);
// "exit status 1", "signal 9".
std::string ExitText(int status);

}  // namespace stasis

#endif  // GHOST_CHILD_H_
