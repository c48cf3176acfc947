// Starting a task's processes through stasis-init.
#ifndef COORDINATOR_NODE_LAUNCH_H_
#define COORDINATOR_NODE_LAUNCH_H_

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/process.h"
#include "base/status.h"
#include "coordinator/node/layout.h"

namespace stasis {

struct LaunchOptions {
  std::string init;        // path of stasis-init
  std::string executable;  // absolute
  std::vector<std::string> argv;
  std::vector<std::string> environment;
  std::string folder;  // the program's working folder
  // What leads into the place where it is to run, before stasis-init; [0] is absolute. Empty: here.
  std::vector<std::string> through;
  bool namespaces = false;  // PID and time namespaces; needs CAP_SYS_ADMIN
};

// A task whose program waits before its first instruction. Without LetGo() it ends with the object, and has
// ended when that is destroyed.
class PendingTask {
 public:
  // Starts stasis-init and writes process.json. kPermissionDenied: no namespaces.
  static Result<PendingTask> Start(const TaskPaths& paths, const LaunchOptions& options);
  PendingTask(PendingTask&&) = default;
  PendingTask& operator=(PendingTask&&) = delete;
  ~PendingTask();

  const ProcessIdentity& init() const { return init_; }
  pid_t program() const { return program_; }
  // Returns when the program has been executed. kNotFound or kPermissionDenied with "execute ..." when the
  // kernel refused it.
  Status LetGo();
  // Ends what has been let go, too, and waits for the end.
  void End();

 private:
  PendingTask(Fd control, ProcessIdentity init, pid_t program, std::string executable)
      : control_(std::move(control)), init_(init), program_(program), executable_(std::move(executable)) {}

  Fd control_;
  ProcessIdentity init_;
  pid_t program_;
  std::string executable_;
};

// True when this process may make a PID namespace.
bool HasSysAdmin();

}  // namespace stasis

#endif  // COORDINATOR_NODE_LAUNCH_H_
