#include "softgpu/native/not_supported.h"

#include <cstdlib>
#include <cstring>

#include "base/raw_log.h"

namespace softgpu::native {

void SayNotSupported(const char* library, const char* function, std::atomic<bool>* said) {
  if (said->exchange(true, std::memory_order_relaxed)) return;
  const char* log = std::getenv("SOFTGPU_LOG");
  if (log != nullptr && std::strcmp(log, "0") == 0) return;
  stasis::RawLog(stasis::LogLevel::kWarning, "softgpu %s: %s is not supported", library, function);
}

}  // namespace softgpu::native
