// Does something about a call that does not return in time.
#ifndef INTERCEPT_LIBRARIES_NCCL_WATCHDOG_H_
#define INTERCEPT_LIBRARIES_NCCL_WATCHDOG_H_

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <functional>

#include "base/clock.h"

namespace stasis::nccl {

// Not thread-safe, except that its own thread calls `late`.
class Watchdog {
 public:
  // At the deadline calls `late`, once, in a thread of its own with all signals blocked. Where no thread can
  // be had nothing is watched.
  Watchdog(const Deadline& deadline, std::function<void()> late);
  ~Watchdog() { (void)Stop(); }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;
  // Ends the watch and its thread; true when `late` was called.
  bool Stop();

 private:
  void Watch();

  const Deadline deadline_;
  const std::function<void()> late_;
  std::atomic<uint32_t> stopped_{0};
  bool was_late_ = false;  // the thread's until it has ended
  bool running_ = false;
  pthread_t thread_{};
};

}  // namespace stasis::nccl

#endif  // INTERCEPT_LIBRARIES_NCCL_WATCHDOG_H_
