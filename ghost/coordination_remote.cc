#include "ghost/coordination_remote.h"

#include <algorithm>

namespace stasis {
namespace {

// Nothing tells that a signal waits for a frozen process.
constexpr std::chrono::milliseconds kOften(500);
// As much as the library's clocks can add to the time of day.
constexpr Duration kLongest = std::chrono::hours(24);

Status Ended() { return Status(StatusCode::kPeerDied, "the task has ended"); }
Status Gone() { return Status(StatusCode::kUnavailable, "the coordinator of the job is gone"); }

}  // namespace

Result<QuestionAnswer> RemoteCoordination::Ask(Question question, const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  if (lost_) return Gone();
  if (ended_) return Ended();
  question.number = next_++;
  waiting_[question.number].kind = question.kind;
  lock.unlock();
  send_(question.number, Encode(question));
  lock.lock();
  Status status = AwaitAnswer(lock, question.number, deadline);
  std::optional<QuestionAnswer> answer = std::move(waiting_[question.number].answer);
  waiting_.erase(question.number);
  RETURN_IF_ERROR(status);
  if (answer->status.ok()) return *std::move(answer);
  known_ = true;
  return std::move(answer->status);
}

Status RemoteCoordination::AwaitAnswer(std::unique_lock<std::mutex>& lock, uint32_t number,
                                       const Deadline& deadline) {
  const Deadline patience = deadline.never() ? deadline : Deadline::After(deadline.Remaining() + grace_);
  const Waiting& mine = waiting_[number];
  while (!mine.answer && !lost_) {
    if (!patience.Expired()) {
      WaitSome(lock, mine.kind, patience.Remaining());
    } else {
      lost_ = true;
      changed_.notify_all();
    }
  }
  if (mine.answer) return Status();
  // What has not been said completely is not acted upon.
  if (!mine.sent) return Gone();
  return Status(StatusCode::kPeerDied, "the coordinator of the job has gone, or does not answer");
}

void RemoteCoordination::WaitSome(std::unique_lock<std::mutex>& lock, QuestionKind kind, Duration left) {
  const bool calls = often_ && (kind == QuestionKind::kVote || kind == QuestionKind::kJoin);
  const bool heard = changed_.wait_for(lock, calls ? std::min<Duration>(left, kOften)
                                                   : std::min(left, kLongest)) == std::cv_status::no_timeout;
  if (heard || !calls) return;
  lock.unlock();
  often_();
  lock.lock();
}

Result<Coordination::CutAnswer> RemoteCoordination::Cut(const std::vector<CutReport>& mine,
                                                        const Deadline& deadline) {
  Question question;
  question.kind = QuestionKind::kCut;
  question.cut = mine;
  ASSIGN_OR_RETURN(QuestionAnswer answer, Ask(std::move(question), deadline));
  return std::move(answer.cut);
}

Status RemoteCoordination::Vote(VotePoint point, const Deadline& deadline) {
  Question question;
  question.kind = QuestionKind::kVote;
  question.point = point;
  return Ask(std::move(question), deadline).status();
}

Result<std::vector<CommId>> RemoteCoordination::Join(const std::vector<CommReport>& mine,
                                                     const Deadline& deadline) {
  Question question;
  question.kind = QuestionKind::kJoin;
  question.comms = mine;
  ASSIGN_OR_RETURN(QuestionAnswer answer, Ask(std::move(question), deadline));
  return std::move(answer.ids);
}

Result<std::vector<bool>> RemoteCoordination::ClaimSome(std::span<const Hash128> chunks) {
  Question question;
  question.kind = QuestionKind::kClaim;
  question.chunks.assign(chunks.begin(), chunks.end());
  ASSIGN_OR_RETURN(QuestionAnswer answer, Ask(std::move(question), Deadline::After(patience_)));
  if (answer.mine.size() != chunks.size())
    return Status(StatusCode::kCorrupt, "the coordinator has answered for other chunks than were asked for");
  return std::move(answer.mine);
}

Result<std::vector<bool>> RemoteCoordination::Claim(std::span<const Hash128> chunks) {
  std::vector<bool> mine;
  mine.reserve(chunks.size());
  for (size_t at = 0; at < chunks.size(); at += kMaxClaim) {
    const size_t count = std::min(kMaxClaim, chunks.size() - at);
    ASSIGN_OR_RETURN(std::vector<bool> some, ClaimSome(chunks.subspan(at, count)));
    mine.insert(mine.end(), some.begin(), some.end());
  }
  return mine;
}

void RemoteCoordination::Tell(std::unique_lock<std::mutex> lock, const Status& failure) {
  Question question;
  question.kind = QuestionKind::kFail;
  question.number = next_++;
  question.failure = failure;
  lock.unlock();
  send_(question.number, Encode(question));
}

void RemoteCoordination::Fail(const Status& status) {
  std::unique_lock lock(mutex_);
  going_back_ = true;
  const bool known = std::exchange(known_, false);
  if (!known && !lost_) Tell(std::move(lock), status);
}

void RemoteCoordination::Cancel() {
  std::unique_lock lock(mutex_);
  if (going_back_ || lost_ || std::exchange(known_, true)) return;
  Tell(std::move(lock), Status(StatusCode::kCancelled, "given up on request"));
}

void RemoteCoordination::TaskEnded() {
  std::unique_lock lock(mutex_);
  ended_ = true;
  // What does not wait finds out by itself, unless it is what has ended them.
  if (waiting_.empty() || lost_ || std::exchange(known_, true)) return;
  Tell(std::move(lock), Ended());
}

bool RemoteCoordination::lost() const {
  std::lock_guard lock(mutex_);
  return lost_;
}

void RemoteCoordination::Sent(uint32_t number) {
  std::lock_guard lock(mutex_);
  auto found = waiting_.find(number);
  if (found != waiting_.end()) found->second.sent = true;
}

Status RemoteCoordination::Answered(QuestionAnswer answer) {
  std::lock_guard lock(mutex_);
  auto found = waiting_.find(answer.number);
  // One that came too late for its deadline.
  if (lost_) return Status();
  if (found == waiting_.end() || found->second.answer || found->second.kind != answer.kind)
    return Status(StatusCode::kCorrupt, "an answer to no question");
  found->second.answer = std::move(answer);
  changed_.notify_all();
  return Status();
}

void RemoteCoordination::Lost() {
  std::lock_guard lock(mutex_);
  lost_ = true;
  changed_.notify_all();
}

}  // namespace stasis
