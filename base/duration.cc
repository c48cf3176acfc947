#include "base/duration.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace stasis {
namespace {

constexpr double kDay = 24 * 3600e9;  // nanoseconds

// Nanoseconds in one unit; 0: no such unit.
double UnitOf(std::string_view unit) {
  if (unit == "ms") return 1e6;
  if (unit == "s" || unit.empty()) return 1e9;
  if (unit == "m" || unit == "min") return 60e9;
  if (unit == "h") return 3600e9;
  if (unit == "d") return kDay;
  return 0;
}

Result<Duration> ParseTime(std::string_view text, double most, const char* expected) {
  Status bad = Errorf(StatusCode::kInvalidArgument, "'%.*s' is no time: expected %s",
                      static_cast<int>(std::min<size_t>(text.size(), 100)), text.data(), expected);
  double number = 0;
  auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number)) return bad;
  double nanoseconds = number * UnitOf(text.substr(static_cast<size_t>(rest - text.data())));
  if (nanoseconds < 1e6 || nanoseconds > most) return bad;
  return Duration(static_cast<int64_t>(nanoseconds));
}

}  // namespace

Result<Duration> ParseDuration(std::string_view text) {
  return ParseTime(text, kDay, "30s, 500ms, 2m or 1h, up to a day");
}

Result<Duration> ParseLongDuration(std::string_view text) {
  return ParseTime(text, 366 * kDay, "90s, 10m, 2h or 7d, up to a year");
}

}  // namespace stasis
