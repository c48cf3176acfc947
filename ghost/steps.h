// The state machine of one task, as the ghost sees it: the table that docs/checkpoint.md and docs/restore.md
// show. Verbs are lists of steps; what undoes a verb is found in the same table.
#ifndef GHOST_STEPS_H_
#define GHOST_STEPS_H_

#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "ghost/coordination.h"
#include "ghost/fault.h"

namespace stasis {

// Where the task stands. Ordered from running to as far away from it as it gets.
enum class Phase : int {
  kRunning = 0,
  kDrained,     // the program stands still, the driver is idle; it could go on as it is
  kQuiesced,    // what the CUDA libraries had made is given up
  kHandedOver,  // the ghost has descriptors of all device memory
  kReleased,    // the task has given its device memory up (kReconstruct: the whole driver)
  kDetached,    // the driver's own state is gone too (kDriverCheckpoint)
  kStored,      // the memory is where the residency says
  kHeld,        // frozen: this is "paused"
  kDeaf,        // no socket of ours is in the task: CRIU may dump it
  kAbsent,      // there is no process
};
const char* PhaseName(Phase phase);
bool FindPhase(const std::string& name, Phase* phase);

enum class Step : int {
  kQuiesce = 0,
  kGiveUp,
  kHandOver,
  kRelease,
  kDetach,
  kStore,
  kFreeze,
  kDeafen,
  kDump,
  kCommit,
  kEndTask,
  kRevive,
  kThaw,
  kListen,
  kMove,
  kLoad,
  kReattach,
  kAttach,
  kRejoin,
  kReopen,
  kDrop,      // only undoes kHandOver
  kUnattach,  // only undoes kAttach
  kAbandon,   // only undoes kRevive
};
const char* StepName(Step step);
bool FindStep(const std::string& name, Step* step);

enum class Direction { kDown, kUp, kStay };

struct StepRow {
  Step step;
  const char* name;
  Phase from;  // of kStay: the first phase it may be taken in
  Phase to;    // of kStay: the last one
  Direction direction;
  const char* what;  // for progress: what is going on
};
std::span<const StepRow> StepTable();
const StepRow& RowOf(Step step);
// The step may be taken in this phase.
bool Allows(Step step, Phase phase);
// Where it leads.
Phase After(Step step, Phase phase);
// The next step on the way from `from` back to `goal` (kRunning, kHeld or kAbsent); false once there.
// `has_memory`: the ghost holds the task's memory, although the task may have it, too.
bool WayBack(Phase from, Phase goal, bool has_memory, Step* step);

// The steps of the verbs.
std::vector<Step> PausePlan();
std::vector<Step> ResumePlan();
std::vector<Step> CheckpointPlan(bool held, bool stop);
std::vector<Step> MigratePlan(bool held);
std::vector<Step> RestorePlan();

// The fault points around a step; OK for steps that have none.
Status FaultBefore(Step step);
Status FaultAfter(Step step);
// Those around a vote: before it is cast, and after all have been told to go on.
Status FaultBefore(VotePoint point);
Status FaultAfter(VotePoint point);

}  // namespace stasis

#endif  // GHOST_STEPS_H_
