#include "coordinator/meeting.h"

#include <algorithm>
#include <set>

namespace stasis {
namespace {

// The ghosts keep the same time. Where all of them go on with rounds the search says best what is missing,
// shortly before; where one is stuck, its ghost does, and is given time for it.
constexpr Duration kMostBefore = std::chrono::seconds(1);
constexpr Duration kAfter = std::chrono::milliseconds(500);

// The order in which a rank asks.
constexpr int kDrainedOrder = 1 + 2 * static_cast<int>(VotePoint::kDrained);
int OrderOf(const Question& question) {
  if (question.kind == QuestionKind::kCut) return 0;
  if (question.kind == QuestionKind::kVote) return 1 + 2 * static_cast<int>(question.point);
  return 2 * static_cast<int>(VotePoint::kJoined);  // between the votes kRevived and kJoined
}

std::string NameOf(const Question& question) {
  if (question.kind == QuestionKind::kCut) return "the cut";
  if (question.kind == QuestionKind::kJoin) return "the communicators";
  return std::string("the vote '") + VotePointName(question.point) + "'";
}

}  // namespace

std::string RanksText(const std::vector<int>& ranks) {
  if (ranks.empty()) return "no rank";
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

Meeting::Meeting(Options options)
    : options_(std::move(options)),
      ranks_(static_cast<size_t>(options_.ranks)),
      started_(options_.clock->Now()) {}

bool Meeting::all_ended() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.ended; });
}

bool Meeting::draining() const {
  return options_.drained_within && failure_.ok() &&
         std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return !rank.passed; });
}

Deadline Meeting::deadline() const {
  if (!draining()) return Deadline::Never();
  return Deadline::At(started_ + *options_.drained_within + kAfter, *options_.clock);
}

void Meeting::Reply(int rank, QuestionAnswer answer, Answers* answers) {
  Rank& at = At(rank);
  answer.number = at.waiting->number;
  answer.kind = at.waiting->kind;
  at.waiting.reset();
  answers->push_back({rank, std::move(answer)});
}

void Meeting::Refuse(int rank, const Status& status, Answers* answers) {
  QuestionAnswer answer;
  answer.status = status;
  Reply(rank, std::move(answer), answers);
}

void Meeting::SetFailure(int rank, const Status& status, Answers* answers) {
  if (rank >= 0) At(rank).going_back = true;
  if (!failure_.ok()) return;
  failure_ = rank < 0 ? status : status.WithContext("rank " + std::to_string(rank));
  failed_rank_ = rank;
  for (int other = 0; other < options_.ranks; ++other) {
    if (!At(other).waiting) continue;
    At(other).going_back = true;
    Refuse(other, failure_, answers);
  }
}

Meeting::Answers Meeting::Take(int rank, const Question& question) {
  Answers answers;
  Rank& at = At(rank);
  if (question.kind == QuestionKind::kFail) {
    Failed(rank, question.failure, &answers);
  } else if (question.kind == QuestionKind::kClaim) {
    answers.push_back({rank, ClaimFor(rank, question)});
  } else if (at.waiting) {
    SetFailure(rank, Status(StatusCode::kInternal, "its ghost asks again before it was answered"), &answers);
  } else {
    at.waiting = question;
    if (question.kind == QuestionKind::kCut) at.reports = question.cut;
    TakeWaiting(rank, &answers);
  }
  Advance(&answers);
  return answers;
}

// What can be answered at once, as others have failed.
void Meeting::TakeWaiting(int rank, Answers* answers) {
  Rank& at = At(rank);
  if (failure_.ok()) return;
  if (!std::exchange(at.going_back, true) || at.waiting->kind == QuestionKind::kCut) {
    Refuse(rank, failure_, answers);
  } else if (!back_failure_.ok()) {
    Refuse(rank, back_failure_, answers);
  }
}

void Meeting::Failed(int rank, const Status& status, Answers* answers) {
  bool again = At(rank).going_back;
  SetFailure(rank, status, answers);
  // A ghost that was told by its own client, too, says so whatever it is doing.
  if (again && status.code() != StatusCode::kCancelled) CannotGoBack(rank, status, answers);
}

Meeting::Answers Meeting::Ended(int rank, const Status& status) {
  Answers answers;
  Rank& at = At(rank);
  if (at.ended) return answers;
  at.ended = true;
  at.waiting.reset();
  if (!status.ok()) {
    SetFailure(rank, status, &answers);
    CannotGoBack(rank, status, &answers);
  }
  Advance(&answers);
  return answers;
}

// Between the votes kDrained and kJoined the way back is one that only all can go together: the others cannot
// go it without this rank.
void Meeting::CannotGoBack(int rank, const Status& status, Answers* answers) {
  if (!options_.drained_within || !gave_up_ || joined_ || !back_failure_.ok()) return;
  back_failure_ = status.WithContext("rank " + std::to_string(rank) + " cannot go back");
  for (int other = 0; other < options_.ranks; ++other) {
    if (At(other).waiting) Refuse(other, back_failure_, answers);
  }
}

Meeting::Answers Meeting::Fail(const Status& status) {
  Answers answers;
  if (final_) return answers;
  SetFailure(-1, status, &answers);
  return answers;
}

