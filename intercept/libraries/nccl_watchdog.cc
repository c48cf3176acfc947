#include "intercept/libraries/nccl_watchdog.h"

#include <csignal>
#include <utility>

#include "intercept/futex.h"

namespace stasis::nccl {

Watchdog::Watchdog(const Deadline& deadline, std::function<void()> late)
    : deadline_(deadline), late_(std::move(late)) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const auto watch = [](void* watchdog) -> void* {
    static_cast<Watchdog*>(watchdog)->Watch();
    return nullptr;
  };
  running_ = pthread_create(&thread_, nullptr, watch, this) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Watchdog::Watch() {
  while (stopped_.load(std::memory_order_acquire) == 0) {
    if (deadline_.Expired()) {
      was_late_ = true;
      late_();
      return;
    }
    FutexWait(stopped_, 0, deadline_);
  }
}

bool Watchdog::Stop() {
  if (!running_) return was_late_;
  running_ = false;
  stopped_.store(1, std::memory_order_release);
  FutexWakeAll(stopped_);
  pthread_join(thread_, nullptr);
  return was_late_;
}

}  // namespace stasis::nccl
