// The decisions about ranks (base/rank_protocol.h), made where all their reports are: in the ghost of a task
// whose ranks are all in its tree, else in the coordinator of the job.
//
// Plain calculation; not thread-safe.
#ifndef GHOST_CUT_H_
#define GHOST_CUT_H_

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rank_protocol.h"
#include "base/status.h"

namespace stasis {

// The search for the cut: rounds of reports of all processes and what they are told.
class CutSearch {
 public:
  // The latest reports, one of each process, always in the same order. Afterwards either settled(), and
  // nothing that is in flight waits for a call that has not come; or targets() are for the next round.
  void Take(std::span<const CutReport> reports, MonotonicTime now);
  bool settled() const { return settled_; }
  // kUnsupported, naming it, for what no more rounds can help: a communicator with ranks in processes that
  // take no part.
  const Status& refused() const { return refused_; }
  const CutTargets& targets() const { return targets_; }
  // What is missing, in words, for when the time is over: "ncclAllReduce #17 of rank 3 is missing".
  std::string Missing() const;

  // After so long without movement anywhere each held call may go on once.
  static constexpr std::chrono::milliseconds kStill{100};

 private:
  bool settled_ = false;
  Status refused_;
  CutTargets targets_;
  std::vector<std::string> missing_;
  std::vector<uint32_t> events_;  // of the latest reports
  MonotonicTime moved_{};
};

// The ids for what has to be made again, from what all processes report. kFailedPrecondition, naming the
// ranks that are missing, when one of a communicator's ranks is in none of the reports; those of `ended` are
// left out.
Result<std::vector<CommId>> JoinComms(std::span<const CommReport> reports, const std::set<CommKey>& ended);

}  // namespace stasis

#endif  // GHOST_CUT_H_
