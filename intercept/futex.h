// futex(2) on private words: waiting for a value to change, with a deadline. Async-signal-safe.
#ifndef INTERCEPT_FUTEX_H_
#define INTERCEPT_FUTEX_H_

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

#include "base/clock.h"

namespace stasis {

// Returns when woken, when `word` is not `value`, on a signal, or when the deadline has passed; the caller
// looks again.
inline void FutexWait(std::atomic<uint32_t>& word, uint32_t value,
                      const Deadline& deadline = Deadline::Never()) {
  timespec left{};
  if (!deadline.never()) {
    const Duration remaining = deadline.Remaining();
    left.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(remaining).count();
    left.tv_nsec = (remaining % std::chrono::seconds(1)).count();
  }
  static_assert(sizeof word == sizeof(uint32_t));
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, deadline.never() ? nullptr : &left, nullptr, 0);
}

inline void FutexWakeAll(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace stasis

#endif  // INTERCEPT_FUTEX_H_
