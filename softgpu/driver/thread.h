// Threads of the driver inside a stranger's process: all signals blocked, named, always joined.
#ifndef SOFTGPU_DRIVER_THREAD_H_
#define SOFTGPU_DRIVER_THREAD_H_

#include <pthread.h>

#include <functional>

#include "base/clock.h"

namespace softgpu {

class Thread {
 public:
  Thread() = default;
  Thread(Thread&& other) noexcept : running_(other.running_), handle_(other.handle_) {
    other.running_ = false;
  }
  Thread& operator=(Thread&&) = delete;
  // Must have been joined or abandoned.
  ~Thread();

  // False when the system has no thread left. `name` is cut to 15 characters.
  bool Start(const char* name, std::function<void()> body);
  // False: still running at the deadline.
  bool Join(const stasis::Deadline& deadline);
  // The process ends; the thread will never return.
  void Abandon();

 private:
  bool running_ = false;
  pthread_t handle_{};
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_THREAD_H_
