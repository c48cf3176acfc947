// The rate of something that is counted, over the answers that were had of it.
#ifndef COORDINATOR_AGENT_PROGRESS_WINDOW_H_
#define COORDINATOR_AGENT_PROGRESS_WINDOW_H_

#include <deque>
#include <optional>

#include "base/clock.h"
#include "base/task_protocol.h"

namespace stasis {

// How long answers are of use.
inline constexpr auto kLongestProgressWindow = std::chrono::minutes(10);

// Of one task. Not thread-safe.
class ProgressWindow {
 public:
  struct Rate {
    double per_second = 0;
    bool iterations = false;  // what it is of; else launches
    Duration over{};
  };

  // `now` ascends. An answer that counts less than the one before is of other processes: begins anew.
  void Add(MonotonicTime now, const TaskProgress& counted);
  // From the oldest answer that is no older than `window`, or else the one before the newest, to the newest;
  // nothing before there are two.
  std::optional<Rate> RateOver(Duration window) const;
  bool empty() const { return answers_.empty(); }
  MonotonicTime newest() const { return answers_.back().when; }

 private:
  struct Answer {
    MonotonicTime when;
    TaskProgress counted;
  };
  std::deque<Answer> answers_;  // ascending
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_PROGRESS_WINDOW_H_
