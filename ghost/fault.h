// Points at which tests make the ghost fail, die or stop. STASIS_GHOST_FAULT=point[:kill|fail|stop] is read
// once at start; nothing happens without it.
#ifndef GHOST_FAULT_H_
#define GHOST_FAULT_H_

#include <string>

#include "base/status.h"

namespace stasis {

// "before X" and "after X" of each step; the names are those of StepName() with "-before" or "-after", and
// of what happens inside long steps.
#define STASIS_GHOST_FAULTS(X)                     \
  X(kQuiesceBefore, "quiesce-before")              \
  X(kQuiesceAfter, "quiesce-after")                \
  X(kGiveUpBefore, "give-up-before")               \
  X(kGiveUpAfter, "give-up-after")                 \
  X(kHandOverBefore, "hand-over-before")           \
  X(kHandOverAfter, "hand-over-after")             \
  X(kReleaseBefore, "release-before")              \
  X(kReleaseAfter, "release-after")                \
  X(kDetachBefore, "detach-before")                \
  X(kDetachAfter, "detach-after")                  \
  X(kStoreBefore, "store-before")                  \
  X(kStoreInside, "store-inside")                  \
  X(kStoreAfter, "store-after")                    \
  X(kFreezeBefore, "freeze-before")                \
  X(kFreezeAfter, "freeze-after")                  \
  X(kDeafenBefore, "deafen-before")                \
  X(kDeafenAfter, "deafen-after")                  \
  X(kDumpBefore, "dump-before")                    \
  X(kDumpInside, "dump-inside")                    \
  X(kDumpAfter, "dump-after")                      \
  X(kSaveInside, "save-inside")                    \
  X(kSnapshotInside, "snapshot-inside")            \
  X(kSnapshotHeld, "snapshot-held")                \
  X(kEvictInside, "evict-inside")                  \
  X(kCommitBefore, "commit-before")                \
  X(kCommitInside, "commit-inside")                \
  X(kCommitAfter, "commit-after")                  \
  X(kEndTaskBefore, "end-task-before")             \
  X(kEndTaskAfter, "end-task-after")               \
  X(kReviveBefore, "revive-before")                \
  X(kReviveInside, "revive-inside")                \
  X(kReviveAfter, "revive-after")                  \
  X(kThawBefore, "thaw-before")                    \
  X(kThawAfter, "thaw-after")                      \
  X(kListenBefore, "listen-before")                \
  X(kListenAfter, "listen-after")                  \
  X(kMoveBefore, "move-before")                    \
  X(kMoveInside, "move-inside")                    \
  X(kMoveAfter, "move-after")                      \
  X(kLoadBefore, "load-before")                    \
  X(kLoadInside, "load-inside")                    \
  X(kLoadAfter, "load-after")                      \
  X(kReattachBefore, "reattach-before")            \
  X(kReattachAfter, "reattach-after")              \
  X(kAttachBefore, "attach-before")                \
  X(kAttachInside, "attach-inside")                \
  X(kAttachAfter, "attach-after")                  \
  X(kRejoinBefore, "rejoin-before")                \
  X(kRejoinInside, "rejoin-inside")                \
  X(kRejoinAfter, "rejoin-after")                  \
  X(kReopenBefore, "reopen-before")                \
  X(kReopenAfter, "reopen-after")                  \
  X(kVoteDrainedBefore, "vote-drained-before")     \
  X(kVoteDrainedAfter, "vote-drained-after")       \
  X(kVoteHeldBefore, "vote-held-before")           \
  X(kVoteHeldAfter, "vote-held-after")             \
  X(kVoteDumpedBefore, "vote-dumped-before")       \
  X(kVoteDumpedAfter, "vote-dumped-after")         \
  X(kVoteSavedBefore, "vote-saved-before")         \
  X(kVoteSavedAfter, "vote-saved-after")           \
  X(kVoteCommittedBefore, "vote-committed-before") \
  X(kVoteCommittedAfter, "vote-committed-after")   \
  X(kVoteLoadedBefore, "vote-loaded-before")       \
  X(kVoteLoadedAfter, "vote-loaded-after")         \
  X(kVoteRevivedBefore, "vote-revived-before")     \
  X(kVoteRevivedAfter, "vote-revived-after")       \
  X(kVoteJoinedBefore, "vote-joined-before")       \
  X(kVoteJoinedAfter, "vote-joined-after")

enum class FaultPoint : int {
#define STASIS_FAULT(id, name) id,
  STASIS_GHOST_FAULTS(STASIS_FAULT)
#undef STASIS_FAULT
};

const char* FaultName(FaultPoint point);
bool FindFault(const std::string& name, FaultPoint* point);
// Reads the variable's text; kInvalidArgument for an unknown point or action. Empty text: no fault.
Status SetFault(const std::string& text);
// Dies, or fails once with kInternal "fault point X", when this point was asked for.
Status Fault(FaultPoint point);

}  // namespace stasis

#endif  // GHOST_FAULT_H_
