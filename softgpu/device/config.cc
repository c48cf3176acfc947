#include "softgpu/device/config.h"

#include <charconv>
#include <cmath>
#include <cstdio>

namespace softgpu {

using stasis::Errorf;
using stasis::Result;
using stasis::Status;
using stasis::StatusCode;

namespace {

constexpr uint64_t kMaxMemory = 1ull << 44;
constexpr double kMaxGbps = 1e6;

// All of `text`, as std::from_chars reads it: no sign tricks, no locale.
template <typename T>
bool ParseAll(std::string_view text, T* value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

// The power of two that a unit stands for, or -1.
int UnitShift(std::string_view unit) {
  if (unit.empty() || unit == "B") return 0;
  if (unit.size() > 1 && unit.substr(1) != "B" && unit.substr(1) != "iB") return -1;
  switch (unit[0]) {
    case 'k':
    case 'K':
      return 10;
    case 'm':
    case 'M':
      return 20;
    case 'g':
    case 'G':
      return 30;
    case 't':
    case 'T':
      return 40;
    default:
      return -1;
  }
}

uint64_t Mix(uint64_t x) {  // the finaliser of splitmix64
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t HashText(uint64_t seed, std::string_view text) {
  uint64_t hash = Mix(seed ^ text.size());
  for (char c : text) hash = Mix(hash ^ static_cast<unsigned char>(c));
  return hash;
}

std::array<uint8_t, 16> UuidOf(const NodeConfig& config, std::string_view identity, uint32_t ordinal) {
  uint64_t seed = HashText(HashText(ordinal, config.node_name), identity);
  uint64_t halves[2] = {seed, Mix(seed)};
  std::array<uint8_t, 16> uuid;
  for (size_t i = 0; i < 16; i++) uuid[i] = static_cast<uint8_t>(halves[i / 8] >> (8 * (i % 8)));
  // Version 8 (vendor's own scheme), RFC 9562 variant.
  uuid[6] = static_cast<uint8_t>((uuid[6] & 0x0f) | 0x80);
  uuid[8] = static_cast<uint8_t>((uuid[8] & 0x3f) | 0x80);
  return uuid;
}

Status CheckRate(const char* name, double gbps) {
  if (std::isfinite(gbps) && gbps >= 0 && gbps <= kMaxGbps) return Status();
  return Errorf(StatusCode::kInvalidArgument, "%s must be 0 (no limit) to %.0f GB/s", name, kMaxGbps);
}

}  // namespace

bool Topology::Connects(uint32_t a, uint32_t b) const {
  if (a == b) return false;
  if (all) return true;
  for (auto [x, y] : pairs) {
    if ((x == a && y == b) || (x == b && y == a)) return true;
  }
  return false;
}

Result<uint64_t> ParseSize(std::string_view text) {
  size_t digits = text.find_first_not_of("0123456789.");
  std::string_view number = text.substr(0, digits);
  int shift = UnitShift(digits == std::string_view::npos ? "" : text.substr(digits));
  double value = 0;
  if (shift < 0 || !ParseAll(number, &value)) {
    return Errorf(StatusCode::kInvalidArgument, "'%s' is no size (as 512MiB or 2GiB)",
                  std::string(text).c_str());
  }
  double bytes = std::ldexp(value, shift);
  if (bytes > static_cast<double>(kMaxMemory)) {
    return Errorf(StatusCode::kInvalidArgument, "size '%s' is more than 16TiB", std::string(text).c_str());
  }
  return static_cast<uint64_t>(bytes);
}

static Result<std::pair<uint32_t, uint32_t>> ParsePair(std::string_view text) {
  size_t dash = text.find('-');
  std::pair<uint32_t, uint32_t> pair;
  if (dash == std::string_view::npos || !ParseAll(text.substr(0, dash), &pair.first) ||
      !ParseAll(text.substr(dash + 1), &pair.second)) {
    return Errorf(StatusCode::kInvalidArgument, "'%s' is no pair of devices (as 0-1)",
                  std::string(text).c_str());
  }
  return pair;
}

Result<Topology> ParseTopology(std::string_view text) {
  Topology topology;
  if (text == "all") return topology;
  topology.all = false;
  if (text == "none") return topology;
  for (;;) {
    size_t comma = text.find(',');
    ASSIGN_OR_RETURN(auto pair, ParsePair(text.substr(0, comma)));
    topology.pairs.push_back(pair);
    if (comma == std::string_view::npos) return topology;
    text.remove_prefix(comma + 1);
  }
}

Result<Fault> ParseFault(std::string_view text) {
  Fault fault;
  size_t equals = text.find('=');
  std::string_view name = text.substr(0, equals);
  std::string_view argument = equals == std::string_view::npos ? "" : text.substr(equals + 1);
  bool bare = equals == std::string_view::npos;
  if (bare && name == "none") return fault;
  if (bare && name == "reset") return Fault{.kind = FaultKind::kReset};
  if (bare && name == "fell-off-bus") return Fault{.kind = FaultKind::kFellOffBus};
  if (bare && name == "ecc") return Fault{.kind = FaultKind::kEcc};
  if (name == "slow" && ParseAll(argument, &fault.factor) && fault.factor > 0 && fault.factor <= 1) {
    fault.kind = FaultKind::kSlow;
    return fault;
  }
  if (name == "oom-after" && ParseAll(argument, &fault.count)) {
    fault.kind = FaultKind::kOomAfter;
    return fault;
  }
  return Errorf(StatusCode::kInvalidArgument,
                "'%s' is no fault: fell-off-bus, ecc, slow=F (0 < F <= 1), oom-after=N, none, reset",
                std::string(text).c_str());
}

std::string FaultText(const Fault& fault) {
  char text[64];
  switch (fault.kind) {
    case FaultKind::kNone:
      return "none";
    case FaultKind::kFellOffBus:
      return "fell-off-bus";
    case FaultKind::kEcc:
      return "ecc";
    case FaultKind::kReset:
      return "reset";
    case FaultKind::kSlow:
      std::snprintf(text, sizeof text, "slow=%g", fault.factor);
      return text;
    case FaultKind::kOomAfter:
      std::snprintf(text, sizeof text, "oom-after=%llu", static_cast<unsigned long long>(fault.count));
      return text;
  }
  return "unknown";
}

Status CheckConfig(const NodeConfig& config) {
  if (config.gpus < 1 || config.gpus > kMaxDevices) {
    return Errorf(StatusCode::kInvalidArgument, "a node has 1 to %u devices, not %u", kMaxDevices,
                  config.gpus);
  }
  if (config.memory_bytes < kMemoryGranularity || config.memory_bytes > kMaxMemory) {
    return Status(StatusCode::kInvalidArgument, "device memory must be 2MiB to 16TiB");
  }
  if (config.sm_count < 1 || config.sm_count > 1024) {
    return Errorf(StatusCode::kInvalidArgument, "a device has 1 to 1024 multiprocessors, not %u",
                  config.sm_count);
  }
  if (config.clock_mhz < 1 || config.clock_mhz > 100000) {
    return Errorf(StatusCode::kInvalidArgument, "the clock must be 1 to 100000 MHz, not %u",
                  config.clock_mhz);
  }
  if (config.device_name.empty() || config.device_name.size() > 255 || config.node_name.size() > 255) {
    return Status(StatusCode::kInvalidArgument, "a name must have 1 to 255 bytes");
  }
  if (config.slice < std::chrono::milliseconds(1) || config.slice > std::chrono::seconds(60)) {
    return Status(StatusCode::kInvalidArgument, "a time slice must be 1 ms to 60000 ms");
  }
  RETURN_IF_ERROR(CheckRate("h2d bandwidth", config.h2d_gbps));
  RETURN_IF_ERROR(CheckRate("d2h bandwidth", config.d2h_gbps));
  RETURN_IF_ERROR(CheckRate("d2d bandwidth", config.d2d_gbps));
  RETURN_IF_ERROR(CheckRate("peer bandwidth", config.peer_gbps));
  for (auto [a, b] : config.topology.pairs) {
    if (a < config.gpus && b < config.gpus && a != b) continue;
    return Errorf(StatusCode::kInvalidArgument, "topology pair %u-%u: there are devices 0 to %u", a, b,
                  config.gpus - 1);
  }
  return Status();
}

std::vector<DeviceInfo> BuildDevices(const NodeConfig& config, std::string_view identity) {
  std::vector<DeviceInfo> devices(config.gpus);
  for (uint32_t i = 0; i < config.gpus; i++) {
    DeviceInfo& device = devices[i];
    device.ordinal = i;
    device.name = config.device_name;
    device.uuid = UuidOf(config, identity, i);
    device.pci_bus = i + 1;
    device.memory_bytes = config.memory_bytes / kMemoryGranularity * kMemoryGranularity;
    device.sm_count = config.sm_count;
    device.clock_khz = config.clock_mhz * 1000;
    device.compute_major = 12;
    device.h2d_gbps = config.h2d_gbps;
    device.d2h_gbps = config.d2h_gbps;
    device.d2d_gbps = config.d2d_gbps;
    device.peer_gbps = config.peer_gbps;
    for (uint32_t j = 0; j < config.gpus; j++) device.peer_access.push_back(config.topology.Connects(i, j));
  }
  return devices;
}

std::string UuidText(const std::array<uint8_t, 16>& uuid) {
  std::string text = "GPU";
  for (size_t i = 0; i < 16; i++) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    constexpr char kHex[] = "0123456789abcdef";
    text += kHex[uuid[i] >> 4];
    text += kHex[uuid[i] & 15];
  }
  return text;
}

}  // namespace softgpu
