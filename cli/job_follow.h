// Following the ranks of a job at once: their output line by line, signals, and how each ended. Waits by
// inotify, pidfds and signalfd only.
#ifndef CLI_JOB_FOLLOW_H_
#define CLI_JOB_FOLLOW_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/status.h"
#include "cli/follow.h"
#include "cli/stay.h"
#include "coordinator/node/layout.h"
#include "coordinator/node/task.h"

namespace stasis {

// The output of one rank as whole lines with "[RANK] " before each.
class RankLines {
 public:
  explicit RankLines(int rank) : prefix_("[" + std::to_string(rank) + "] ") {}
  // The lines that `bytes` complete. The beginning of one is kept for later, unless it is longer than a line
  // may be.
  std::string Take(std::string_view bytes);
  // What is kept, as a line.
  std::string Finish();

 private:
  std::string prefix_;
  std::string kept_;
};

struct JobFollowOptions {
  bool copy_output = true;        // to standard output
  bool stop_when_unread = false;  // end once nobody reads standard output any more
  std::function<void(int)> on_signal;
  // Ranks that have ended, in the order of their ends.
  std::function<void(const RankEnd&)> on_end;
  std::function<void()> on_alarm;
  // Called whenever this descriptor is readable; -1: none.
  int also = -1;
  std::function<void()> on_also;
};

// Watches the ranks from before they start: whoever creates it first misses nothing.
class JobFollower {
 public:
  // Needs the folders of the ranks' tasks, which are in the order of the ranks.
  static Result<JobFollower> Create(std::vector<TaskPaths> ranks);

  struct Start {
    ProcessIdentity init;
    uint64_t log_offset = 0;
  };
  // Until all ranks have ended and how is known: a checkpoint that ends them is awaited. kPeerDied with
  // stop_when_unread.
  Status Follow(const std::vector<Start>& starts, SignalSource& signals, const JobFollowOptions& options);
  // Lets on_alarm be called after this time, once. For handlers.
  void SetAlarm(Duration time) { alarm_ = Deadline::After(time); }

 private:
  struct Rank {
    Rank(TaskPaths task, int rank) : paths(std::move(task)), lines(rank) {}
    TaskPaths paths;
    RankLines lines;
    std::optional<LogFollower> log;
    Fd process;
    Fd ghost;           // that decides how the rank has ended
    bool alive = true;  // the process
    bool ended = false;
    bool managed = false;
  };
  explicit JobFollower(Fd inotify) : inotify_(std::move(inotify)) {}
  Status Watch(size_t index);
  Status Begin(const std::vector<Start>& starts, const JobFollowOptions& options);
  Status Wait(SignalSource& signals, const JobFollowOptions& options);
  Status TakeEvents();
  Result<bool> Pump(Rank& rank, bool last);
  Status PumpAll(const JobFollowOptions& options);
  Status TakeEnds(const JobFollowOptions& options);
  Result<std::optional<RankEnd>> EndOf(size_t index, const JobFollowOptions& options);
  bool AllEnded() const;

  Fd inotify_;
  std::vector<Rank> ranks_;
  std::map<int, size_t> ctl_watches_;
  std::optional<Deadline> alarm_;
};

}  // namespace stasis

#endif  // CLI_JOB_FOLLOW_H_
