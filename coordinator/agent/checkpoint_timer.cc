#include "coordinator/agent/checkpoint_timer.h"

#include <algorithm>
#include <cmath>

#include "coordinator/agent/schedule_rules.h"

namespace stasis {
namespace {

using std::chrono::ceil;
using std::chrono::milliseconds;
using std::chrono::seconds;

// By which Young/Daly begins, before anything was measured.
constexpr double kAssumedCostMs = 1000;
constexpr double kNewestWeight = 0.3;
constexpr Duration kFirstRetry = seconds(1);
constexpr Duration kLongestRetry = seconds(300);

// Far ones are cut: nobody waits for 100 years, and sums must not overflow.
Duration FromMs(double ms) {
  constexpr double kLongest = 100.0 * 366 * 24 * 3600 * 1000;
  return milliseconds(static_cast<int64_t>(std::ceil(std::min(ms, kLongest))));
}

}  // namespace

void CheckpointCost::Learn(double milliseconds) {
  if (!(milliseconds >= 0)) return;
  standstill_ms =
      standstill_ms < 0 ? milliseconds : kNewestWeight * milliseconds + (1 - kNewestWeight) * standstill_ms;
}

CheckpointTimer::CheckpointTimer(const v1::Schedule& rules, double default_mtbf_ms)
    : rules_(rules), default_mtbf_ms_(default_mtbf_ms) {
  if (rules.cron().empty()) return;
  Result<CronExpression> cron = CronExpression::Parse(rules.cron());
  if (cron.ok()) cron_ = *cron;
}

void CheckpointTimer::Begin(MonotonicTime since, Moment now) {
  since_ = since;
  failures_ = 0;
  seen_ms_ = now.wall_ms;
}

void CheckpointTimer::Started(Moment now) { tried_ = now.monotonic; }

void CheckpointTimer::Failed(Moment now) {
  tried_ = now.monotonic;
  failures_++;
}

void CheckpointTimer::Succeeded() {
  since_ = tried_;
  failures_ = 0;
}

void CheckpointTimer::Skip(Moment now) { seen_ms_ = now.wall_ms; }

bool CheckpointTimer::Due(Moment now, const CheckpointCost& cost) {
  if (!since_) return false;
  if (by_interval()) return now.monotonic >= IntervalEnd(cost);
  return cron_ && CronDue(now, cost);
}

std::optional<Duration> CheckpointTimer::Wait(Moment now, const CheckpointCost& cost) {
  if (!since_) return std::nullopt;
  if (by_interval()) return std::max(Duration::zero(), IntervalEnd(cost) - now.monotonic);
  if (cron_) return WaitForCron(now, cost);
  return std::nullopt;
}

double CheckpointTimer::SuggestedMs(const CheckpointCost& cost) const {
  double mtbf = rules_.mtbf_ms() != 0 ? static_cast<double>(rules_.mtbf_ms()) : default_mtbf_ms_;
  if (mtbf <= 0 || cost.standstill_ms <= 0) return 0;
  return SuggestedIntervalMs(cost.standstill_ms, mtbf);
}

Duration CheckpointTimer::Interval(const CheckpointCost& cost) const {
  auto interval = static_cast<double>(rules_.interval_ms());
  if (interval == 0) {
    interval = SuggestedIntervalMs(cost.standstill_ms > 0 ? cost.standstill_ms : kAssumedCostMs,
                                   static_cast<double>(rules_.mtbf_ms()));
  }
  if (rules_.overhead_budget() > 0 && cost.standstill_ms > 0) {
    interval = std::max(interval, BudgetIntervalMs(cost.standstill_ms, rules_.overhead_budget()));
  }
  return FromMs(interval);
}

MonotonicTime CheckpointTimer::IntervalEnd(const CheckpointCost& cost) const {
  MonotonicTime end = *since_ + Interval(cost);
  return failures_ == 0 ? end : std::max(end, RetryTime(cost));
}

MonotonicTime CheckpointTimer::RetryTime(const CheckpointCost& cost) const {
  Duration delay =
      std::min<Duration>(kFirstRetry * (int64_t{1} << std::min(failures_ - 1, 10u)), kLongestRetry);
  if (by_interval()) delay = std::min(delay, Interval(cost));
  return tried_ + delay;
}

MonotonicTime CheckpointTimer::EarliestByBudget(const CheckpointCost& cost) const {
  if (rules_.overhead_budget() <= 0 || cost.standstill_ms <= 0) return MonotonicTime::min();
  return *since_ + FromMs(BudgetIntervalMs(cost.standstill_ms, rules_.overhead_budget()));
}

std::optional<int64_t> CheckpointTimer::NextFiringMs(int64_t after_ms) {
  if (!firing_ || after_ms < firing_->from_ms || after_ms >= firing_->next_ms) {
    firing_.reset();
    std::optional<int64_t> next = cron_->Next(after_ms / 1000);
    if (!next) return std::nullopt;
    firing_ = {after_ms, *next * 1000};
  }
  return firing_->next_ms;
}

bool CheckpointTimer::CronDue(Moment now, const CheckpointCost& cost) {
  // The clock was put back: what it has yet to show again is not over.
  seen_ms_ = std::min(seen_ms_, now.wall_ms);
  std::optional<int64_t> firing = NextFiringMs(seen_ms_);
  bool named = firing && *firing <= now.wall_ms;
  if (named) seen_ms_ = now.wall_ms;
  if (failures_ != 0) return now.monotonic >= RetryTime(cost);
  return named && now.monotonic >= EarliestByBudget(cost);
}

std::optional<Duration> CheckpointTimer::WaitForCron(Moment now, const CheckpointCost& cost) {
  if (failures_ != 0) return std::max(Duration::zero(), RetryTime(cost) - now.monotonic);
  int64_t after = std::min(seen_ms_, now.wall_ms);
  MonotonicTime earliest = EarliestByBudget(cost);
  if (earliest > now.monotonic) {
    after = std::max(after, now.wall_ms + ceil<milliseconds>(earliest - now.monotonic).count() - 1);
  }
  std::optional<int64_t> firing = NextFiringMs(after);
  if (!firing) return std::nullopt;
  return std::max<Duration>(Duration::zero(), milliseconds(*firing - now.wall_ms));
}

}  // namespace stasis
