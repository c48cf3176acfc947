// Following a task from a terminal: its output as it grows, signals on to it, and how it ended. Waits by
// inotify, pidfd and signalfd only.
#ifndef CLI_FOLLOW_H_
#define CLI_FOLLOW_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/process.h"
#include "base/status.h"
#include "coordinator/interrupt.h"
#include "coordinator/node/log_follower.h"
#include "coordinator/node/task.h"
#include "coordinator/node/verdict.h"

namespace stasis {

// SIGINT, SIGTERM and SIGQUIT of this process, and `more`, from construction on: taken by a descriptor
// instead of acted on.
class SignalSource final : public Interrupt {
 public:
  static Result<SignalSource> Create(const std::vector<int>& more = {});
  int fd() const override { return fd_.get(); }
  bool Take() override { return Next() != 0; }
  // The next signal; 0 when there is none.
  int Next();

 private:
  explicit SignalSource(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

struct FollowOptions {
  uint64_t log_offset = 0;
  bool copy_output = true;        // to standard output
  bool stop_when_unread = false;  // end once nobody reads standard output any more
  // Called with each signal that this process gets.
  std::function<void(int)> on_signal;
  // Called whenever this descriptor is readable; -1: none.
  int also = -1;
  std::function<void()> on_also;
};

struct FollowResult {
  TaskView view;         // after the end
  bool managed = false;  // a process of the task made a control socket while it was followed
};

// Watches a task from before it starts: whoever creates it first misses nothing.
class TaskFollower {
 public:
  // Needs the task's folders.
  static Result<TaskFollower> Create(const TaskPaths& paths);
  // Until the process `identity` has ended and how is known: a checkpoint that ends it is awaited. kPeerDied
  // with stop_when_unread.
  Result<FollowResult> Follow(const ProcessIdentity& identity, SignalSource& signals,
                              const FollowOptions& options);

 private:
  TaskFollower(TaskPaths paths, Fd inotify) : paths_(std::move(paths)), inotify_(std::move(inotify)) {}
  Status TakeEvents();
  Result<TaskView> AwaitVerdict();

  TaskPaths paths_;
  Fd inotify_;
  int ctl_watch_ = -1;
  bool managed_ = false;
};

}  // namespace stasis

#endif  // CLI_FOLLOW_H_
