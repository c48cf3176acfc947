// The guardian: a second process that holds duplicates of everything the ghost holds for a task, so that a
// ghost that dies loses nothing. When the ghost's end of the socket closes without a goodbye, the guardian
// becomes the task's ghost itself (stasis-ghost --adopt).
//
// On the socket, frames of base/message.h: the ghost sends type 1 with the state as JSON and, when `fds` says
// so, the descriptors that replace the earlier ones; or type 2, goodbye. Each is answered by type 3, empty:
// what was replaced is closed by then.
#ifndef GHOST_GUARD_H_
#define GHOST_GUARD_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "dedup/json.h"

namespace stasis {

// How to start this program again for the same task.
struct GhostArguments {
  std::string program;  // absolute path of stasis-ghost
  std::string task;
  std::string state_dir;
  std::string run_dir;
  std::string criu;

  std::vector<std::string> CommandLine() const;
};

// The ghost's side. Not thread-safe.
class Guard {
 public:
  explicit Guard(GhostArguments arguments) : arguments_(std::move(arguments)) {}
  ~Guard() { Dismiss(); }

  bool running() const { return socket_.valid(); }
  // Readable when the guardian has died; -1 while there is none.
  int fd() const { return socket_.get(); }
  // Starts the guardian.
  Status Start();
  // Tells it the state; returns when it has it. `fds` null: those that it has stay. kPeerDied: there is none
  // any more, see Forget().
  Status Publish(const Json& state, const std::vector<Fd>* fds);
  // Ends it. Idempotent.
  void Dismiss();
  // Lets go of one that died.
  void Forget();

 private:
  Status Exchange(uint32_t type, const Json& state, const std::vector<Fd>* fds);
  GhostArguments arguments_;
  Fd socket_;
  pid_t pid_ = 0;
};

// The guardian's side: serves until goodbye (returns 0), or becomes the ghost.
int GuardMain(int socket, const GhostArguments& arguments);

// What the guardian left for the ghost it becomes, behind the descriptor that --adopt names.
struct Adopted {
  Json state;
  std::vector<Fd> fds;
  Fd lock;  // the guardian's, to be kept until the new ghost listens
};
Result<Adopted> ReadAdopted(int fd);

// Held by a guardian for as long as it lives, on into the ghost that it becomes: a ghost that is started
// meanwhile sees that the task is not its own to serve. kAlreadyExists, without `wait`: somebody has it.
Result<Fd> LockAsGuardian(const GhostArguments& arguments, bool wait);

}  // namespace stasis

#endif  // GHOST_GUARD_H_
