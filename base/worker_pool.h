// Threads for what blocks (disk, child processes), so that those that answer calls never do.
#ifndef BASE_WORKER_POOL_H_
#define BASE_WORKER_POOL_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace stasis {

// Thread-safe. Its threads take no signals.
class WorkerPool {
 public:
  WorkerPool(int threads, size_t most_waiting);
  // Does what has been posted, then ends.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False, and nothing is done: too much waits already.
  bool Post(std::function<void()> work);

 private:
  void Loop();

  const size_t most_waiting_;
  std::mutex mutex_;
  std::condition_variable more_;
  std::deque<std::function<void()>> waiting_;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace stasis

#endif  // BASE_WORKER_POOL_H_
