#include "softgpu/device/slices.h"

#include <algorithm>

namespace softgpu {

using stasis::MonotonicTime;

void SliceScheduler::GrantNext(uint32_t device, MonotonicTime now, Notices* notices) {
  Device& entry = devices_[device];
  entry.holder = Waiter{};
  entry.revoked = false;
  if (entry.queue.empty()) return;
  entry.holder = entry.queue.front();
  entry.queue.pop_front();
  entry.granted_at = now;
  notices->push_back({entry.holder.client, device, entry.holder.serial, Notice::Kind::kGranted});
}

SliceScheduler::Notices SliceScheduler::Request(ClientId client, uint32_t device, uint32_t serial,
                                                MonotonicTime now) {
  Notices notices;
  Device& entry = devices_[device];
  bool waits = std::any_of(entry.queue.begin(), entry.queue.end(),
                           [&](const Waiter& waiter) { return waiter.client == client; });
  if (entry.holder.client == client || waits) return notices;
  entry.queue.push_back({client, serial});
  if (entry.holder.client == 0) GrantNext(device, now, &notices);
  return notices;
}

SliceScheduler::Notices SliceScheduler::Release(ClientId client, uint32_t device, MonotonicTime now) {
  Notices notices;
  Device& entry = devices_[device];
  std::erase_if(entry.queue, [&](const Waiter& waiter) { return waiter.client == client; });
  if (entry.holder.client == client) GrantNext(device, now, &notices);
  return notices;
}

SliceScheduler::Notices SliceScheduler::Remove(ClientId client, MonotonicTime now) {
  Notices notices;
  for (uint32_t device = 0; device < devices_.size(); device++) {
    Notices more = Release(client, device, now);
    notices.insert(notices.end(), more.begin(), more.end());
  }
  return notices;
}

std::vector<ClientId> SliceScheduler::Clear(uint32_t device) {
  Device& entry = devices_[device];
  std::vector<ClientId> gone;
  if (entry.holder.client != 0) gone.push_back(entry.holder.client);
  for (const Waiter& waiter : entry.queue) gone.push_back(waiter.client);
  entry = Device{};
  return gone;
}

SliceScheduler::Notices SliceScheduler::Tick(MonotonicTime now) {
  Notices notices;
  for (uint32_t device = 0; device < devices_.size(); device++) {
    Device& entry = devices_[device];
    if (!RevokePending(entry) || now < entry.granted_at + slice_) continue;
    entry.revoked = true;
    notices.push_back({entry.holder.client, device, entry.holder.serial, Notice::Kind::kRevoke});
  }
  return notices;
}

MonotonicTime SliceScheduler::NextTick() const {
  MonotonicTime next = MonotonicTime::max();
  for (const Device& entry : devices_) {
    if (RevokePending(entry)) next = std::min(next, entry.granted_at + slice_);
  }
  return next;
}

}  // namespace softgpu
