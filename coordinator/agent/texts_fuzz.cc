// Texts that people write on command lines and in requests: times, durations, addresses. The first byte says
// which.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/duration.h"
#include "coordinator/agent/cron.h"
#include "proto/rpc/endpoint.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      (void)stasis::CronExpression::Parse(text);
      break;
    case 1:
      (void)stasis::ParseDuration(text);
      break;
    case 2:
      (void)stasis::ParseLongDuration(text);
      break;
    default:
      (void)stasis::ParseEndpoint(text);
  }
  return 0;
}
