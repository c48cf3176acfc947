// Runs an initialiser until it has succeeded once, whichever threads arrive.
#ifndef SOFTGPU_RUNTIME_ONCE_H_
#define SOFTGPU_RUNTIME_ONCE_H_

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <atomic>

namespace softgpu::runtime {

// std::call_once would leave a forked child waiting for a thread it does not have. Here the runner is
// identified by its process, so a child that inherits a run in progress starts the work over (and gets the
// driver's own answer). No lock is held while the initialiser runs; others sleep until it is done. Only
// success is remembered.
class Once {
 public:
  constexpr Once() = default;
  Once(const Once&) = delete;
  Once& operator=(const Once&) = delete;

  bool done() const { return state_.load(std::memory_order_acquire) == kDone; }

  template <typename Body>
  cudaError_t Run(Body&& body) {
    while (true) {
      int seen = state_.load(std::memory_order_acquire);
      if (seen == kDone) return cudaSuccess;
      const int self = getpid();
      if (seen == self) {
        state_.wait(seen, std::memory_order_acquire);
      } else if (state_.compare_exchange_strong(seen, self, std::memory_order_acq_rel)) {
        const cudaError_t error = body();
        state_.store(error == cudaSuccess ? kDone : kIdle, std::memory_order_release);
        state_.notify_all();
        return error;
      }
    }
  }

 private:
  static constexpr int kIdle = 0;
  static constexpr int kDone = -1;
  std::atomic<int> state_{kIdle};  // kIdle, kDone, or the pid of the process whose thread is running the body
};

}  // namespace softgpu::runtime

#endif  // SOFTGPU_RUNTIME_ONCE_H_
