#include "softgpu/nccl/log.h"

#include <strings.h>

#include <cstdarg>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "base/raw_log.h"

namespace softgpu::nccl {

namespace {

constexpr size_t kMessageBytes = 1024;

struct Last {
  std::mutex mutex;
  char text[kMessageBytes] = "";
};

Last& TheLast() {
  static constinit Last last;
  return last;
}

bool Wanted() {
  const char* level = getenv("NCCL_DEBUG");
  if (level == nullptr) return false;
  for (const char* name : {"WARN", "INFO", "ABORT", "TRACE"}) {
    if (strcasecmp(level, name) == 0) return true;
  }
  return false;
}

}  // namespace

ncclResult_t Fail(ncclResult_t result, const char* format, ...) {
  char text[kMessageBytes];
  va_list args;
  va_start(args, format);
  stasis::RawFormatV(text, sizeof text, format, args);
  va_end(args);
  if (Wanted()) stasis::RawLog(stasis::LogLevel::kWarning, "NCCL WARN %s", text);
  std::lock_guard lock(TheLast().mutex);
  std::memcpy(TheLast().text, text, sizeof text);
  return result;
}

const char* LastError() {
  thread_local char copy[kMessageBytes];
  std::lock_guard lock(TheLast().mutex);
  std::memcpy(copy, TheLast().text, sizeof copy);
  return copy;
}

}  // namespace softgpu::nccl
