// What the pause protocol asks of the driver's opaque objects. Every function runs in the control thread
// while the gate is closed (Drain also while it is closing); the order is
//   Drain, CheckRebuildable, Save, Teardown, [driver closed and opened again], RebuildContexts,
//   [device memory mapped], RebuildObjects.
// Only Drain is needed when the driver itself carries the objects (TaskStrategy::kDriverCheckpoint).
#ifndef REPLAY_PAUSE_H_
#define REPLAY_PAUSE_H_

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/task_protocol.h"

namespace stasis::replay {

// Waits until every context is idle. kTimeout after `deadline`, with `blockers` saying what is still busy;
// the program may then run on. kDriver: a context is broken; the message names its sticky error.
Status Drain(const Deadline& deadline, std::vector<TaskBlocker>* blockers);
// The sticky error of a broken context by name, without waiting; empty when there is none.
std::string BrokenContext();
// kUnsupported, naming object and call, when something the program holds cannot be rebuilt.
Status CheckRebuildable();
// Copies to memory of the process what only the driver knows: contents of module variables, times of events,
// nodes of graphs. Changes nothing.
Status Save();
// Destroys all objects and resets the contexts. Goes on past errors and reports the first.
Status Teardown();
// Initialises the driver again, makes the contexts on the devices of the device map.
Status RebuildContexts();
// Everything else. On failure the caller tears down again; what Save() kept is still there.
Status RebuildObjects();
// Counts of rebuilds so far: 0 until the first RebuildObjects() has succeeded.
uint32_t Generation();
void FillStatus(TaskStatus* status);

}  // namespace stasis::replay

#endif  // REPLAY_PAUSE_H_
