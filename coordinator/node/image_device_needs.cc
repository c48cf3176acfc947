#include "coordinator/node/image_device_needs.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "coordinator/node/device_choice.h"
#include "coordinator/node/image_needs.h"
#include "coordinator/node/text.h"

namespace stasis {
namespace {

constexpr auto kProbeTime = std::chrono::seconds(60);

// One device that the task has used, with all that its processes have on it.
struct UsedDevice {
  std::string name;
  uint32_t capability = 0;
  int physical = 0;  // where it was
  uint64_t bytes = 0;
};

// By the ordinal that the program sees.
std::map<int, UsedDevice> UsedDevices(const Manifest& manifest) {
  std::map<int, UsedDevice> devices;
  for (const ManifestMember& member : manifest.members) {
    std::map<int, uint64_t> bytes;
    for (const TaskExtent& e : member.extents) bytes[e.device] += e.size;
    for (const TaskDevice& device : member.devices) {
      if (!device.used && bytes.count(device.virtual_ordinal) == 0) continue;
      UsedDevice& used = devices[device.virtual_ordinal];
      used.name = device.name;
      used.capability = device.compute_capability;
      used.physical = device.physical_ordinal;
      used.bytes += bytes[device.virtual_ordinal];
    }
  }
  return devices;
}

// Where a restore without --gpus would put them.
const DriverDevice* DeviceFor(const UsedDevice& used, const DriverInfo& driver) {
  size_t index = static_cast<size_t>(used.physical);
  return index < driver.devices.size() ? &driver.devices[index] : nullptr;
}

std::string CapabilityText(uint32_t capability) {
  return fmt::format("{}.{}", capability / 10, capability % 10);
}

Need DriverNeed(const Manifest& manifest, const DriverInfo& driver) {
  int version = 0;
  bool same = false;
  for (const ManifestMember& member : manifest.members) {
    version = std::max(version, member.driver_version);
    same = same || member.strategy == TaskStrategy::kDriverCheckpoint;
  }
  Need need{"driver", fmt::format("CUDA {}{}", DriverVersionText(version), same ? "" : " or newer"),
            Met::kYes, DriverVersionText(driver.version)};
  if (driver.version < version) need.met = Met::kNo;
  // The driver's own state is in the image; whether another version takes it is the driver's to say.
  if (same && driver.version > version) need.met = Met::kUnknown;
  return need;
}

Need CountNeed(size_t count, const DriverInfo& driver) {
  return {"devices", fmt::format("{} at once", count), driver.devices.size() >= count ? Met::kYes : Met::kNo,
          DevicesText(driver)};
}

Need KindNeed(int ordinal, const UsedDevice& used, const DriverDevice& here) {
  std::string what = fmt::format("device {}", ordinal);
  Need need{what, fmt::format("compute capability {} ({})", CapabilityText(used.capability), used.name),
            Met::kYes,
            fmt::format("{} ({})", CapabilityText(static_cast<uint32_t>(here.capability)), here.name)};
  uint32_t capability = static_cast<uint32_t>(here.capability);
  if (capability < used.capability) need.met = Met::kNo;
  // Code for the older one may be in the program as PTX only, or not.
  if (capability > used.capability || here.capability == 0) need.met = Met::kUnknown;
  return need;
}

Need MemoryNeed(int ordinal, const UsedDevice& used, const DriverDevice& here, const FreeMemory& free) {
  Need need{fmt::format("memory of device {}", ordinal), SizeText(used.bytes) + " free", Met::kUnknown, ""};
  auto found = free.find(here.uuid);
  if (here.memory < used.bytes) {
    need.met = Met::kNo;
    need.here = SizeText(here.memory) + " in all";
  } else if (found == free.end()) {
    need.here = SizeText(here.memory) + " in all; what is free is not told";
  } else {
    need.met = found->second >= used.bytes ? Met::kYes : Met::kNo;
    need.here = SizeText(found->second) + " free";
    if (need.met == Met::kNo) need.here += "; --gpus names another device";
  }
  return need;
}

}  // namespace

Result<DriverInfo> ProbeTaskDriver(const TaskConfig& task, const Site& site) {
  return ProbeDrivers(site.files.stasis, {task.driver}, {"CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"},
                      Deadline::After(kProbeTime));
}

uint64_t DeviceBytesOf(const ManifestMember& member) {
  uint64_t bytes = 0;
  for (const TaskExtent& extent : member.extents) bytes += extent.size;
  return bytes;
}

uint64_t ActiveBytesOf(const ManifestMember& member) {
  uint64_t bytes = 0;
  for (const TaskRange& range : member.ranges) bytes += range.size;
  return bytes;
}

std::vector<Need> DeviceNeeds(const Manifest& manifest, const DevicesHere& devices) {
  std::map<int, UsedDevice> used = UsedDevices(manifest);
  if (manifest.members.empty()) return {};
  if (!devices.driver.ok()) {
    return {{"driver", "a CUDA driver where the task had it", Met::kNo,
             std::string(devices.driver.status().message())}};
  }
  const DriverInfo& driver = *devices.driver;
  std::vector<Need> needs = {DriverNeed(manifest, driver), CountNeed(used.size(), driver)};
  for (const auto& [ordinal, device] : used) {
    const DriverDevice* here = DeviceFor(device, driver);
    if (here == nullptr) {
      needs.push_back({fmt::format("device {}", ordinal),
                       fmt::format("GPU {}, where it was", device.physical), Met::kUnknown,
                       "there is none of that number: name one with --gpus"});
      continue;
    }
    needs.push_back(KindNeed(ordinal, device, *here));
    needs.push_back(MemoryNeed(ordinal, device, *here, devices.free));
  }
  return needs;
}

}  // namespace stasis
