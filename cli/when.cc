#include "cli/when.h"

#include <chrono>
#include <cstring>
#include <ctime>

#include "coordinator/node/values.h"

namespace stasis {
namespace {

Status Bad(const std::string& text) {
  return Errorf(StatusCode::kInvalidArgument,
                "'%.100s' is no moment: now, +90m, '2026-12-24 18:00' or 2026-12-24T18:00Z is expected",
                text.c_str());
}

// The rest behind what is in the format, or null.
const char* ReadDate(const char* text, tm* fields) {
  for (const char* format : {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M"}) {
    *fields = {};
    const char* rest = strptime(text, format, fields);
    if (rest != nullptr && (*rest == '\0' || std::strcmp(rest, "Z") == 0)) return rest;
  }
  return nullptr;
}

}  // namespace

Result<int64_t> ParseWhen(const std::string& text, int64_t now_ms) {
  if (text == "now") return now_ms;
  if (text.starts_with('+')) {
    ASSIGN_OR_RETURN(Duration later, ParseLongDuration(text.substr(1)));
    return now_ms + std::chrono::duration_cast<std::chrono::milliseconds>(later).count();
  }
  tm fields{};
  const char* rest = ReadDate(text.c_str(), &fields);
  if (rest == nullptr) return Bad(text);
  const int day = fields.tm_mday;
  fields.tm_isdst = -1;
  time_t seconds = *rest == 'Z' ? timegm(&fields) : mktime(&fields);
  // The 31st of a month that has none.
  if (seconds <= 0 || fields.tm_mday != day) return Bad(text);
  return static_cast<int64_t>(seconds) * 1000;
}

std::string WhenText(int64_t ms) {
  time_t seconds = ms / 1000;
  tm fields{};
  char text[32] = {};
  localtime_r(&seconds, &fields);
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &fields);
  return text;
}

}  // namespace stasis
