#include "base/worker_pool.h"

#include <csignal>

namespace stasis {

WorkerPool::WorkerPool(int threads, size_t most_waiting) : most_waiting_(most_waiting) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  for (int i = 0; i < threads; i++) threads_.emplace_back([this] { Loop(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
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
