#include "softgpu/driver/device.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "softgpu/driver/context.h"
#include "softgpu/driver/sm_pool.h"

namespace softgpu {

void TimeSlice::Connect(DeviceClient* client, uint32_t daemon_device) {
  std::lock_guard lock(mutex_);
  client_ = client;
  daemon_device_ = daemon_device;
  state_ = State::kNone;
  revoked_ = lost_ = false;
}

bool TimeSlice::Enter(const std::atomic<bool>& cancelled) {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (lost_ || client_ == nullptr || cancelled.load()) return false;
    if (state_ == State::kHeld && !revoked_) {
      inside_++;
      return true;
    }
    if (state_ == State::kNone) {
      state_ = State::kRequested;
      if (!client_->RequestSlice(daemon_device_).ok()) return false;
    }
    waiting_++;
    changed_.wait(lock);
    waiting_--;
  }
}

void TimeSlice::Leave() {
  std::lock_guard lock(mutex_);
  inside_--;
  if (revoked_ && inside_ == 0) GiveBackLocked();
}

void TimeSlice::GiveBackLocked() {
  revoked_ = false;
  state_ = State::kNone;
  if (client_ == nullptr || !client_->ReleaseSlice(daemon_device_).ok()) return;
  // Whoever waits here queues up behind the others.
  if (waiting_ > 0 && client_->RequestSlice(daemon_device_).ok()) state_ = State::kRequested;
}

void TimeSlice::Wake() {
  std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void TimeSlice::AddPool(SmPool* pool) {
  std::lock_guard lock(mutex_);
  pools_.insert(pool);
}

void TimeSlice::RemovePool(SmPool* pool) {
  std::lock_guard lock(mutex_);
  pools_.erase(pool);
}

void TimeSlice::Granted() {
  std::lock_guard lock(mutex_);
  if (state_ == State::kRequested) state_ = State::kHeld;
  changed_.notify_all();
}

void TimeSlice::Revoked() {
  std::lock_guard lock(mutex_);
  if (state_ != State::kHeld) return;
  revoked_ = true;
  if (inside_ == 0) return GiveBackLocked();
  for (SmPool* pool : pools_) pool->YieldAll();
}

void TimeSlice::Lost() {
  std::lock_guard lock(mutex_);
  lost_ = true;
  state_ = State::kNone;
  revoked_ = false;
  for (SmPool* pool : pools_) pool->YieldAll();
  changed_.notify_all();
}

void TimeSlice::Disconnect() {
  std::lock_guard lock(mutex_);
  if (client_ != nullptr && state_ != State::kNone) {
    // Fails only when the connection is gone, and the slice with it.
    static_cast<void>(client_->ReleaseSlice(daemon_device_));
  }
  client_ = nullptr;
  state_ = State::kNone;
  revoked_ = false;
  changed_.notify_all();
}

Device::~Device() { delete primary_.handle; }

Device::Device(int ordinal, DeviceInfo info)
    : ordinal_(ordinal), info_(std::move(info)), slow_factor_(info_.slow_factor) {
  unsigned cores = std::max(2u, std::thread::hardware_concurrency());
  workers_ = std::clamp(info_.sm_count, 1u, cores);
}

}  // namespace softgpu
