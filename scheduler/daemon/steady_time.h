// Time that people can read and that nobody can set back: milliseconds since 1970 as this machine tells them
// when it starts, and from then on by a clock that is not set.
#ifndef SCHEDULER_DAEMON_STEADY_TIME_H_
#define SCHEDULER_DAEMON_STEADY_TIME_H_

#include <functional>
#include <mutex>

#include "scheduler/types.h"

namespace stasis::scheduler {

// Follows the wall clock forwards while it runs ahead by an hour at most; a larger jump, and one backwards,
// is not followed. Thread-safe.
class SteadyTime {
 public:
  // Milliseconds of both; the second one is never set (CLOCK_BOOTTIME).
  struct Sources {
    std::function<Time()> wall, boot;
  };
  static Sources Real();

  explicit SteadyTime(Sources sources);
  Time Now();

 private:
  const Sources sources_;
  std::mutex mutex_;
  Time now_, boot_;
};

}  // namespace stasis::scheduler

#endif  // SCHEDULER_DAEMON_STEADY_TIME_H_
