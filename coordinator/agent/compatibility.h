// Whether a job can run on another node: what it needs, told by the node that has it, and whether that is
// there, looked at by the node that would get it. Looks only.
#ifndef COORDINATOR_AGENT_COMPATIBILITY_H_
#define COORDINATOR_AGENT_COMPATIBILITY_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "coordinator/node/image_needs.h"
#include "coordinator/node/site.h"
#include "coordinator/node/task.h"
#include "ghost/manifest.h"
#include "ghost/task_config.h"
#include "stasis/v1/peer.pb.h"

namespace stasis {

// What a running task needs, as far as it can be told without stopping it: in the form of an image's
// manifest. `status`: its ghost's. What it has of devices is that of `last`, its newest image, where there is
// one (else null): then how much is on which device is known.
Result<Manifest> DescribeRunning(const TaskFacts& facts, const TaskPaths& paths, const Json& status,
                                 const Manifest* last, const Site& site);

// One rank, or a task alone.
struct Arriving {
  std::string task;
  Manifest manifest;
  TaskConfig config;
};

struct Fit {
  std::vector<v1::Refusal> refused;
  std::vector<std::string> notes;  // what only the restore will tell
  // Of each: physical, for the devices that it uses; all empty: where they were.
  std::vector<std::vector<int>> gpus;
};
// Of the memory of devices what counts.
enum class Room {
  kNow,   // what is free
  kEver,  // all: it is to run some other time
};
// `wanted`: physical ordinals; empty: where it was where that has room, else any that has.
Fit CheckFits(std::vector<Arriving> ranks, const std::vector<int>& wanted, const Site& site, Room room);

// Where a task's devices go, in the order of the ordinals that it sees. `free` is by physical ordinal, and
// gets less by what is placed. Sets physical ordinals in `manifest`. Where nothing has room a device keeps
// its place.
std::vector<int> PlaceDevices(const std::vector<int>& wanted, std::vector<uint64_t>* free,
                              Manifest* manifest);

}  // namespace stasis

#endif  // COORDINATOR_AGENT_COMPATIBILITY_H_
