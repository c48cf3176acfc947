#include "vmm/device_map.h"

#include <set>
#include <utility>

namespace stasis {
namespace {

struct Map {
  std::vector<TaskDevice> devices;
  bool hides_others = false;
  bool active = false;
};

Map& TheMap() {
  static Map* const map = new Map;  // outlives every destructor
  return *map;
}

void Refresh() {
  bool active = TheMap().hides_others;
  for (const TaskDevice& device : TheMap().devices)
    active |= device.virtual_ordinal != device.physical_ordinal;
  TheMap().active = active;
}

}  // namespace

bool DeviceMapActive() { return TheMap().active; }
const std::vector<TaskDevice>& VisibleDevices() { return TheMap().devices; }

CUdevice ToPhysicalDevice(CUdevice virtual_device) {
  const std::vector<TaskDevice>& devices = TheMap().devices;
  if (virtual_device < 0 || devices.empty()) return virtual_device;
  if (static_cast<size_t>(virtual_device) >= devices.size()) return CU_DEVICE_INVALID;
  return devices[static_cast<size_t>(virtual_device)].physical_ordinal;
}

CUmemLocation ToPhysicalLocation(CUmemLocation location) {
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) location.id = ToPhysicalDevice(location.id);
  return location;
}

CUdevice ToVirtualDevice(CUdevice physical_device) {
  const std::vector<TaskDevice>& devices = TheMap().devices;
  if (devices.empty() || physical_device < 0) return physical_device;
  for (const TaskDevice& device : devices)
    if (device.physical_ordinal == physical_device) return device.virtual_ordinal;
  return -1;
}

void SetVisibleDevices(std::vector<TaskDevice> devices, bool hides_others) {
  TheMap().hides_others = hides_others;
  TheMap().devices = std::move(devices);
  Refresh();
}

Status PlaceDevices(const std::vector<TaskAttach::Placement>& placements) {
  std::vector<TaskDevice> devices = TheMap().devices;
  for (const TaskAttach::Placement& placement : placements) {
    if (placement.virtual_ordinal < 0 || static_cast<size_t>(placement.virtual_ordinal) >= devices.size() ||
        placement.physical_ordinal < 0)
      return Errorf(StatusCode::kInvalidArgument, "no device %d to place on %d", placement.virtual_ordinal,
                    placement.physical_ordinal);
    devices[static_cast<size_t>(placement.virtual_ordinal)].physical_ordinal = placement.physical_ordinal;
  }
  std::set<int32_t> used;
  for (const TaskDevice& device : devices)
    if (!used.insert(device.physical_ordinal).second)
      return Errorf(StatusCode::kInvalidArgument, "two devices of the program on device %d",
                    device.physical_ordinal);
  TheMap().devices = std::move(devices);
  Refresh();
  return {};
}

void MarkDeviceUsed(int virtual_ordinal) {
  std::vector<TaskDevice>& devices = TheMap().devices;
  if (virtual_ordinal >= 0 && static_cast<size_t>(virtual_ordinal) < devices.size())
    devices[static_cast<size_t>(virtual_ordinal)].used = true;
}

}  // namespace stasis
