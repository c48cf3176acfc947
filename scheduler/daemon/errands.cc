#include "scheduler/daemon/errands.h"

#include <utility>

namespace stasis::scheduler {

bool Errands::Start(const std::string& subject, std::function<void()> work, std::function<void()> after) {
  std::lock_guard lock(mutex_);
  if (ending_ || running_.contains(subject)) return false;
  running_[subject] = std::thread([this, subject, work = std::move(work), after = std::move(after)] {
    work();
    {
      std::lock_guard own(mutex_);
      const auto found = running_.find(subject);
      ended_.push_back(std::move(found->second));
      running_.erase(found);
      ++changes_;
      changed_.notify_all();
    }
    if (after) after();
  });
  return true;
}

bool Errands::Busy(const std::string& subject) const {
  std::lock_guard lock(mutex_);
  return running_.contains(subject);
}

void Errands::Wake() {
  std::lock_guard lock(mutex_);
  ++changes_;
  changed_.notify_all();
}

uint64_t Errands::changes() const {
  std::lock_guard lock(mutex_);
  return changes_;
}

void Errands::AwaitChange(uint64_t seen, Duration longest) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, longest, [&] { return ending_ || changes_ != seen || !ended_.empty(); });
}

bool Errands::Wait(Duration longest, const Alive& alive) {
  std::unique_lock lock(mutex_);
  const MonotonicTime until = Clock::Real().Now() + longest;
  for (;;) {
    if (ending_) return false;
    const uint64_t seen = changes_;
    lock.unlock();
    const bool wanted = alive();
    lock.lock();
    if (!wanted) return false;
    const Duration left = until - Clock::Real().Now();
    if (left <= Duration::zero()) return true;
    if (!ending_ && changes_ == seen) changed_.wait_for(lock, left);
  }
}

bool Errands::End() {
  std::lock_guard lock(mutex_);
  if (ending_) return false;
  ending_ = true;
  changed_.notify_all();
  return true;
}

bool Errands::ending() const {
  std::lock_guard lock(mutex_);
  return ending_;
}

void Errands::EndAndJoin() {
  End();
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return running_.empty(); });
  }
  Reap();
}

void Errands::Reap() {
  std::vector<std::thread> ended;
  {
    std::lock_guard lock(mutex_);
    ended.swap(ended_);
  }
  for (std::thread& thread : ended) thread.join();
}

}  // namespace stasis::scheduler
