#include "ghost/steps.h"

#include <iterator>

namespace stasis {
namespace {

constexpr StepRow kTable[] = {
    {Step::kQuiesce, "quiesce", Phase::kRunning, Phase::kDrained, Direction::kDown, "wait for the device"},
    {Step::kGiveUp, "give-up", Phase::kDrained, Phase::kQuiesced, Direction::kDown, "end communicators"},
    {Step::kHandOver, "hand-over", Phase::kQuiesced, Phase::kHandedOver, Direction::kDown,
     "take over memory"},
    {Step::kRelease, "release", Phase::kHandedOver, Phase::kReleased, Direction::kDown, "release the device"},
    {Step::kDetach, "detach", Phase::kReleased, Phase::kDetached, Direction::kDown, "let go of the driver"},
    {Step::kStore, "store", Phase::kDetached, Phase::kStored, Direction::kDown, "store device memory"},
    {Step::kFreeze, "freeze", Phase::kStored, Phase::kHeld, Direction::kDown, "freeze"},
    {Step::kDeafen, "deafen", Phase::kStored, Phase::kDeaf, Direction::kDown, "close connections"},
    {Step::kDump, "dump", Phase::kDeaf, Phase::kDeaf, Direction::kStay, "save"},
    {Step::kCommit, "commit", Phase::kRunning, Phase::kDeaf, Direction::kStay, "commit the image"},
    {Step::kEndTask, "end-task", Phase::kDeaf, Phase::kAbsent, Direction::kDown, "end the task"},
    {Step::kRevive, "revive", Phase::kAbsent, Phase::kDeaf, Direction::kUp, "restore processes"},
    {Step::kThaw, "thaw", Phase::kHeld, Phase::kStored, Direction::kUp, "thaw"},
    {Step::kListen, "listen", Phase::kDeaf, Phase::kStored, Direction::kUp, "connect"},
    {Step::kMove, "move", Phase::kDetached, Phase::kHeld, Direction::kStay, "move device memory"},
    {Step::kLoad, "load", Phase::kStored, Phase::kDetached, Direction::kUp, "load device memory"},
    {Step::kReattach, "reattach", Phase::kDetached, Phase::kReleased, Direction::kUp,
     "bring the driver back"},
    {Step::kAttach, "attach", Phase::kReleased, Phase::kQuiesced, Direction::kUp, "rebuild"},
    {Step::kRejoin, "rejoin", Phase::kQuiesced, Phase::kDrained, Direction::kUp, "make communicators"},
    {Step::kReopen, "reopen", Phase::kDrained, Phase::kRunning, Direction::kUp, "go on"},
    {Step::kDrop, "drop", Phase::kHandedOver, Phase::kQuiesced, Direction::kUp, "undo"},
    {Step::kUnattach, "unattach", Phase::kQuiesced, Phase::kReleased, Direction::kDown, "undo"},
    {Step::kAbandon, "abandon", Phase::kRunning, Phase::kAbsent, Direction::kDown, "undo"},
};

constexpr const char* kPhaseNames[] = {"running",  "drained", "quiesced", "handed-over", "released",
                                       "detached", "stored",  "held",     "deaf",        "absent"};

// Back to running: the way up from each phase.
constexpr Step kWayUp[] = {Step::kReopen,   Step::kReopen, Step::kRejoin, Step::kDrop,   Step::kAttach,
                           Step::kReattach, Step::kLoad,   Step::kThaw,   Step::kListen, Step::kListen};
// Back to held: the way down.
constexpr Step kWayDown[] = {Step::kGiveUp, Step::kGiveUp, Step::kHandOver, Step::kRelease, Step::kDetach,
                             Step::kStore,  Step::kFreeze, Step::kFreeze,   Step::kListen,  Step::kListen};

struct StepFaults {
  Step step;
  FaultPoint before;
  FaultPoint after;
};
constexpr StepFaults kFaults[] = {
    {Step::kQuiesce, FaultPoint::kQuiesceBefore, FaultPoint::kQuiesceAfter},
    {Step::kGiveUp, FaultPoint::kGiveUpBefore, FaultPoint::kGiveUpAfter},
    {Step::kHandOver, FaultPoint::kHandOverBefore, FaultPoint::kHandOverAfter},
    {Step::kRelease, FaultPoint::kReleaseBefore, FaultPoint::kReleaseAfter},
    {Step::kDetach, FaultPoint::kDetachBefore, FaultPoint::kDetachAfter},
    {Step::kStore, FaultPoint::kStoreBefore, FaultPoint::kStoreAfter},
    {Step::kFreeze, FaultPoint::kFreezeBefore, FaultPoint::kFreezeAfter},
    {Step::kDeafen, FaultPoint::kDeafenBefore, FaultPoint::kDeafenAfter},
    {Step::kDump, FaultPoint::kDumpBefore, FaultPoint::kDumpAfter},
    {Step::kCommit, FaultPoint::kCommitBefore, FaultPoint::kCommitAfter},
    {Step::kEndTask, FaultPoint::kEndTaskBefore, FaultPoint::kEndTaskAfter},
    {Step::kRevive, FaultPoint::kReviveBefore, FaultPoint::kReviveAfter},
    {Step::kThaw, FaultPoint::kThawBefore, FaultPoint::kThawAfter},
    {Step::kListen, FaultPoint::kListenBefore, FaultPoint::kListenAfter},
    {Step::kMove, FaultPoint::kMoveBefore, FaultPoint::kMoveAfter},
    {Step::kLoad, FaultPoint::kLoadBefore, FaultPoint::kLoadAfter},
    {Step::kReattach, FaultPoint::kReattachBefore, FaultPoint::kReattachAfter},
    {Step::kAttach, FaultPoint::kAttachBefore, FaultPoint::kAttachAfter},
    {Step::kRejoin, FaultPoint::kRejoinBefore, FaultPoint::kRejoinAfter},
    {Step::kReopen, FaultPoint::kReopenBefore, FaultPoint::kReopenAfter},
};

template <size_t kCount>
std::vector<Step> Joined(std::vector<Step> first, const Step (&rest)[kCount]) {
  first.insert(first.end(), std::begin(rest), std::end(rest));
  return first;
}

}  // namespace

std::span<const StepRow> StepTable() { return kTable; }

const StepRow& RowOf(Step step) { return kTable[static_cast<size_t>(step)]; }

const char* PhaseName(Phase phase) { return kPhaseNames[static_cast<size_t>(phase)]; }

bool FindPhase(const std::string& name, Phase* phase) {
  for (size_t i = 0; i < std::size(kPhaseNames); ++i) {
    if (name != kPhaseNames[i]) continue;
    *phase = static_cast<Phase>(i);
    return true;
  }
  return false;
}

const char* StepName(Step step) { return RowOf(step).name; }

bool FindStep(const std::string& name, Step* step) {
  for (const StepRow& row : kTable) {
    if (name != row.name) continue;
    *step = row.step;
    return true;
  }
  return false;
}

bool Allows(Step step, Phase phase) {
  const StepRow& row = RowOf(step);
  bool range = row.direction == Direction::kStay || step == Step::kAbandon;
  return range ? phase >= row.from && phase <= row.to : phase == row.from;
}

Phase After(Step step, Phase phase) {
  return RowOf(step).direction == Direction::kStay ? phase : RowOf(step).to;
}

bool WayBack(Phase from, Phase goal, bool has_memory, Step* step) {
  if (from == goal) return false;
  if (from == Phase::kAbsent) return false;  // what has ended stays ended
  if (goal == Phase::kAbsent)
    *step = Step::kAbandon;
  else
    *step = (goal == Phase::kHeld ? kWayDown : kWayUp)[static_cast<size_t>(from)];
  // It was attached with that.
  if (*step == Step::kHandOver && has_memory) *step = Step::kUnattach;
  // A program that runs is not paused in order to undo something.
  return !(goal == Phase::kHeld && from == Phase::kRunning);
}

std::vector<Step> PausePlan() {
  return {Step::kQuiesce, Step::kGiveUp, Step::kHandOver, Step::kRelease,
          Step::kDetach,  Step::kStore,  Step::kFreeze};
}

std::vector<Step> ResumePlan() {
  return {Step::kThaw, Step::kLoad, Step::kReattach, Step::kAttach, Step::kRejoin, Step::kReopen};
}

std::vector<Step> CheckpointPlan(bool held, bool stop) {
  constexpr Step kPause[] = {Step::kQuiesce, Step::kGiveUp, Step::kHandOver,
                             Step::kRelease, Step::kDetach, Step::kStore};
  constexpr Step kDump[] = {Step::kDeafen, Step::kDump};
  constexpr Step kEnd[] = {Step::kCommit, Step::kEndTask};
  constexpr Step kHoldAgain[] = {Step::kListen, Step::kFreeze, Step::kCommit};
  // The image is put on stable storage while the task runs again.
  constexpr Step kGoOn[] = {Step::kListen, Step::kLoad,   Step::kReattach, Step::kAttach,
                            Step::kRejoin, Step::kReopen, Step::kCommit};
  std::vector<Step> plan = held ? std::vector<Step>{Step::kThaw} : Joined({}, kPause);
  plan = Joined(std::move(plan), kDump);
  if (stop) return Joined(std::move(plan), kEnd);
  return held ? Joined(std::move(plan), kHoldAgain) : Joined(std::move(plan), kGoOn);
}

std::vector<Step> MigratePlan(bool held) {
  if (held) return {Step::kMove};
  return {Step::kQuiesce, Step::kGiveUp,   Step::kHandOver, Step::kRelease, Step::kDetach,
          Step::kMove,    Step::kReattach, Step::kAttach,   Step::kRejoin,  Step::kReopen};
}

std::vector<Step> RestorePlan() {
  return {Step::kRevive, Step::kListen, Step::kLoad,  Step::kReattach,
          Step::kAttach, Step::kRejoin, Step::kReopen};
}

Status FaultBefore(Step step) {
  for (const StepFaults& row : kFaults) {
    if (row.step == step) return Fault(row.before);
  }
  return Status();
}

Status FaultAfter(Step step) {
  for (const StepFaults& row : kFaults) {
    if (row.step == step) return Fault(row.after);
  }
  return Status();
}

namespace {

constexpr FaultPoint kVoteFaults[][2] = {
    {FaultPoint::kVoteDrainedBefore, FaultPoint::kVoteDrainedAfter},
    {FaultPoint::kVoteHeldBefore, FaultPoint::kVoteHeldAfter},
    {FaultPoint::kVoteDumpedBefore, FaultPoint::kVoteDumpedAfter},
    {FaultPoint::kVoteSavedBefore, FaultPoint::kVoteSavedAfter},
    {FaultPoint::kVoteCommittedBefore, FaultPoint::kVoteCommittedAfter},
    {FaultPoint::kVoteLoadedBefore, FaultPoint::kVoteLoadedAfter},
    {FaultPoint::kVoteRevivedBefore, FaultPoint::kVoteRevivedAfter},
    {FaultPoint::kVoteJoinedBefore, FaultPoint::kVoteJoinedAfter},
};

}  // namespace

Status FaultBefore(VotePoint point) { return Fault(kVoteFaults[static_cast<size_t>(point)][0]); }

Status FaultAfter(VotePoint point) { return Fault(kVoteFaults[static_cast<size_t>(point)][1]); }

}  // namespace stasis
