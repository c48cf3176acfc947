#include "vmm/device_map.h"

#include <set>
#include <utility>

#include "vmm/stand_in.h"

namespace stasis {
namespace {

struct Map {
  std::vector<TaskDevice> devices;
  std::vector<bool> stand_in;  // of each of them
  bool hides_others = false;
  bool own_numbers = false;
  bool active = false;
};

Map& TheMap() {
  static Map* const map = new Map;  // outlives every destructor
  return *map;
}

bool OwnsItsPlace(const std::vector<TaskDevice>& devices, size_t index) {
  const TaskDevice& device = devices[index];
  for (size_t i = 0; i < devices.size(); ++i) {
    if (i == index || devices[i].physical_ordinal != device.physical_ordinal) continue;
    if (devices[i].used || (!device.used && i < index)) return false;
  }
  return true;
}

void Refresh() {
  bool active = TheMap().hides_others && !TheMap().own_numbers;
  TheMap().stand_in.clear();
  for (size_t i = 0; i < TheMap().devices.size(); ++i)
    TheMap().stand_in.push_back(!OwnsItsPlace(TheMap().devices, i));
  for (const TaskDevice& device : TheMap().devices)
    active |= !TheMap().own_numbers && device.virtual_ordinal != device.physical_ordinal;
  TheMap().active = active;
}

}  // namespace

bool DeviceMapActive() { return TheMap().active; }
const std::vector<TaskDevice>& VisibleDevices() { return TheMap().devices; }

CUdevice ToPhysicalDevice(CUdevice virtual_device) {
  const std::vector<TaskDevice>& devices = TheMap().devices;
  if (virtual_device < 0 || devices.empty()) return virtual_device;
  if (static_cast<size_t>(virtual_device) >= devices.size()) return CU_DEVICE_INVALID;
  if (TheMap().own_numbers) return virtual_device;
  return devices[static_cast<size_t>(virtual_device)].physical_ordinal;
}

CUmemLocation ToPhysicalLocation(CUmemLocation location) {
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) location.id = ToPhysicalDevice(location.id);
  return location;
}

CUdevice ToVirtualDevice(CUdevice physical_device) {
  const std::vector<TaskDevice>& devices = TheMap().devices;
  if (devices.empty() || physical_device < 0) return physical_device;
  if (TheMap().own_numbers)
    return static_cast<size_t>(physical_device) < devices.size() ? physical_device : -1;
  for (const TaskDevice& device : devices)
    if (device.physical_ordinal == physical_device && !IsStandIn(device.virtual_ordinal))
      return device.virtual_ordinal;
  return -1;
}

bool DriverHasOwnNumbers() { return TheMap().own_numbers; }

void SetVisibleDevices(std::vector<TaskDevice> devices, bool hides_others, bool own_numbers) {
  TheMap().hides_others = hides_others;
  TheMap().own_numbers = own_numbers;
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
    if (device.used && !used.insert(device.physical_ordinal).second)
      return Errorf(StatusCode::kInvalidArgument, "two devices that the program uses on device %d",
                    device.physical_ordinal);
  TheMap().devices = std::move(devices);
  Refresh();
  return {};
}

bool IsStandIn(CUdevice virtual_device) {
  const std::vector<bool>& stand_in = TheMap().stand_in;
  return virtual_device >= 0 && static_cast<size_t>(virtual_device) < stand_in.size() &&
         stand_in[static_cast<size_t>(virtual_device)];
}

void MarkDeviceUsed(int virtual_ordinal) {
  std::vector<TaskDevice>& devices = TheMap().devices;
  if (virtual_ordinal >= 0 && static_cast<size_t>(virtual_ordinal) < devices.size())
    devices[static_cast<size_t>(virtual_ordinal)].used = true;
}

}  // namespace stasis
