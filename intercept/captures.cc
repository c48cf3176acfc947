#include "intercept/captures.h"

#include "intercept/futex.h"

namespace stasis {

namespace internal {
constinit std::atomic<uint32_t> g_captures{0};
}  // namespace internal

using internal::g_captures;

void CaptureBegan() { g_captures.fetch_add(1, std::memory_order_relaxed); }

void CaptureEnded() {
  g_captures.fetch_sub(1, std::memory_order_release);
  FutexWakeAll(g_captures);
}

bool WaitForCaptures(const Deadline& deadline) {
  for (;;) {
    const uint32_t captures = CapturesInProgress();
    if (captures == 0) return true;
    if (deadline.Expired()) return false;
    FutexWait(g_captures, captures, deadline);
  }
}

}  // namespace stasis
