// Following a task from a terminal: its output as it grows, signals on to it, and how it ended. Waits by
// inotify, pidfd and signalfd only.
#ifndef CLI_FOLLOW_H_
#define CLI_FOLLOW_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/process.h"
#include "base/status.h"
#include "cli/task.h"

namespace stasis {

// Writes all of `bytes`, also to somebody's non-blocking pipe. False: nobody reads `out` any more.
Result<bool> WriteOutput(int out, std::string_view bytes);

// Copies a growing file to a descriptor.
class LogFollower {
 public:
  // Begins at byte `offset`. kNotFound: no such file.
  static Result<LogFollower> Open(const std::string& path, uint64_t offset);

  // Copies what is there now to `out`, also when the file was cut shorter meanwhile (then from its new end
  // on). False once nobody reads `out` any more: nothing is copied from then on.
  Result<bool> Pump(int out);
  // The same, given piece by piece to a function that returns as WriteOutput does.
  using Sink = std::function<Result<bool>(std::string_view)>;
  Result<bool> Pump(const Sink& sink);
  uint64_t offset() const { return offset_; }
  void set_offset(uint64_t offset) { offset_ = offset; }

 private:
  LogFollower(Fd file, uint64_t offset) : file_(std::move(file)), offset_(offset) {}

  Fd file_;
  uint64_t offset_;
  bool reader_gone_ = false;
};

// SIGINT, SIGTERM and SIGQUIT of this process, from construction on: taken by a descriptor instead of acted
// on.
class SignalSource {
 public:
  static Result<SignalSource> Create();
  int fd() const { return fd_.get(); }
  // The next signal; 0 when there is none.
  int Next();

 private:
  explicit SignalSource(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

// How a task whose process is gone has ended; nothing while its ghost, which is about to end it or has just
// done so for a checkpoint, has not said so yet. `ghost` is then a descriptor that polls readable when that
// ends.
Result<std::optional<TaskView>> Verdict(const TaskFacts& facts, Fd* ghost);

struct FollowOptions {
  uint64_t log_offset = 0;
  bool copy_output = true;        // to standard output
  bool stop_when_unread = false;  // end once nobody reads standard output any more
  // Called with each signal that this process gets.
  std::function<void(int)> on_signal;
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
