#include "coordinator/node/values.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace stasis {
namespace {

constexpr int kMaxOrdinal = 1023;
constexpr double kDay = 24 * 3600e9;  // nanoseconds

Status Bad(const char* what, std::string_view text, const char* expected) {
  return Errorf(StatusCode::kInvalidArgument, "'%.*s' is no %s: expected %s",
                static_cast<int>(std::min<size_t>(text.size(), 100)), text.data(), what, expected);
}

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
  Status bad = Bad("time", text, expected);
  double number = 0;
  auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number)) return bad;
  double nanoseconds = number * UnitOf(text.substr(static_cast<size_t>(rest - text.data())));
  if (nanoseconds < 1e6 || nanoseconds > most) return bad;
  return Duration(static_cast<int64_t>(nanoseconds));
}

}  // namespace

Result<std::vector<int>> ParseGpuList(std::string_view text) {
  Status bad = Bad("list of GPUs", text, "ordinals as 0 or 2,0, each once");
  std::vector<int> gpus;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    int gpu = -1;
    auto [rest, error] = std::from_chars(text.data() + begin, text.data() + end, gpu);
    if (error != std::errc() || rest != text.data() + end || gpu < 0 || gpu > kMaxOrdinal) return bad;
    if (std::find(gpus.begin(), gpus.end(), gpu) != gpus.end()) return bad;
    gpus.push_back(gpu);
    begin = end + 1;
  }
  return gpus;
}

Result<Duration> ParseDuration(std::string_view text) {
  return ParseTime(text, kDay, "30s, 500ms, 2m or 1h, up to a day");
}

Result<Duration> ParseLongDuration(std::string_view text) {
  return ParseTime(text, 366 * kDay, "90s, 10m, 2h or 7d, up to a year");
}

std::string GpuListText(const std::vector<int>& gpus) {
  std::string text;
  for (int gpu : gpus) text += (text.empty() ? "" : ",") + std::to_string(gpu);
  return text;
}

}  // namespace stasis
