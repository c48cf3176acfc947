// Times as they are written on the command line.
#ifndef BASE_DURATION_H_
#define BASE_DURATION_H_

#include <string_view>

#include "base/clock.h"
#include "base/status.h"

namespace stasis {

// "30s", "500ms", "2m", "1h", "1d"; a bare number is seconds. More than zero, at most a day.
Result<Duration> ParseDuration(std::string_view text);
// The same, up to a year.
Result<Duration> ParseLongDuration(std::string_view text);

}  // namespace stasis

#endif  // BASE_DURATION_H_
