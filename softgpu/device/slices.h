// SliceScheduler: who computes on which device. One holder per device, the others in a queue, first in, first
// out. Pure: time is passed in, what is to be sent is returned. Single-threaded.
#ifndef SOFTGPU_DEVICE_SLICES_H_
#define SOFTGPU_DEVICE_SLICES_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "base/clock.h"
#include "softgpu/device/registry.h"

namespace softgpu {

class SliceScheduler {
 public:
  struct Notice {
    enum class Kind { kGranted, kRevoke };
    ClientId client;
    uint32_t device;
    uint32_t serial;  // of the request that the notice is about
    Kind kind;

    bool operator==(const Notice&) const = default;
  };
  using Notices = std::vector<Notice>;

  SliceScheduler(uint32_t devices, stasis::Duration slice) : devices_(devices), slice_(slice) {}

  // `device` must exist, except in Remove(). A request of the holder, or of somebody in the queue, does
  // nothing.
  Notices Request(ClientId client, uint32_t device, uint32_t serial, stasis::MonotonicTime now);
  // Gives the device back, or leaves the queue.
  Notices Release(ClientId client, uint32_t device, stasis::MonotonicTime now);
  // The client is gone, from all devices.
  Notices Remove(ClientId client, stasis::MonotonicTime now);
  // The device is lost: nobody holds it or waits for it any more. Returns those who did.
  std::vector<ClientId> Clear(uint32_t device);
  // Tells holders whose slice is over, and whom somebody waits for, to release. Once per holding.
  Notices Tick(stasis::MonotonicTime now);
  // When Tick() has something to do next; MonotonicTime::max() for never.
  stasis::MonotonicTime NextTick() const;

 private:
  struct Waiter {
    ClientId client = 0;
    uint32_t serial = 0;
  };
  struct Device {
    Waiter holder;  // client 0 = free
    stasis::MonotonicTime granted_at{};
    bool revoked = false;
    std::deque<Waiter> queue;
  };

  void GrantNext(uint32_t device, stasis::MonotonicTime now, Notices* notices);
  bool RevokePending(const Device& device) const {
    return device.holder.client != 0 && !device.revoked && !device.queue.empty();
  }

  std::vector<Device> devices_;
  stasis::Duration slice_;
};

}  // namespace softgpu

#endif  // SOFTGPU_DEVICE_SLICES_H_
