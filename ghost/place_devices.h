// Where the devices that a process sees are to be.
#ifndef GHOST_PLACE_DEVICES_H_
#define GHOST_PLACE_DEVICES_H_

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

}  // namespace stasis

#endif  // GHOST_PLACE_DEVICES_H_
