// What the daemon, its clients and softgpu-smi say about devices. Plain values.
#ifndef SOFTGPU_DEVICE_TYPES_H_
#define SOFTGPU_DEVICE_TYPES_H_

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace softgpu {

// Physical memory comes in multiples of this.
inline constexpr uint64_t kMemoryGranularity = 2ull << 20;
inline constexpr uint32_t kMaxDevices = 64;

enum class Health : uint8_t { kHealthy = 0, kFellOffBus = 1, kEccError = 2 };

enum class FaultKind : uint8_t {
  kNone = 0,        // heals kEcc, kSlow and kOomAfter; a device that fell off the bus stays lost
  kFellOffBus = 1,  // the device is gone: contexts on it are broken, every later request fails
  kEcc = 2,         // an uncorrectable memory error: contexts on it are broken, new ones work
  kSlow = 3,        // the device runs at `factor` of its speed
  kOomAfter = 4,    // `count` more allocations succeed, then all fail
  kReset = 5,       // heals everything, also a device that fell off the bus
};

struct Fault {
  FaultKind kind = FaultKind::kNone;
  double factor = 1.0;  // kSlow: more than 0, at most 1
  uint64_t count = 0;   // kOomAfter

  bool operator==(const Fault&) const = default;
};

struct DeviceInfo {
  uint32_t ordinal = 0;
  std::string name;
  std::array<uint8_t, 16> uuid{};  // the same for every daemon of the same socket path and node name
  uint32_t pci_domain = 0;
  uint32_t pci_bus = 0;
  uint32_t pci_device = 0;
  uint64_t memory_bytes = 0;
  uint32_t sm_count = 0;
  uint32_t clock_khz = 0;
  uint32_t compute_major = 0;
  uint32_t compute_minor = 0;
  // Copy bandwidths in 10^9 bytes a second; 0 = as fast as the host can.
  double h2d_gbps = 0;
  double d2h_gbps = 0;
  double d2d_gbps = 0;
  double peer_gbps = 0;
  std::vector<uint8_t> peer_access;  // one per device of the node: 1 = this device can map that one's memory
  Health health = Health::kHealthy;
  double slow_factor = 1.0;  // 1 = full speed
};

// What the driver's checkpoint interface says about a process.
enum class ProcessState : uint8_t { kRunning = 0, kLocked = 1, kCheckpointed = 2, kFailed = 3 };

enum class CheckpointOp : uint8_t { kLock = 0, kCheckpoint = 1, kRestore = 2, kUnlock = 3, kGetState = 4 };

// The answer of the process that was asked.
struct CheckpointResult {
  int32_t result = 0;  // the driver's error code (CUresult), 0 = success; the daemon only hands it on
  ProcessState state = ProcessState::kRunning;
  uint64_t value = 0;  // free for the two drivers, e.g. a thread id
};

struct MemoryInfo {
  uint64_t free_bytes = 0;
  uint64_t total_bytes = 0;
};

struct ProcessInfo {
  pid_t pid = 0;
  uid_t uid = 0;
  std::string name;
  ProcessState state = ProcessState::kRunning;
  std::vector<uint32_t> contexts;      // one per device: how many contexts the process has on it
  std::vector<uint64_t> memory_bytes;  // one per device: physical memory it holds a reference to
};

struct DeviceStatus {
  DeviceInfo info;
  uint64_t used_bytes = 0;
  bool oom_armed = false;
  uint64_t oom_after = 0;  // meaningful while oom_armed
};

struct Inventory {
  std::string node_name;
  pid_t daemon_pid = 0;
  std::vector<DeviceStatus> devices;
  std::vector<ProcessInfo> processes;
};

}  // namespace softgpu

#endif  // SOFTGPU_DEVICE_TYPES_H_
