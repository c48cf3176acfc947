#include "vmm/device_map.h"

#include <set>
#include <utility>

namespace stasis {
namespace {

struct Map {
  std::vector<TaskDevice> devices;
  // By virtual ordinal: the number that the driver in this process has for the device. Other than the
  // physical one after the driver itself has moved the process.
  std::vector<CUdevice> driver_ordinals;
  bool hides_others = false;
  bool active = false;
};

Map& TheMap() {
  static Map* const map = new Map;  // outlives every destructor
  return *map;
}

void Refresh() {
  bool active = TheMap().hides_others;
  for (size_t i = 0; i < TheMap().driver_ordinals.size(); ++i)
    active |= TheMap().driver_ordinals[i] != static_cast<CUdevice>(i);
  TheMap().active = active;
}

void NumberAsPlaced() {
  TheMap().driver_ordinals.clear();
  for (const TaskDevice& device : TheMap().devices)
    TheMap().driver_ordinals.push_back(device.physical_ordinal);
  Refresh();
}

}  // namespace

bool DeviceMapActive() { return TheMap().active; }
const std::vector<TaskDevice>& VisibleDevices() { return TheMap().devices; }

CUdevice ToPhysicalDevice(CUdevice virtual_device) {
  const std::vector<CUdevice>& ordinals = TheMap().driver_ordinals;
  if (virtual_device < 0 || ordinals.empty()) return virtual_device;
  if (static_cast<size_t>(virtual_device) >= ordinals.size()) return CU_DEVICE_INVALID;
  return ordinals[static_cast<size_t>(virtual_device)];
}

CUdevice ToVirtualDevice(CUdevice physical_device) {
  const std::vector<CUdevice>& ordinals = TheMap().driver_ordinals;
  if (ordinals.empty() || physical_device < 0) return physical_device;
  for (size_t i = 0; i < ordinals.size(); ++i)
    if (ordinals[i] == physical_device) return static_cast<CUdevice>(i);
  return -1;
}

void SetVisibleDevices(std::vector<TaskDevice> devices, bool hides_others) {
  TheMap().hides_others = hides_others;
  TheMap().devices = std::move(devices);
  NumberAsPlaced();
}

Status PlaceDevices(const std::vector<TaskAttach::Placement>& placements, bool by_driver) {
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
  if (!by_driver) NumberAsPlaced();
  return {};
}

void MarkDeviceUsed(int virtual_ordinal) {
  std::vector<TaskDevice>& devices = TheMap().devices;
  if (virtual_ordinal >= 0 && static_cast<size_t>(virtual_ordinal) < devices.size())
    devices[static_cast<size_t>(virtual_ordinal)].used = true;
}

}  // namespace stasis
