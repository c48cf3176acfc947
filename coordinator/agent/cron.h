// When a cron expression names a minute.
#ifndef COORDINATOR_AGENT_CRON_H_
#define COORDINATOR_AGENT_CRON_H_

#include <time.h>

#include <bitset>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/status.h"

namespace stasis {

// Five fields: minute (0-59), hour (0-23), day of month (1-31), month (1-12, JAN-DEC), day of week (0-7,
// SUN-SAT; 0 and 7 are Sunday). Each is a list of "*", "a", "a-b", with "/step" behind any of them. When both
// days are restricted, either is enough. @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly
// stand for the usual fields.
//
// Times are local (TZ). For an expression that names hours: where the clocks are put forward, what falls into
// the gap is due at its end; where they are put back, and minutes come twice, the first time counts.
//
// A value; thread-safe once made.
class CronExpression {
 public:
  // kInvalidArgument: no expression, or one that never comes true (30 February).
  static Result<CronExpression> Parse(std::string_view text);

  // The first second of the first minute after `after` that it names; both in seconds since 1970. Nothing
  // where there is none within the next nine years.
  std::optional<int64_t> Next(int64_t after) const;

 private:
  bool MatchesDay(int day, int month, int weekday) const;
  bool MatchesTime(int64_t minute_of_day) const;
  bool MatchesGap(int64_t time, int64_t minute) const;
  bool IsDue(int64_t time, const tm& local) const;
  bool ComesTrue() const;

  std::bitset<60> minutes_;
  std::bitset<24> hours_;
  std::bitset<32> days_;     // from 1
  std::bitset<13> months_;   // from 1
  std::bitset<8> weekdays_;  // 7 is 0
  bool any_hour_ = false;
  bool any_day_ = false;
  bool any_weekday_ = false;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_CRON_H_
