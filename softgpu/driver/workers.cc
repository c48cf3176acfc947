#include "softgpu/driver/workers.h"

#include <utility>

namespace softgpu {

void WorkerPool::Post(OpPtr op) {
  {
    std::lock_guard lock(mutex_);
    queue_.push_back(op);
    bool served = queue_.size() <= idle_;
    if (!served && !closing_) {
      Thread thread;
      served = thread.Start("softgpu-worker", [this] { Loop(); });
      if (served) threads_.push_back(std::move(thread));
    }
    if (served || !threads_.empty()) {
      changed_.notify_one();
      return;
    }
    queue_.pop_back();
  }
  op->RunOnWorker();
}

void WorkerPool::Loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (!queue_.empty()) {
      OpPtr op = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      op->RunOnWorker();
      op.reset();
      lock.lock();
      continue;
    }
    if (closing_) return;
    idle_++;
    changed_.wait(lock);
    idle_--;
  }
}

bool WorkerPool::Close(const stasis::Deadline& deadline) {
  std::vector<Thread> threads;
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
    threads.swap(threads_);
    changed_.notify_all();
  }
  bool all = true;
  for (Thread& thread : threads) {
    if (thread.Join(deadline)) continue;
    thread.Abandon();
    all = false;
  }
  return all;
}

void WorkerPool::Rest() {
  Close(stasis::Deadline::Never());
  std::lock_guard lock(mutex_);
  closing_ = false;
}

}  // namespace softgpu