Meeting::Answers Meeting::TimeOver() {
  std::vector<int> missing;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    if (!At(rank).ended && !At(rank).waiting && !At(rank).passed) missing.push_back(rank);
  }
  std::string text =
      RanksText(missing) + (missing.size() == 1 ? " does" : " do") + " not stand still in time";
  std::string calls = searching_ && !search_.settled() ? search_.Missing() : "";
  if (!calls.empty()) text += ": " + calls;
  return Fail(Status(StatusCode::kTimeout, text));
}

// Those that are to be answered now: all that take part have asked, and these have the most way to go.
std::vector<int> Meeting::NextGroup() {
  std::vector<int> group;
  int order = 0;
  for (int rank = 0; rank < options_.ranks; ++rank) {
    if (At(rank).ended) continue;
    if (!At(rank).waiting) return {};
    int mine = OrderOf(*At(rank).waiting);
    if (group.empty() || mine < order) group.clear();
    if (group.empty()) order = mine;
    if (mine == order) group.push_back(rank);
  }
  return group;
}

// On the way forth all ranks are at the same place; but while some look for the cut again, others have
// drained.
Status Meeting::CheckSame() const {
  const Question* first = nullptr;
  for (const Rank& rank : ranks_) {
    if (rank.ended) continue;
    if (!first) first = &*rank.waiting;
    bool both_early = OrderOf(*first) <= kDrainedOrder && OrderOf(*rank.waiting) <= kDrainedOrder;
    if (OrderOf(*first) == OrderOf(*rank.waiting) || both_early) continue;
    return Status(StatusCode::kInternal,
                  "the ranks are at different places, " + NameOf(*first) + " and " + NameOf(*rank.waiting));
  }
  return Status();
}

void Meeting::Advance(Answers* answers) {
  std::vector<int> group = NextGroup();
  if (group.empty()) return;
  Status same = failure_.ok() ? CheckSame() : Status();
  if (!same.ok()) return SetFailure(-1, same, answers);
  switch (At(group[0]).waiting->kind) {
    case QuestionKind::kCut:
      return AnswerCut(group, answers);
    case QuestionKind::kJoin:
      return AnswerJoin(group, answers);
    default:
      return AnswerVote(group, answers);
  }
}

void Meeting::AnswerCut(const std::vector<int>& group, Answers* answers) {
  std::vector<CutReport> reports;
  for (const Rank& rank : ranks_) reports.insert(reports.end(), rank.reports.begin(), rank.reports.end());
  MonotonicTime now = options_.clock->Now();
  searching_ = true;
  search_.Take(reports, now);
  if (!search_.refused().ok()) return SetFailure(-1, search_.refused(), answers);
  if (!search_.settled() && options_.drained_within) {
    Duration before = std::min(*options_.drained_within / 10, kMostBefore);
    if (now >= started_ + *options_.drained_within - before) {
      return SetFailure(
          -1,
          Status(StatusCode::kTimeout,
                 "no cut through the ranks' collectives was found in time: " + search_.Missing()),
          answers);
    }
  }
  for (int rank : group) {
    QuestionAnswer answer;
    answer.cut.settled = search_.settled();
    answer.cut.targets = search_.targets();
    Reply(rank, std::move(answer), answers);
  }
}

void Meeting::AnswerJoin(const std::vector<int>& group, Answers* answers) {
  std::vector<CommReport> reports;
  for (int rank : group) {
    const std::vector<CommReport>& mine = At(rank).waiting->comms;
    reports.insert(reports.end(), mine.begin(), mine.end());
  }
  const std::vector<CommKey>& ended = search_.targets().ended;
  Result<std::vector<CommId>> ids = JoinComms(reports, std::set<CommKey>(ended.begin(), ended.end()));
  if (!ids.ok() && failure_.ok()) return SetFailure(-1, ids.status(), answers);
  for (int rank : group) {
    if (!ids.ok()) {
      Refuse(rank, ids.status(), answers);
      continue;
    }
    QuestionAnswer answer;
    answer.ids = *ids;
    Reply(rank, std::move(answer), answers);
  }
}

void Meeting::AnswerVote(const std::vector<int>& group, Answers* answers) {
  VotePoint point = At(group[0]).waiting->point;
  if (failure_.ok()) {
    Status ready = options_.before_go ? options_.before_go(point) : Status();
    if (!ready.ok()) return SetFailure(-1, ready, answers);
    if (point == options_.last) final_ = true;
    if (point == VotePoint::kDrained) gave_up_ = true;
  }
  if (point == VotePoint::kJoined) joined_ = true;
  for (int rank : group) {
    At(rank).passed = point;
    Reply(rank, QuestionAnswer(), answers);
  }
}

QuestionAnswer Meeting::ClaimFor(int rank, const Question& question) {
  QuestionAnswer answer;
  answer.number = question.number;
  answer.kind = question.kind;
  answer.status = failure_;
  if (!failure_.ok()) At(rank).going_back = true;
  if (!failure_.ok()) return answer;
  for (const Hash128& chunk : question.chunks) {
    answer.mine.push_back(claims_.emplace(chunk, rank).first->second == rank);
  }
  return answer;
}

}  // namespace stasis
