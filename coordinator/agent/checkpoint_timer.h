// When the next checkpoint of a job is due.
#ifndef COORDINATOR_AGENT_CHECKPOINT_TIMER_H_
#define COORDINATOR_AGENT_CHECKPOINT_TIMER_H_

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "coordinator/agent/cron.h"
#include "stasis/v1/agent.pb.h"

namespace stasis {

// One moment on both clocks. Intervals are counted on the monotonic one, so that setting the other makes no
// difference; a cron expression is about the time of day.
struct Moment {
  MonotonicTime monotonic{};
  int64_t wall_ms = 0;  // since 1970
};

// What the timer has measured of the job's checkpoints.
struct CheckpointCost {
  // Moving average of the time that the job stood still, in milliseconds; negative: none has been made.
  double standstill_ms = -1;
  void Learn(double milliseconds);
};

// By an interval, a cron expression, or Young/Daly; a budget stretches the first and the last, and skips
// times of the second. Not thread-safe.
class CheckpointTimer {
 public:
  // `rules` as RulesOf() gives them, checked. `default_mtbf_ms` is for what is only suggested; 0: none.
  CheckpointTimer(const v1::Schedule& rules, double default_mtbf_ms);

  // The job runs from `now` on, and has last been checkpointed, or begun, at `since`.
  void Begin(MonotonicTime since, Moment now);
  // A checkpoint is being started.
  void Started(Moment now);
  // It has failed: it is tried again before the usual time.
  void Failed(Moment now);
  void Succeeded();
  // The job does not run, so that nothing can be due. Times of a cron expression that pass meanwhile are
  // passed over, the end of an interval is not.
  void Skip(Moment now);

  bool Due(Moment now, const CheckpointCost& cost);
  // How long from `now` until Due() can become true; nothing: never.
  std::optional<Duration> Wait(Moment now, const CheckpointCost& cost);

  // By Young/Daly; 0: not known.
  double SuggestedMs(const CheckpointCost& cost) const;

 private:
  bool by_interval() const { return !cron_ && (rules_.interval_ms() != 0 || rules_.mtbf_ms() != 0); }
  Duration Interval(const CheckpointCost& cost) const;
  MonotonicTime IntervalEnd(const CheckpointCost& cost) const;
  MonotonicTime EarliestByBudget(const CheckpointCost& cost) const;
  MonotonicTime RetryTime(const CheckpointCost& cost) const;
  std::optional<int64_t> NextFiringMs(int64_t after_ms);
  std::optional<Duration> WaitForCron(Moment now, const CheckpointCost& cost);
  bool CronDue(Moment now, const CheckpointCost& cost);

  v1::Schedule rules_;
  double default_mtbf_ms_;
  std::optional<CronExpression> cron_;
  std::optional<MonotonicTime> since_;  // start of the last checkpoint; nothing: the job does not run
  MonotonicTime tried_{};               // start of the last attempt
  uint32_t failures_ = 0;               // in a row
  int64_t seen_ms_ = 0;                 // wall clock; times of the cron expression up to it are over
  // Of the expression: the first time after `from`, so also after all that is before `next`.
  struct Firing {
    int64_t from_ms;
    int64_t next_ms;
  };
  std::optional<Firing> firing_;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_CHECKPOINT_TIMER_H_
