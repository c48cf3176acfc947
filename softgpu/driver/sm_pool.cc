#include "softgpu/driver/sm_pool.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace softgpu {

namespace {

constexpr std::chrono::milliseconds kTurn(1);
// Turns of the lowest priority weigh this much more than those of the highest.
constexpr uint64_t kWeightStep = 3;

uint64_t WeightOf(int priority) {
  return 1 + kWeightStep * static_cast<uint64_t>(std::clamp(priority + 5, 0, 10));
}

}  // namespace

SmPool::SmPool(Device* device)
    : device_(*device), width_(device->workers()), yield_(new std::atomic<bool>[device->workers()]) {
  for (unsigned i = 0; i < width_; i++) yield_[i].store(false, std::memory_order_relaxed);
  device_.slice().AddPool(this);
}

SmPool::~SmPool() { device_.slice().RemovePool(this); }

void SmPool::Submit(std::unique_ptr<exec::Grid> grid, unsigned workers, int priority, Ended ended) {
  auto launch = std::make_unique<Launch>();
  launch->grid = std::move(grid);
  launch->ended = std::move(ended);
  launch->priority = priority;
  for (unsigned i = workers; i > 0; i--) launch->free_slots.push_back(i - 1);
  {
    std::lock_guard lock(mutex_);
    StartThreadsLocked();
    if (!cancelled_.load() && !threads_.empty()) {
      for (const auto& other : launches_) launch->served = std::max(launch->served, other->served);
      launches_.push_back(std::move(launch));
      if (workers == 1) {
        work_.notify_one();
      } else {
        work_.notify_all();
      }
      if (PacingNeededLocked()) StartPacerLocked();
      return;
    }
  }
  launch->grid->Cancel();
  launch->ended(exec::Fault{});
}

void SmPool::StartThreadsLocked() {
  while (threads_.size() < width_) {
    unsigned index = static_cast<unsigned>(threads_.size());
    Thread thread;
    if (!thread.Start("softgpu-sm", [this, index] { Work(index); })) return;
    threads_.push_back(std::move(thread));
  }
}

bool SmPool::PacingNeededLocked() const {
  return launches_.size() > 1 || (!launches_.empty() && device_.slow_factor() < 1);
}

void SmPool::StartPacerLocked() {
  if (!pacer_started_) pacer_started_ = pacer_.Start("softgpu-pacer", [this] { Pace(); });
  pace_.notify_one();
}

void SmPool::Pace() {
  std::unique_lock lock(mutex_);
  while (!closing_) {
    if (!PacingNeededLocked()) {
      pace_.wait(lock);
      continue;
    }
    pace_.wait_for(lock, kTurn);
    YieldAll();
  }
}

void SmPool::YieldAll() {
  for (unsigned i = 0; i < width_; i++) yield_[i].store(true, std::memory_order_relaxed);
}

SmPool::Launch* SmPool::PickLocked() {
  Launch* best = nullptr;
  for (const auto& launch : launches_) {
    if (launch->free_slots.empty()) continue;
    if (best == nullptr || launch->served < best->served ||
        (launch->served == best->served && launch->priority < best->priority)) {
      best = launch.get();
    }
  }
  return best;
}

exec::Grid::Outcome SmPool::RunTurn(unsigned index, Launch& launch, unsigned slot) {
  if (!device_.slice().Enter(cancelled_)) {
    launch.grid->Cancel();
    return exec::Grid::Outcome::kNoMoreBlocks;
  }
  stasis::MonotonicTime begin = stasis::Clock::Real().Now();
  exec::Grid::Outcome outcome = launch.grid->Run(slot, yield_[index]);
  SlowDown(stasis::Clock::Real().Now() - begin);
  device_.slice().Leave();
  return outcome;
}

void SmPool::SlowDown(stasis::Duration ran) {
  double factor = device_.slow_factor();
  if (factor >= 1) return;
  auto idle = std::chrono::duration_cast<stasis::Duration>(ran * (1 / factor - 1));
  std::unique_lock lock(mutex_);
  pace_.wait_for(lock, idle, [this] { return cancelled_.load(); });
}

void SmPool::Work(unsigned index) {
  std::unique_lock lock(mutex_);
  for (;;) {
    Launch* launch = PickLocked();
    if (launch == nullptr) {
      if (closing_) return;
      work_.wait(lock);
      continue;
    }
    unsigned slot = launch->free_slots.back();
    launch->free_slots.pop_back();
    launch->in_use++;
    launch->served += WeightOf(launch->priority);
    yield_[index].store(false, std::memory_order_relaxed);
    lock.unlock();
    exec::Grid::Outcome outcome = RunTurn(index, *launch, slot);
    lock.lock();
    launch->in_use--;
    bool done = launch->grid->done();
    if (outcome == exec::Grid::Outcome::kYielded && !done) launch->free_slots.push_back(slot);
    if (!done || launch->in_use > 0) continue;
    auto it =
        std::find_if(launches_.begin(), launches_.end(), [&](const auto& l) { return l.get() == launch; });
    std::unique_ptr<Launch> over = std::move(*it);
    launches_.erase(it);
    lock.unlock();
    over->ended(over->grid->fault());
    over.reset();
    lock.lock();
  }
}

void SmPool::Cancel() {
  {
    std::lock_guard lock(mutex_);
    cancelled_.store(true);
    for (const auto& launch : launches_) launch->grid->Cancel();
    work_.notify_all();
    pace_.notify_all();
  }
  device_.slice().Wake();
}

bool SmPool::Close(const stasis::Deadline& deadline) {
  {
    std::lock_guard lock(mutex_);
    closing_ = true;
    work_.notify_all();
    pace_.notify_all();
  }
  bool all = true;
  for (Thread& thread : threads_) {
    if (thread.Join(deadline)) continue;
    thread.Abandon();
    all = false;
  }
  if (!pacer_.Join(deadline)) {
    pacer_.Abandon();
    all = false;
  }
  return all;
}

void SmPool::Rest() {
  Close(stasis::Deadline::Never());
  std::lock_guard lock(mutex_);
  threads_.clear();
  pacer_started_ = false;
  closing_ = false;
}

}  // namespace softgpu
