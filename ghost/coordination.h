// What the ghosts of one job decide together, as the ghost of one rank sees it. A task that is no rank of a
// job decides alone (AloneCoordination). Else its requests come from the job's coordinator, and each question
// goes to it over the connection that the request came by (RemoteCoordination; docs/ghost-protocol.md,
// "Jobs").
//
// Called by the thread that runs the operation, but for Claim().
#ifndef GHOST_COORDINATION_H_
#define GHOST_COORDINATION_H_

#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rank_protocol.h"
#include "base/status.h"
#include "dedup/hash.h"
#include "ghost/cut.h"

namespace stasis {

// Where all ranks wait for each other.
enum class VotePoint : int {
  kDrained = 0,  // of a pause: every rank stands still as it is; afterwards communicators are given up
  kHeld,         // of a pause: released and stored
  kDumped,       // of a checkpoint: everything of the image is there
  kSaved,  // of a checkpoint: what each rank has claimed is in the store, and stays until its operation ends;
           // asked within the step that commits, each rank's manifest is written afterwards
  kCommitted,  // of a checkpoint: each rank's image is in the store; afterwards the job's is, too
  kLoaded,  // of a restore: the chunks that each rank reads for its node are on its devices; asked within the
            // step that revives, the other chunks are copied from device to device afterwards
  kRevived,  // of a restore or resume: everything is there again but communicators
  kJoined,   // communicators, too; afterwards the programs run
};
const char* VotePointName(VotePoint point);

class Coordination {
 public:
  struct CutAnswer {
    bool settled = false;
    CutTargets targets;
  };

  virtual ~Coordination() = default;
  // One round; the reports of this task's processes, in the same order each time. kCancelled or what another
  // rank has failed with: the operation is given up, everybody goes back.
  virtual Result<CutAnswer> Cut(const std::vector<CutReport>& mine, const Deadline& deadline) = 0;
  // OK: every rank is here. An error of another rank names it. kPeerDied and lost(): the vote is cast, and
  // whether the others go on or back is not known; any other error: nobody goes on because of this rank.
  virtual Status Vote(VotePoint point, const Deadline& deadline) = 0;
  // Ids for the communicators of this task's processes.
  virtual Result<std::vector<CommId>> Join(const std::vector<CommReport>& mine, const Deadline& deadline) = 0;
  // For each chunk whether this rank is to copy and write it; one that is another rank's is in the store
  // when the vote kSaved has ended. Asked again within the same operation, a rank is told the same. Any
  // thread, several at once.
  virtual Result<std::vector<bool>> Claim(std::span<const Hash128> chunks) = 0;
  // This rank has failed: every other one's next question is answered with that.
  virtual void Fail(const Status& status) = 0;
  // There is no coordinator any more: what the others do is not known, and every question fails.
  virtual bool lost() const { return false; }
};

// All ranks are processes of this task.
class AloneCoordination final : public Coordination {
 public:
  Result<CutAnswer> Cut(const std::vector<CutReport>& mine, const Deadline& deadline) override;
  Status Vote(VotePoint point, const Deadline& deadline) override;
  Result<std::vector<CommId>> Join(const std::vector<CommReport>& mine, const Deadline& deadline) override;
  Result<std::vector<bool>> Claim(std::span<const Hash128> chunks) override;
  void Fail(const Status&) override {}

 private:
  CutSearch search_;
};

}  // namespace stasis

#endif  // GHOST_COORDINATION_H_
