// Where the devices that a process sees are to be.
#ifndef GHOST_PLACE_DEVICES_H_
#define GHOST_PLACE_DEVICES_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "base/task_protocol.h"
#include "ghost/held_member.h"

namespace stasis {

struct PlaceRequest {
  std::vector<TaskDevice> devices;  // what the process sees; `used`: by any process of the task
  Placements now;                   // of each of them, of this or of another machine
  std::vector<int> gpus;            // named by the user; may be empty
  int count = 0;                    // devices that there are
  bool may_share = false;           // unused devices may lie where another one is, if there are too few
};

// With a name for each device, they go in the order of ordinals. With fewer, first the devices that are used
// get one, then the others, each in the order of ordinals; who gets none stays where it is, or, if that is
// taken or not there, where one of the others was. kInvalidArgument, kNotFound: in words for the user.
Result<Placements> PlaceDevices(const PlaceRequest& request);

// A device of a process whose driver was checkpointed, and the one that takes its place. UUIDs, raw.
struct DeviceMove {
  std::string old_uuid;
  std::string new_uuid;
  bool operator==(const DeviceMove&) const = default;
};
// kUnsupported where a driver of this version (cuDriverGetVersion) brings processes back on their own devices
// only.
Status CheckMovesDevices(int driver_version);
// What NVIDIA's driver is told when it brings a process back: of every device that the process's driver has,
// where it is to be, and no place twice. `were` are those devices, of which the first go to `wanted`, in the
// same order; the others stay, or, where that is not among `here` or is taken, go to what is left of `here`.
// For whom nothing is left is left out. Empty when all others stay.
std::vector<DeviceMove> MapDevices(const std::vector<std::string>& were,
                                   const std::vector<std::string>& wanted,
                                   const std::vector<std::string>& here);

}  // namespace stasis

#endif  // GHOST_PLACE_DEVICES_H_
