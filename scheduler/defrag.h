// Moving jobs together so that a gang fits that wants its devices on few nodes.
#ifndef SCHEDULER_DEFRAG_H_
#define SCHEDULER_DEFRAG_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/devices.h"
#include "scheduler/state.h"
#include "scheduler/types.h"

namespace stasis::scheduler {

struct Defragmentation {
  // Migrations, each to devices that are free when its turn comes. Where jobs have to change places one of
  // them is paused first and resumed at the end.
  std::vector<Action> actions;
  Placement place;    // of the gang, free after them
  int64_t bytes = 0;  // moved
  double cost = 0;    // device-milliseconds in which moved jobs stand still (Settings::MoveCost)
};

// What makes a place for `gpus` devices on at most `max_nodes` nodes (> 0) when `devices` are free now, by
// moving jobs of `movable` (running, sorted) only, with the least bytes moved. Jobs that are moved keep
// within their own max_nodes.
//
// With up to kExactJobs movable jobs, each of which wants one node or any number, no other set of jobs has
// fewer bytes; with more, only what stands on the nodes to be cleared is moved, and only the best nodes are
// tried. Nothing when there is no way.
std::optional<Defragmentation> PlanRoom(const State& state, const Devices& devices,
                                        const std::vector<JobId>& movable, int gpus, int max_nodes);
inline constexpr size_t kExactJobs = 32;

}  // namespace stasis::scheduler

#endif  // SCHEDULER_DEFRAG_H_
