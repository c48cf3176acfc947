#include "softgpu/device/smi_report.h"

#include <cstdarg>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "softgpu/device/config.h"

namespace softgpu {

using nlohmann::ordered_json;

namespace {

__attribute__((format(printf, 1, 2))) std::string Format(const char* format, ...) {
  char line[512];
  va_list args;
  va_start(args, format);
  std::vsnprintf(line, sizeof line, format, args);
  va_end(args);
  return line;
}

std::string PciText(const DeviceInfo& info) {
  return Format("%08x:%02x:%02x.0", info.pci_domain, info.pci_bus, info.pci_device);
}

double MiB(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// Everything that is not as it should be, or "-".
std::string FaultsText(const DeviceStatus& device) {
  std::string text;
  auto add = [&](const std::string& fault) { text += (text.empty() ? "" : " ") + fault; };
  if (device.info.slow_factor != 1) {
    add(FaultText(Fault{.kind = FaultKind::kSlow, .factor = device.info.slow_factor}));
  }
  if (device.oom_armed) add(FaultText(Fault{.kind = FaultKind::kOomAfter, .count = device.oom_after}));
  return text.empty() ? "-" : text;
}

// The name was chosen by the process; a terminal must not obey it.
std::string Printable(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

bool Uses(const ProcessInfo& process, size_t device) {
  return process.contexts[device] > 0 || process.memory_bytes[device] > 0;
}

ordered_json DeviceJson(const DeviceStatus& device) {
  const DeviceInfo& info = device.info;
  ordered_json peers = ordered_json::array();
  for (size_t i = 0; i < info.peer_access.size(); i++) {
    if (info.peer_access[i] != 0) peers.push_back(i);
  }
  ordered_json oom = device.oom_armed ? ordered_json(device.oom_after) : ordered_json(nullptr);
  return {{"index", info.ordinal},
          {"name", info.name},
          {"uuid", UuidText(info.uuid)},
          {"pci_bus_id", PciText(info)},
          {"memory_total", info.memory_bytes},
          {"memory_used", device.used_bytes},
          {"memory_free", info.memory_bytes - device.used_bytes},
          {"sm_count", info.sm_count},
          {"clock_mhz", info.clock_khz / 1000},
          {"compute_capability", Format("%u.%u", info.compute_major, info.compute_minor)},
          {"health", HealthText(info.health)},
          {"slow_factor", info.slow_factor},
          {"oom_after", oom},
          {"peers", peers}};
}

ordered_json ProcessJson(const ProcessInfo& process) {
  ordered_json devices = ordered_json::array();
  for (size_t i = 0; i < process.contexts.size(); i++) {
    if (!Uses(process, i)) continue;
    devices.push_back({{"index", i}, {"contexts", process.contexts[i]}, {"memory", process.memory_bytes[i]}});
  }
  return {{"pid", process.pid},
          {"uid", process.uid},
          {"name", process.name},
          {"state", StateText(process.state)},
          {"devices", devices}};
}

}  // namespace

const char* HealthText(Health health) {
  switch (health) {
    case Health::kHealthy:
      return "ok";
    case Health::kFellOffBus:
      return "fell-off-bus";
    case Health::kEccError:
      return "ecc";
  }
  return "unknown";
}

const char* StateText(ProcessState state) {
  switch (state) {
    case ProcessState::kRunning:
      return "running";
    case ProcessState::kLocked:
      return "locked";
    case ProcessState::kCheckpointed:
      return "checkpointed";
    case ProcessState::kFailed:
      return "failed";
  }
  return "unknown";
}

std::string TableReport(const Inventory& inventory) {
  std::string text =
      Format("node %s, softgpud pid %d\n\n", Printable(inventory.node_name).c_str(), inventory.daemon_pid);
  text += Format("%-4s %-24s %-14s %23s  %-13s %s\n", "GPU", "NAME", "BUS", "MEMORY USED / TOTAL", "HEALTH",
                 "FAULTS");
  for (const DeviceStatus& device : inventory.devices) {
    std::string memory = Format("%.0f / %.0f MiB", MiB(device.used_bytes), MiB(device.info.memory_bytes));
    text += Format("%-4u %-24s %-14s %23s  %-13s %s\n", device.info.ordinal,
                   Printable(device.info.name).c_str(), PciText(device.info).c_str(), memory.c_str(),
                   HealthText(device.info.health), FaultsText(device).c_str());
  }
  text += Format("\n%-4s %10s %-24s %14s  %s\n", "GPU", "PID", "PROCESS", "MEMORY", "STATE");
  for (const ProcessInfo& process : inventory.processes) {
    bool listed = false;
    auto line = [&](const std::string& device, uint64_t memory) {
      text += Format("%-4s %10d %-24s %10.0f MiB  %s\n", device.c_str(), process.pid,
                     Printable(process.name).c_str(), MiB(memory), StateText(process.state));
      listed = true;
    };
    for (size_t i = 0; i < process.contexts.size(); i++) {
      if (Uses(process, i)) line(std::to_string(i), process.memory_bytes[i]);
    }
    if (!listed) line("-", 0);
  }
  return text;
}

std::string JsonReport(const Inventory& inventory) {
  ordered_json devices = ordered_json::array();
  for (const DeviceStatus& device : inventory.devices) devices.push_back(DeviceJson(device));
  ordered_json processes = ordered_json::array();
  for (const ProcessInfo& process : inventory.processes) processes.push_back(ProcessJson(process));
  ordered_json report = {{"node", inventory.node_name},
                         {"daemon_pid", inventory.daemon_pid},
                         {"devices", devices},
                         {"processes", processes}};
  // Names are bytes; what is no UTF-8 must not make the report fail.
  return report.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace softgpu
