// Starting a task's processes through stasis-init.
#ifndef CLI_LAUNCH_H_
#define CLI_LAUNCH_H_

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "cli/layout.h"
#include "cli/process.h"

namespace stasis {

struct LaunchOptions {
  std::string init;        // path of stasis-init
  std::string executable;  // absolute
  std::vector<std::string> argv;
  std::vector<std::string> environment;
  bool namespaces = false;  // PID and time namespaces; needs CAP_SYS_ADMIN
};

// Starts the program, writes process.json before its first instruction, and returns when it has been
// executed. kPermissionDenied: no namespaces; kNotFound or kPermissionDenied with "execute ..." when the
// kernel refused it.
Result<ProcessIdentity> Launch(const TaskPaths& paths, const LaunchOptions& options);

// True when this process may make a PID namespace.
bool HasSysAdmin();

}  // namespace stasis

#endif  // CLI_LAUNCH_H_
