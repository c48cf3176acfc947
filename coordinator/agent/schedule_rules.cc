#include "coordinator/agent/schedule_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "coordinator/agent/cron.h"

namespace stasis {
namespace {

constexpr uint64_t kYearMs = 366ULL * 24 * 3600 * 1000;
constexpr uint64_t kMinIntervalMs = 1000;
constexpr uint64_t kMinMtbfMs = 1000;
constexpr uint64_t kMaxMtbfMs = 100 * kYearMs;
constexpr uint32_t kMaxKept = 10000;
constexpr uint32_t kMaxRestarts = 1000000;
constexpr uint32_t kMaxBackoffMs = 24 * 3600 * 1000;
constexpr uint32_t kDefaultKeepLast = 3;
constexpr uint32_t kDefaultBackoffMs = 1000;
constexpr double kLongestBackoffMs = 600 * 1000;

// 0 means "none".
Status CheckRange(const char* field, uint64_t value, uint64_t low, uint64_t high) {
  if (value == 0 || (value >= low && value <= high)) return Status();
  return Status(StatusCode::kInvalidArgument,
                fmt::format("schedule: {} is {}, not 0 or {} to {}", field, value, low, high));
}

}  // namespace

Status CheckSchedule(const v1::Schedule& schedule) {
  RETURN_IF_ERROR(CheckRange("interval_ms", schedule.interval_ms(), kMinIntervalMs, kYearMs));
  RETURN_IF_ERROR(CheckRange("mtbf_ms", schedule.mtbf_ms(), kMinMtbfMs, kMaxMtbfMs));
  RETURN_IF_ERROR(CheckRange("keep_last", schedule.keep_last(), 1, kMaxKept));
  RETURN_IF_ERROR(CheckRange("keep_every_ms", schedule.keep_every_ms(), kMinIntervalMs, 10 * kYearMs));
  RETURN_IF_ERROR(CheckRange("max_restarts", schedule.max_restarts(), 1, kMaxRestarts));
  RETURN_IF_ERROR(CheckRange("restart_backoff_ms", schedule.restart_backoff_ms(), 1, kMaxBackoffMs));
  // Also what is not a number.
  if (!(schedule.overhead_budget() >= 0 && schedule.overhead_budget() <= 1)) {
    return Status(StatusCode::kInvalidArgument, "schedule: overhead_budget is not from 0 to 1");
  }
  if (schedule.cron().empty()) return Status();
  if (schedule.interval_ms() != 0) {
    return Status(StatusCode::kInvalidArgument, "schedule: an interval or a cron expression, not both");
  }
  return CronExpression::Parse(schedule.cron()).status();
}

bool HasNoRule(const v1::Schedule& schedule) {
  return schedule.interval_ms() == 0 && schedule.cron().empty() && schedule.mtbf_ms() == 0 &&
         schedule.max_restarts() == 0;
}

v1::Schedule RulesOf(const v1::Schedule& schedule) {
  v1::Schedule rules;
  rules.set_job(schedule.job());
  rules.set_interval_ms(schedule.interval_ms());
  rules.set_cron(schedule.cron());
  rules.set_mtbf_ms(schedule.mtbf_ms());
  rules.set_keep_last(schedule.keep_last() == 0 ? kDefaultKeepLast : schedule.keep_last());
  rules.set_keep_every_ms(schedule.keep_every_ms());
  rules.set_overhead_budget(schedule.overhead_budget());
  rules.set_max_restarts(schedule.max_restarts());
  rules.set_restart_backoff_ms(schedule.restart_backoff_ms() == 0 ? kDefaultBackoffMs
                                                                  : schedule.restart_backoff_ms());
  rules.set_paused(schedule.paused());
  return rules;
}

double SuggestedIntervalMs(double cost_ms, double mtbf_ms) {
  if (cost_ms >= 2 * mtbf_ms) return mtbf_ms + cost_ms;
  double share = cost_ms / (2 * mtbf_ms);
  return std::sqrt(2 * cost_ms * mtbf_ms) * (1 + std::sqrt(share) / 3 + share / 9);
}

double BudgetIntervalMs(double cost_ms, double budget) { return cost_ms / budget; }

std::vector<std::string> ImagesToRemove(const std::vector<ScheduleImage>& images, uint32_t keep_last,
                                        uint64_t keep_every_ms) {
  std::vector<std::string> remove;
  std::set<int64_t> periods;  // that have their newest
  for (size_t age = 0; age < images.size(); age++) {
    const ScheduleImage& image = images[images.size() - 1 - age];
    bool kept = age < std::max(keep_last, 1u);
    if (keep_every_ms != 0) {
      kept = periods.insert(image.created_ms / static_cast<int64_t>(keep_every_ms)).second || kept;
    }
    if (!kept) remove.push_back(image.id);
  }
  std::reverse(remove.begin(), remove.end());
  return remove;
}

double BackoffMs(uint32_t first_ms, uint32_t failures) {
  double first = first_ms;
  return std::min(std::ldexp(first, static_cast<int>(std::min(failures, 40u))),
                  std::max(first, kLongestBackoffMs));
}

}  // namespace stasis
