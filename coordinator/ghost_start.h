// Reaching the ghost of a task, wherever on this machine's nodes it is (docs/ghost-protocol.md, "Starting
// it").
#ifndef COORDINATOR_GHOST_START_H_
#define COORDINATOR_GHOST_START_H_

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace stasis {

struct GhostPlace {
  std::string task;
  std::string state_dir;
  std::string run_dir;
  std::string ghost;                 // path of stasis-ghost
  std::vector<std::string> through;  // of the node, before the ghost's own command; may be empty

  std::string TaskFolder() const { return state_dir + "/tasks/" + task; }
  std::string RunFolder() const { return run_dir + "/tasks/" + task; }
};

// A non-blocking connection to the task's ghost, which is started when nobody answers; of several callers at
// once one starts it. kPermissionDenied: the ghost is somebody else's; kNotFound: there is no stasis-ghost;
// kUnavailable: it did not start, with what it says. Thread-safe.
Result<Fd> ReachGhost(const GhostPlace& place);
// The same, and kNotFound or kUnavailable where none listens.
Result<Fd> FindGhost(const GhostPlace& place);

}  // namespace stasis

#endif  // COORDINATOR_GHOST_START_H_
