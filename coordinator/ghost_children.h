// The ghosts that this process has started. A ghost outlives what asked for it, and a process that goes on
// for long has to take note of its end, or it stays a zombie.
#ifndef COORDINATOR_GHOST_CHILDREN_H_
#define COORDINATOR_GHOST_CHILDREN_H_

#include <sys/types.h>

#include <map>
#include <mutex>

#include "base/fd.h"

namespace stasis {

// Thread-safe. Other children of the process are not touched.
class GhostChildren {
 public:
  // The one to which ReachGhost() adds what it starts.
  static GhostChildren& OfThisProcess();

  GhostChildren();
  void Add(pid_t child);
  // Readable while one has ended and Reap() has not been called since.
  int fd() const { return ends_.get(); }
  void Reap();
  size_t size() const;  // those that have not been reaped

 private:
  mutable std::mutex mutex_;
  const Fd ends_;  // epoll on the pidfds
  std::map<pid_t, Fd> children_;
};

}  // namespace stasis

#endif  // COORDINATOR_GHOST_CHILDREN_H_
