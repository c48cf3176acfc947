// What the ranks of a job decide together in one operation: takes their ghosts' questions and says who is to
// be answered what. Knows no sockets.
//
// All ranks ask the same questions in the same order, and an answer goes out when each has asked. After a
// failure the next question of each rank is answered with it: from then on that rank is going back, and what
// it asks (Join, Vote) is answered when all that still take part have asked that.
//
// Not thread-safe.
#ifndef COORDINATOR_MEETING_H_
#define COORDINATOR_MEETING_H_

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "ghost/cut.h"
#include "ghost/meet.h"

namespace stasis {

class Meeting {
 public:
  struct Answer {
    int rank = 0;
    QuestionAnswer answer;
  };
  using Answers = std::vector<Answer>;

  struct Options {
    int ranks = 0;
    // By when all of a running job have to have voted kDrained; null: it does not run.
    std::optional<Duration> drained_within;
    // The vote after which nothing can be given up any more.
    VotePoint last = VotePoint::kJoined;
    // All have come to this vote. An error is the failure of all of them.
    std::function<Status(VotePoint)> before_go;
    const Clock* clock = &Clock::Real();
  };
  explicit Meeting(Options options);

  Answers Take(int rank, const Question& question);
  // The rank's operation is over, for good (OK) or not; or nothing is heard of it any more.
  Answers Ended(int rank, const Status& status);
  // Gives the operation up, for a reason that lies with no rank. Does nothing once it is too late for that.
  Answers Fail(const Status& status);
  // When TimeOver() has to be called.
  Deadline deadline() const;
  Answers TimeOver();

  // Not OK: the first failure, with "rank R: " in front; failed_rank() is R, or -1.
  const Status& failure() const { return failure_; }
  int failed_rank() const { return failed_rank_; }
  bool all_ended() const;
  // The last vote of each rank that was answered with OK.
  std::optional<VotePoint> passed(int rank) const { return ranks_[static_cast<size_t>(rank)].passed; }

 private:
  struct HashOfHash {
    size_t operator()(const Hash128& hash) const { return hash.low; }
  };
  struct Rank {
    bool ended = false;
    bool going_back = false;  // has failed, or knows that another one has
    std::optional<Question> waiting;
    std::vector<CutReport> reports;  // of its last round
    std::optional<VotePoint> passed;
  };

  void TakeWaiting(int rank, Answers* answers);
  void Failed(int rank, const Status& status, Answers* answers);
  void SetFailure(int rank, const Status& status, Answers* answers);
  void CannotGoBack(int rank, const Status& status, Answers* answers);
  void Advance(Answers* answers);
  std::vector<int> NextGroup();
  Status CheckSame() const;
  void Reply(int rank, QuestionAnswer answer, Answers* answers);
  void Refuse(int rank, const Status& status, Answers* answers);
  void AnswerCut(const std::vector<int>& group, Answers* answers);
  void AnswerJoin(const std::vector<int>& group, Answers* answers);
  void AnswerVote(const std::vector<int>& group, Answers* answers);
  QuestionAnswer ClaimFor(int rank, const Question& question);
  bool draining() const;
  Rank& At(int rank) { return ranks_[static_cast<size_t>(rank)]; }

  Options options_;
  std::vector<Rank> ranks_;
  MonotonicTime started_;
  Status failure_;
  int failed_rank_ = -1;
  Status back_failure_;   // why not all can go back
  bool gave_up_ = false;  // the vote kDrained has been answered
  bool joined_ = false;   // and kJoined
  bool final_ = false;    // and the last one
  CutSearch search_;
  bool searching_ = false;
  std::unordered_map<Hash128, int, HashOfHash> claims_;  // by whom
};

// "rank 3", "ranks 1, 3 and 5".
std::string RanksText(const std::vector<int>& ranks);

}  // namespace stasis

#endif  // COORDINATOR_MEETING_H_
