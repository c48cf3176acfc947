#include "base/log/log.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>

namespace stasis {
namespace {

std::atomic<LogLevel> least_level{LogLevel::kInfo};

constexpr LogLevel kLevels[] = {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError};

std::string TimeText(int64_t realtime_us) {
  std::time_t seconds = realtime_us / 1000000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char date[32], text[48];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text, sizeof text, "%s.%06dZ", date, static_cast<int>(realtime_us % 1000000));
  return text;
}

}  // namespace

const char* LogLevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kError:
      return "error";
  }
  return "?";
}

std::optional<LogLevel> LogLevelByName(std::string_view name) {
  for (LogLevel level : kLevels) {
    if (name == LogLevelName(level)) return level;
  }
  return std::nullopt;
}

void SetLogLevel(LogLevel least) { least_level = least; }

std::string LogLine(LogLevel level, std::string_view component, std::string_view message,
                    const nlohmann::json& fields, int64_t realtime_us) {
  // Those that every line has come first, whatever the names of the others are.
  nlohmann::ordered_json line = {{"time", TimeText(realtime_us)},
                                 {"level", LogLevelName(level)},
                                 {"component", component},
                                 {"message", message}};
  if (fields.is_object()) {
    for (const auto& [name, value] : fields.items()) {
      if (!line.contains(name)) line[name] = value;
    }
  }
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void Log(LogLevel level, std::string_view component, std::string_view message, const nlohmann::json& fields) {
  if (level < least_level.load(std::memory_order_relaxed)) return;
  auto now = std::chrono::system_clock::now().time_since_epoch();
  std::string line = LogLine(level, component, message, fields,
                             std::chrono::duration_cast<std::chrono::microseconds>(now).count());
  line += '\n';
  // One write, so that lines of several threads do not mix; what nobody can read is lost.
  while (write(STDERR_FILENO, line.data(), line.size()) < 0 && errno == EINTR) {
  }
}

}  // namespace stasis
