// What one softgpud stands for: a node with its devices. Filled from options; checked before anything starts.
#ifndef SOFTGPU_DEVICE_CONFIG_H_
#define SOFTGPU_DEVICE_CONFIG_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "softgpu/device/types.h"

namespace softgpu {

// Which pairs of devices can map each other's memory.
struct Topology {
  bool all = true;
  std::vector<std::pair<uint32_t, uint32_t>> pairs;  // when not all
  bool Connects(uint32_t a, uint32_t b) const;
};

struct NodeConfig {
  std::string node_name = "softgpu";
  uint32_t gpus = 1;
  std::string device_name = "Software GPU";
  uint64_t memory_bytes = 8ull << 30;  // per device
  uint32_t sm_count = 2;
  uint32_t clock_mhz = 1000;
  double h2d_gbps = 0;
  double d2h_gbps = 0;
  double d2d_gbps = 0;
  double peer_gbps = 0;
  Topology topology;
  stasis::Duration slice = std::chrono::milliseconds(5);
};

// "512MiB", "2GiB", "1.5G", "65536": bytes, or with a unit K, M, G, T (powers of 1024, "iB" or "B" optional).
stasis::Result<uint64_t> ParseSize(std::string_view text);
// "all", "none", or pairs of ordinals as "0-1,2-3".
stasis::Result<Topology> ParseTopology(std::string_view text);
// "none", "reset", "fell-off-bus", "ecc", "slow=FACTOR", "oom-after=COUNT".
stasis::Result<Fault> ParseFault(std::string_view text);
// The inverse of ParseFault.
std::string FaultText(const Fault& fault);

// kInvalidArgument names the first value that no node can have.
stasis::Status CheckConfig(const NodeConfig& config);

// The devices of the node. `identity` (the socket path) makes the uuids differ between the nodes of one
// machine, and keeps them the same when a daemon is started again.
std::vector<DeviceInfo> BuildDevices(const NodeConfig& config, std::string_view identity);

// "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx".
std::string UuidText(const std::array<uint8_t, 16>& uuid);

}  // namespace softgpu

#endif  // SOFTGPU_DEVICE_CONFIG_H_
