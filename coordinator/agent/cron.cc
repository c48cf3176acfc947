#include "coordinator/agent/cron.h"

#include <strings.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <vector>

namespace stasis {
namespace {

constexpr size_t kMaxText = 256;
constexpr int64_t kMinutesOfDay = 24 * 60;
constexpr int kDaysAhead = 9 * 366;  // from 29 February 2096 the next one is eight years away

constexpr std::array<std::string_view, 12> kMonths = {"jan", "feb", "mar", "apr", "may", "jun",
                                                      "jul", "aug", "sep", "oct", "nov", "dec"};
constexpr std::array<std::string_view, 7> kWeekdays = {"sun", "mon", "tue", "wed", "thu", "fri", "sat"};

struct FieldRule {
  const char* what;
  int low;
  int high;
  const std::string_view* names = nullptr;  // of low, low + 1, ...
  size_t name_count = 0;
};

constexpr FieldRule kFields[] = {{"minute", 0, 59},
                                 {"hour", 0, 23},
                                 {"day of month", 1, 31},
                                 {"month", 1, 12, kMonths.data(), kMonths.size()},
                                 {"day of week", 0, 7, kWeekdays.data(), kWeekdays.size()}};

Status Bad(const FieldRule& rule, std::string_view text) {
  return Errorf(StatusCode::kInvalidArgument, "cron expression: '%.*s' is no %s (%d to %d)",
                static_cast<int>(text.size()), text.data(), rule.what, rule.low, rule.high);
}

bool SameName(std::string_view a, std::string_view b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

// All digits, and no more of them than a field can have.
std::optional<int> ParseNumber(std::string_view text) {
  int value = 0;
  if (text.empty() || text.size() > 4) return std::nullopt;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

Result<int> ParseValue(const FieldRule& rule, std::string_view text) {
  for (size_t i = 0; i < rule.name_count; i++) {
    if (SameName(text, rule.names[i])) return rule.low + static_cast<int>(i);
  }
  std::optional<int> value = ParseNumber(text);
  if (!value || *value < rule.low || *value > rule.high) return Bad(rule, text);
  return *value;
}

// "*", "a", "a-b", each perhaps with "/step". "a/step" goes on to the highest value.
template <size_t kBits>
Status ParseRange(const FieldRule& rule, std::string_view text, std::bitset<kBits>* set) {
  size_t slash = text.find('/');
  std::string_view range = text.substr(0, slash);
  int step = 1;
  if (slash != std::string_view::npos) {
    std::optional<int> parsed = ParseNumber(text.substr(slash + 1));
    if (!parsed || *parsed == 0) return Bad(rule, text);
    step = *parsed;
  }
  int low = rule.low, high = rule.high;
  if (range != "*") {
    size_t dash = range.find('-');
    ASSIGN_OR_RETURN(low, ParseValue(rule, range.substr(0, dash)));
    if (dash != std::string_view::npos) {
      ASSIGN_OR_RETURN(high, ParseValue(rule, range.substr(dash + 1)));
    } else if (slash == std::string_view::npos) {
      high = low;
    }
  }
  if (low > high) return Bad(rule, text);
  for (int value = low; value <= high; value += step) set->set(static_cast<size_t>(value));
  return Status();
}

template <size_t kBits>
Status ParseField(const FieldRule& rule, std::string_view text, std::bitset<kBits>* set) {
  while (true) {
    size_t comma = text.find(',');
    RETURN_IF_ERROR(ParseRange(rule, text.substr(0, comma), set));
    if (comma == std::string_view::npos) return Status();
    text.remove_prefix(comma + 1);
  }
}

std::string_view Expand(std::string_view text) {
  constexpr std::pair<std::string_view, std::string_view> kShort[] = {
      {"@yearly", "0 0 1 1 *"}, {"@annually", "0 0 1 1 *"}, {"@monthly", "0 0 1 * *"},
      {"@weekly", "0 0 * * 0"}, {"@daily", "0 0 * * *"},    {"@midnight", "0 0 * * *"},
      {"@hourly", "0 * * * *"}};
  for (const auto& [name, fields] : kShort) {
    if (SameName(text, name)) return fields;
  }
  return text;
}

std::vector<std::string_view> Split(std::string_view text) {
  std::vector<std::string_view> words;
  while (true) {
    size_t begin = text.find_first_not_of(" \t");
    if (begin == std::string_view::npos) return words;
    text.remove_prefix(begin);
    size_t end = std::min(text.find_first_of(" \t"), text.size());
    words.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
}

tm LocalTime(int64_t seconds) {
  auto time = static_cast<time_t>(seconds);
  tm local{};
  localtime_r(&time, &local);
  return local;
}

int64_t MinuteOfDay(const tm& local) { return local.tm_hour * 60 + local.tm_min; }

int64_t OffsetAt(int64_t seconds) { return LocalTime(seconds).tm_gmtoff; }

// Where the local day after that of `time` begins. Days are 23 to 25 hours long, and not all of them have a
// midnight.
int64_t NextDay(int64_t time) {
  tm today = LocalTime(time);
  time += (kMinutesOfDay - MinuteOfDay(today)) * 60;
  tm later = LocalTime(time);
  if (later.tm_mday == today.tm_mday) return time + (kMinutesOfDay - MinuteOfDay(later)) * 60;
  int64_t midnight = time - MinuteOfDay(later) * 60;
  return LocalTime(midnight).tm_mday == later.tm_mday ? midnight : time;
}

// The clocks have shown this local time before.
bool IsRepeated(int64_t time) {
  for (int64_t back : {1800, 3600, 7200}) {
    if (OffsetAt(time - back) == OffsetAt(time) + back) return true;
  }
  return false;
}

}  // namespace

Result<CronExpression> CronExpression::Parse(std::string_view text) {
  if (text.size() > kMaxText) return Status(StatusCode::kInvalidArgument, "cron expression: too long");
  std::vector<std::string_view> fields = Split(Expand(text));
  if (fields.size() != std::size(kFields)) {
    return Status(StatusCode::kInvalidArgument,
                  "cron expression: five fields (minute, hour, day of month, month, day of week), or @daily "
                  "and the like");
  }
  CronExpression cron;
  RETURN_IF_ERROR(ParseField(kFields[0], fields[0], &cron.minutes_));
  RETURN_IF_ERROR(ParseField(kFields[1], fields[1], &cron.hours_));
  RETURN_IF_ERROR(ParseField(kFields[2], fields[2], &cron.days_));
  RETURN_IF_ERROR(ParseField(kFields[3], fields[3], &cron.months_));
  RETURN_IF_ERROR(ParseField(kFields[4], fields[4], &cron.weekdays_));
  if (cron.weekdays_.test(7)) cron.weekdays_.set(0);
  cron.any_hour_ = cron.hours_.all();
  cron.any_day_ = fields[2].starts_with('*');
  cron.any_weekday_ = fields[4].starts_with('*');
  if (!cron.ComesTrue()) {
    return Status(StatusCode::kInvalidArgument, "cron expression: no month that it names has such a day");
  }
  return cron;
}

bool CronExpression::ComesTrue() const {
  constexpr int kLength[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  if (!any_day_ && !any_weekday_) return true;
  for (size_t month = 1; month <= 12; month++) {
    for (int day = 1; months_.test(month) && day <= kLength[month - 1]; day++) {
      if (days_.test(static_cast<size_t>(day))) return true;
    }
  }
  return false;
}

bool CronExpression::MatchesDay(int day, int month, int weekday) const {
  if (!months_.test(static_cast<size_t>(month))) return false;
  bool of_month = days_.test(static_cast<size_t>(day));
  bool of_week = weekdays_.test(static_cast<size_t>(weekday));
  return any_day_ || any_weekday_ ? of_month && of_week : of_month || of_week;
}

bool CronExpression::MatchesTime(int64_t minute_of_day) const {
  return hours_.test(static_cast<size_t>(minute_of_day / 60)) &&
         minutes_.test(static_cast<size_t>(minute_of_day % 60));
}

// Of the minutes of `time`'s day, in local time, that the clocks have left out just before it.
bool CronExpression::MatchesGap(int64_t time, int64_t minute) const {
  int64_t gap = (OffsetAt(time) - OffsetAt(time - 60)) / 60;
  for (int64_t left_out = std::max<int64_t>(0, minute - gap); left_out < minute; left_out++) {
    if (MatchesTime(left_out)) return true;
  }
  return false;
}

bool CronExpression::IsDue(int64_t time, const tm& local) const {
  int64_t minute = MinuteOfDay(local);
  if (any_hour_) return MatchesTime(minute);
  return MatchesTime(minute) ? !IsRepeated(time) : MatchesGap(time, minute);
}

std::optional<int64_t> CronExpression::Next(int64_t after) const {
  int64_t time = after - LocalTime(after).tm_sec + 60;
  for (int day = 0; day <= kDaysAhead; day++) {
    int64_t end = NextDay(time);
    tm local = LocalTime(time);
    if (!MatchesDay(local.tm_mday, local.tm_mon + 1, local.tm_wday)) {
      time = end;
      continue;
    }
    for (; time < end; time += 60) {
      if (IsDue(time, LocalTime(time))) return time;
    }
  }
  return std::nullopt;
}

}  // namespace stasis
