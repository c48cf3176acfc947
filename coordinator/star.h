// One operation on all ranks of a job: a request to each ghost, the questions of all of them answered, each
// one's result taken. One thread, which waits for whatever comes first.
//
// Prints nothing and takes no signals: whoever uses it gives a descriptor by which it is told to give up.
#ifndef COORDINATOR_STAR_H_
#define COORDINATOR_STAR_H_

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/ghost_start.h"
#include "coordinator/interrupt.h"
#include "coordinator/meeting.h"
#include "coordinator/rank_link.h"

namespace stasis {

struct RankOutcome {
  Json result;    // null: none came
  Status status;  // then, why
  std::optional<VotePoint> passed;
};

struct StarOutcome {
  std::vector<RankOutcome> ranks;
  Status failure;  // of all together: the first, naming its rank
  int failed_rank = -1;
  bool abandoned = false;  // the second interrupt: ranks were left to themselves
};

// The code of that StatusCodeName(); kInternal for a name that is none.
StatusCode StatusCodeOf(const std::string& name);
// A result that says so.
bool Succeeded(const Json& result);

class Star {
 public:
  struct Options {
    // Nothing has come from a rank for so long, though it was asked for its state: it counts as lost.
    Duration silence = std::chrono::seconds(10);
    Interrupt* interrupt = nullptr;  // may be null
    std::function<void(int rank, const Json& event)> on_event;
  };
  Star(std::vector<GhostPlace> places, Options options)
      : places_(std::move(places)), options_(std::move(options)) {}

  // Connects to all ghosts, starting those that do not run. The error names the rank.
  Status Connect();
  // One request for each rank; null: it takes no part. Returns when each has its result or is lost.
  StarOutcome Run(const std::vector<Json>& requests, Meeting& meeting);

 private:
  struct Peer {
    std::optional<RankLink> link;  // none: lost
    uint64_t request = 0;
    bool taken = false;  // its ghost has begun
    int starts = 1;
    bool done = false;
    MonotonicTime heard{};
    MonotonicTime probed{};
  };

  void Ask(int rank);
  void Wait(Deadline deadline);
  void Read(int rank);
  void Handle(int rank, RankLink::Arrival arrival);
  void Deliver(const Meeting::Answers& answers);
  void Lose(int rank, const Status& status);
  bool StartAgain(int rank);
  void TakeInterrupt();
  Deadline CheckSilence();
  Peer& At(int rank) { return peers_[static_cast<size_t>(rank)]; }
  int ranks() const { return static_cast<int>(places_.size()); }

  const std::vector<GhostPlace> places_;
  const Options options_;
  std::vector<Peer> peers_;

  // Of the operation that runs.
  const std::vector<Json>* requests_ = nullptr;
  Meeting* meeting_ = nullptr;
  StarOutcome outcome_;
  int interrupts_ = 0;
};

}  // namespace stasis

#endif  // COORDINATOR_STAR_H_
