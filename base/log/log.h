// What a daemon tells those who run it: one JSON object a line on standard error, each written whole.
//
// Fields: "time" (RFC 3339, UTC, microseconds), "level", "component", "message", and what a message has
// besides them. Thread-safe.
#ifndef BASE_LOG_LOG_H_
#define BASE_LOG_LOG_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace stasis {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
const char* LogLevelName(LogLevel level);
std::optional<LogLevel> LogLevelByName(std::string_view name);

// For the whole process; kInfo until it is set.
void SetLogLevel(LogLevel least);

// `fields` is an object; names of the four above are not taken from it.
void Log(LogLevel level, std::string_view component, std::string_view message,
         const nlohmann::json& fields = {});

// The line that Log() writes, without its end.
std::string LogLine(LogLevel level, std::string_view component, std::string_view message,
                    const nlohmann::json& fields, int64_t realtime_us);

}  // namespace stasis

#endif  // BASE_LOG_LOG_H_
