// WorkerPool: the threads that carry out copies, sets and host functions of a context's streams.
//
// As many threads as work runs at the same time, because a host function may wait for other work; idle
// threads are kept for later. Thread-safe, except that Close() is called once, when no more work comes.
#ifndef SOFTGPU_DRIVER_WORKERS_H_
#define SOFTGPU_DRIVER_WORKERS_H_

#include <condition_variable>
#include <deque>
#include <mutex>
#include <vector>

#include "softgpu/driver/thread.h"
#include "softgpu/driver/work.h"

namespace softgpu {

class WorkerPool {
 public:
  // Calls op->RunOnWorker() on a worker; on the calling thread if the system has no thread left.
  void Post(OpPtr op);
  // Ends the threads. False: one is stuck in a function of the program and was left behind.
  bool Close(const stasis::Deadline& deadline);
  // Ends the threads for now; the queue is empty and nobody posts meanwhile.
  void Rest();

 private:
  void Loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<OpPtr> queue_;
  std::vector<Thread> threads_;
  size_t idle_ = 0;
  bool closing_ = false;
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_WORKERS_H_
