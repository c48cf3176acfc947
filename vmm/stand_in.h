// Devices that the program saw at its start and that have not come along to where it is now: there are fewer
// there. Such a device is only a name. Several of them may lie on one physical device, with no more than one
// that is used: asked about them, that device answers, and no context can be made on them.
#ifndef VMM_STAND_IN_H_
#define VMM_STAND_IN_H_

#include <cuda.h>

namespace stasis {

// As of the last PlaceDevices() (vmm/device_map.h); readers need no lock.
bool IsStandIn(CUdevice virtual_device);

}  // namespace stasis

#endif  // VMM_STAND_IN_H_
