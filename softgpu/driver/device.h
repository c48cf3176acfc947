// One device as this process sees it.
#ifndef SOFTGPU_DRIVER_DEVICE_H_
#define SOFTGPU_DRIVER_DEVICE_H_

#include <cuda.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "softgpu/device/client.h"

namespace softgpu {

class Context;
class SmPool;

// The process's share of a device's time. SM workers hold a slice while they compute; nothing is sent as long
// as nobody else wants the device. Thread-safe; its lock is a leaf except that the client's sending half is
// called under it, which never waits for an answer.
class TimeSlice {
 public:
  void Connect(DeviceClient* client, uint32_t daemon_device);
  // Waits for the device. False when `cancelled` was set (see Wake()) or the device is lost.
  bool Enter(const std::atomic<bool>& cancelled);
  void Leave();
  // Makes waiters look at their `cancelled` again.
  void Wake();
  void AddPool(SmPool* pool);
  void RemovePool(SmPool* pool);

  // Events of the connection.
  void Granted();
  void Revoked();
  void Lost();
  // Gives the slice back and forgets the connection. Nobody is inside.
  void Disconnect();

 private:
  enum class State : uint8_t { kNone, kRequested, kHeld };
  void GiveBackLocked();

  std::mutex mutex_;
  std::condition_variable changed_;
  DeviceClient* client_ = nullptr;
  uint32_t daemon_device_ = 0;
  State state_ = State::kNone;
  bool revoked_ = false;
  bool lost_ = false;
  int inside_ = 0;
  int waiting_ = 0;
  std::set<SmPool*> pools_;
};

// Bytes of memory that graphs allocate (cuDeviceGetGraphMemAttribute).
struct GraphMemoryUse {
  std::atomic<uint64_t> used{0}, used_high{0}, reserved{0}, reserved_high{0};
};

class Device {
 public:
  Device(int ordinal, DeviceInfo info);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  int ordinal() const { return ordinal_; }  // CUdevice
  uint32_t daemon_ordinal() const { return info_.ordinal; }
  const DeviceInfo& info() const { return info_; }  // as it was at cuInit, or at the last restore
  // After a restore the process's device may be another one of the daemon, also of another daemon. No call is
  // inside.
  void Rebind(const DeviceInfo& info) {
    info_ = info;
    set_slow_factor(info.slow_factor);
  }
  TimeSlice& slice() { return slice_; }
  // Threads that compute: SOFTGPU_SMS, or the SMs of the device as far as there are cores for them.
  unsigned workers() const { return workers_; }
  void set_workers(unsigned workers) { workers_ = workers; }
  double slow_factor() const { return slow_factor_.load(std::memory_order_relaxed); }
  void set_slow_factor(double factor) { slow_factor_.store(factor, std::memory_order_relaxed); }
  // False for attributes that cuda.h 13.0 does not have.
  bool Attribute(CUdevice_attribute attribute, int* value) const;

  // The primary context's handle is the same for the life of the device, which owns it, whether or not it is
  // active.
  struct Primary {
    std::mutex mutex;  // held while the context is made or torn down
    CUcontext handle = nullptr;
    std::shared_ptr<Context> context;  // null while inactive
    unsigned references = 0;
    unsigned flags = 0;
  };
  Primary& primary() { return primary_; }
  GraphMemoryUse& graph_memory() { return graph_memory_; }

 private:
  const int ordinal_;
  DeviceInfo info_;
  unsigned workers_ = 1;
  std::atomic<double> slow_factor_;
  TimeSlice slice_;
  Primary primary_;
  GraphMemoryUse graph_memory_;
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_DEVICE_H_
