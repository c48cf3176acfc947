// Device ordinals as the program sees them (virtual) and as the driver below numbers them now (physical). A
// driver that was shown only what the program sees numbers them as the program does: then both directions are
// the identity, and the physical ordinals of VisibleDevices() are those of the machine.
//
// Filled once at cuInit, changed only while the gate is closed; so readers need no lock. Before it is filled,
// and for negative ordinals (CU_DEVICE_CPU), both directions are the identity.
#ifndef VMM_DEVICE_MAP_H_
#define VMM_DEVICE_MAP_H_

#include <cuda.h>

#include <vector>

#include "base/task_protocol.h"

namespace stasis {

// True while some virtual ordinal differs from its physical one, or physical devices are hidden.
bool DeviceMapActive();
// CU_DEVICE_INVALID for an ordinal the program does not see.
CUdevice ToPhysicalDevice(CUdevice virtual_device);
// The same of the device in `location`; other locations as they are.
CUmemLocation ToPhysicalLocation(CUmemLocation location);
// -1 for a physical device that the program does not see.
CUdevice ToVirtualDevice(CUdevice physical_device);
// What the program sees, in the order of virtual ordinals.
const std::vector<TaskDevice>& VisibleDevices();
// `hides_others`: the driver has more devices than these. `own_numbers`: it has these alone, in this order.
void SetVisibleDevices(std::vector<TaskDevice> devices, bool hides_others = false, bool own_numbers = false);
// Whether the driver has the devices of the program alone.
bool DriverHasOwnNumbers();
// Moves devices; every virtual ordinal must be known, and no physical one be shared but among those that the
// program does not use. kInvalidArgument else, with nothing changed.
Status PlaceDevices(const std::vector<TaskAttach::Placement>& placements);
// Notes that a context was made there.
void MarkDeviceUsed(int virtual_ordinal);

}  // namespace stasis

#endif  // VMM_DEVICE_MAP_H_
