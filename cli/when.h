// Moments as people write and read them.
#ifndef CLI_WHEN_H_
#define CLI_WHEN_H_

#include <cstdint>
#include <string>

#include "base/status.h"

namespace stasis {

// Milliseconds since 1970. "now"; "+90m": so long after `now_ms`; "2026-12-24 18:00" or
// "2026-12-24T18:00:30": here; with a Z behind it: UTC.
Result<int64_t> ParseWhen(const std::string& text, int64_t now_ms);
// "2026-12-24 18:00:30", here.
std::string WhenText(int64_t ms);

}  // namespace stasis

#endif  // CLI_WHEN_H_
