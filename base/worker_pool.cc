#include "base/worker_pool.h"

#include "base/quiet_thread.h"

namespace stasis {

WorkerPool::WorkerPool(int threads, size_t most_waiting) : most_waiting_(most_waiting) {
  for (int i = 0; i < threads; i++) threads_.push_back(StartQuietThread([this] { Loop(); }));
}

WorkerPool::~WorkerPool() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  more_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool WorkerPool::Post(std::function<void()> work) {
  {
    std::lock_guard lock(mutex_);
    if (ending_ || waiting_.size() >= most_waiting_) return false;
    waiting_.push_back(std::move(work));
  }
  more_.notify_one();
  return true;
}

void WorkerPool::Loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    more_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    std::function<void()> work = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    work();
    work = nullptr;
    lock.lock();
  }
}

}  // namespace stasis
