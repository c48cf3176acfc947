#include "ghost/coordination_remote.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>

namespace stasis {
namespace {

// The other end: takes questions as they come.
class Coordinator {
 public:
  static constexpr std::chrono::milliseconds kGrace{200};
  explicit Coordinator(bool sends = true) : sends_(sends) {}

  RemoteCoordination& rank() { return rank_; }
  // The next question; waits for it.
  Question Next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !questions_.empty(); });
    Question question = std::move(questions_.front());
    questions_.pop_front();
    return question;
  }
  bool empty() {
    std::lock_guard lock(mutex_);
    return questions_.empty();
  }
  static QuestionAnswer To(const Question& question, Status status = Status()) {
    QuestionAnswer answer;
    answer.number = question.number;
    answer.kind = question.kind;
    answer.status = std::move(status);
    return answer;
  }
  void Answer(QuestionAnswer answer) {
    Result<QuestionAnswer> sent = DecodeQuestionAnswer(Encode(answer));
    ASSERT_TRUE(sent.ok());
    Status taken = rank_.Answered(*std::move(sent));
    EXPECT_TRUE(taken.ok()) << taken.ToString();
  }

 private:
  void Take(uint32_t number, const std::vector<std::byte>& bytes) {
    if (sends_) rank_.Sent(number);
    Result<Question> question = DecodeQuestion(bytes);
    ASSERT_TRUE(question.ok()) << question.status().ToString();
    EXPECT_EQ(question->number, number);
    std::lock_guard lock(mutex_);
    questions_.push_back(*std::move(question));
    changed_.notify_all();
  }

  const bool sends_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Question> questions_;
  RemoteCoordination rank_{[this](uint32_t number, std::vector<std::byte> bytes) { Take(number, bytes); },
                           std::chrono::minutes(1), kGrace};
};

Deadline Soon() { return Deadline::After(std::chrono::minutes(1)); }

std::future<Status> Voting(Coordinator& other, VotePoint point) {
  return std::async(std::launch::async, [&other, point] { return other.rank().Vote(point, Soon()); });
}

TEST(CoordinationRemoteTest, AVoteWaitsForItsAnswer) {
  Coordinator other;
  std::future<Status> vote = Voting(other, VotePoint::kHeld);
  Question question = other.Next();
  EXPECT_EQ(question.kind, QuestionKind::kVote);
  EXPECT_EQ(question.point, VotePoint::kHeld);
  other.Answer(Coordinator::To(question));
  EXPECT_TRUE(vote.get().ok());
  EXPECT_FALSE(other.rank().lost());
}

TEST(CoordinationRemoteTest, RoundsAndIdsComeBack) {
  Coordinator other;
  std::future<Result<Coordination::CutAnswer>> cut = std::async(std::launch::async, [&] {
    std::vector<CutReport> mine(2);
    mine[1].events = 7;
    return other.rank().Cut(mine, Soon());
  });
  Question round = other.Next();
  ASSERT_EQ(round.cut.size(), 2u);
  EXPECT_EQ(round.cut[1].events, 7u);
  QuestionAnswer targets = Coordinator::To(round);
  targets.cut.targets.meetings = {9};
  other.Answer(targets);
  Result<Coordination::CutAnswer> told = cut.get();
  ASSERT_TRUE(told.ok());
  EXPECT_FALSE(told->settled);
  EXPECT_EQ(told->targets.meetings, std::vector<CommKey>{9});

  std::future<Result<std::vector<CommId>>> join = std::async(std::launch::async, [&] {
    return other.rank().Join({{5, 3, "x", {1}, ""}}, Soon());
  });
  Question asked = other.Next();
  ASSERT_EQ(asked.comms.size(), 1u);
  QuestionAnswer ids = Coordinator::To(asked);
  ids.ids = {{5, std::string(kCommIdBytes, 'i')}};
  other.Answer(ids);
  Result<std::vector<CommId>> got = join.get();
  ASSERT_TRUE(got.ok());
  ASSERT_EQ(got->size(), 1u);
  EXPECT_EQ((*got)[0].comm, 5u);
}

TEST(CoordinationRemoteTest, AnswersFindTheirQuestionsInAnyOrder) {
  Coordinator other;
  constexpr size_t kThreads = 6;
  std::vector<std::future<bool>> claims;
  for (size_t i = 0; i < kThreads; ++i) {
    claims.push_back(std::async(std::launch::async, [&other, i] {
      std::vector<Hash128> chunks(i + 1, Hash128{i, 0});
      Result<std::vector<bool>> mine = other.rank().Claim(chunks);
      return mine.ok() && *mine == std::vector<bool>(i + 1, i % 2 == 0);
    }));
  }
  std::vector<Question> questions;
  for (size_t i = 0; i < kThreads; ++i) questions.push_back(other.Next());
  for (auto question = questions.rbegin(); question != questions.rend(); ++question) {
    QuestionAnswer answer = Coordinator::To(*question);
    answer.mine.assign(question->chunks.size(), question->chunks[0].high % 2 == 0);
    other.Answer(answer);
  }
  for (auto& claim : claims) EXPECT_TRUE(claim.get());
}

TEST(CoordinationRemoteTest, MoreChunksThanOneQuestionHolds) {
  Coordinator other;
  std::vector<Hash128> chunks(kMaxClaim + 3);
  std::future<Result<std::vector<bool>>> claim =
      std::async(std::launch::async, [&] { return other.rank().Claim(chunks); });
  for (size_t size : {kMaxClaim, size_t{3}}) {
    Question question = other.Next();
    ASSERT_EQ(question.chunks.size(), size);
    QuestionAnswer answer = Coordinator::To(question);
    answer.mine.assign(size, size == 3);
    other.Answer(answer);
  }
  Result<std::vector<bool>> mine = claim.get();
  ASSERT_TRUE(mine.ok());
  ASSERT_EQ(mine->size(), chunks.size());
  EXPECT_FALSE((*mine)[kMaxClaim - 1]);
  EXPECT_TRUE((*mine)[kMaxClaim]);
}

TEST(CoordinationRemoteTest, AnAnswerForOtherChunksIsNone) {
  Coordinator other;
  std::vector<Hash128> chunks(2);
  std::future<Result<std::vector<bool>>> claim =
      std::async(std::launch::async, [&] { return other.rank().Claim(chunks); });
  QuestionAnswer answer = Coordinator::To(other.Next());
  answer.mine = {true};
  other.Answer(answer);
  EXPECT_EQ(claim.get().status().code(), StatusCode::kCorrupt);
}

TEST(CoordinationRemoteTest, AnotherRanksFailureIsToldAsItIs) {
  Coordinator other;
  std::future<Status> vote = Voting(other, VotePoint::kDrained);
  other.Answer(Coordinator::To(other.Next(), Status(StatusCode::kPeerDied, "rank 3: the task has ended")));
  Status told = vote.get();
  EXPECT_EQ(told.ToString(), "PEER_DIED: rank 3: the task has ended");
  EXPECT_FALSE(other.rank().lost());
  // The coordinator knows it: it is not told so again. What fails afterwards is news.
  other.rank().Fail(told);
  EXPECT_TRUE(other.empty());
  other.rank().Fail(Status(StatusCode::kInternal, "and the undoing, too"));
  EXPECT_EQ(other.Next().failure.message(), "and the undoing, too");
}

TEST(CoordinationRemoteTest, AFailureHasNoAnswer) {
  Coordinator other;
  other.rank().Fail(Status(StatusCode::kTimeout, "late"));
  Question told = other.Next();
  EXPECT_EQ(told.kind, QuestionKind::kFail);
  EXPECT_EQ(told.failure.ToString(), "TIMEOUT: late");
  QuestionAnswer answer;
  answer.number = told.number;
  EXPECT_EQ(other.rank().Answered(answer).code(), StatusCode::kCorrupt);
}

TEST(CoordinationRemoteTest, AVoteThatWasCastIsInDoubtWhenTheConnectionEnds) {
  Coordinator other;
  std::future<Status> vote = Voting(other, VotePoint::kDrained);
  other.Next();
  other.rank().Lost();
  EXPECT_EQ(vote.get().code(), StatusCode::kPeerDied);
  EXPECT_TRUE(other.rank().lost());
  // From now on nothing is asked, or told, any more.
  EXPECT_EQ(other.rank().Vote(VotePoint::kHeld, Soon()).code(), StatusCode::kUnavailable);
  other.rank().Fail(Status(StatusCode::kTimeout, "late"));
  EXPECT_TRUE(other.empty());
}

TEST(CoordinationRemoteTest, AVoteThatDidNotGetOutIsNotInDoubt) {
  Coordinator other(false);
  std::future<Status> vote = Voting(other, VotePoint::kDrained);
  other.Next();
  other.rank().Lost();
  EXPECT_EQ(vote.get().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(other.rank().lost());
}

TEST(CoordinationRemoteTest, EveryQuestionEndsWithTheConnection) {
  Coordinator other;
  std::vector<Hash128> chunks(1);
  std::future<Result<std::vector<bool>>> claim =
      std::async(std::launch::async, [&] { return other.rank().Claim(chunks); });
  std::future<Status> vote = Voting(other, VotePoint::kDumped);
  other.Next();
  other.Next();
  other.rank().Lost();
  EXPECT_EQ(claim.get().status().code(), StatusCode::kPeerDied);
  EXPECT_EQ(vote.get().code(), StatusCode::kPeerDied);
}

TEST(CoordinationRemoteTest, AnswersToOtherQuestionsAreRefused) {
  Coordinator other;
  std::future<Status> vote = Voting(other, VotePoint::kDrained);
  Question question = other.Next();
  QuestionAnswer stray = Coordinator::To(question);
  stray.number += 1;
  EXPECT_EQ(other.rank().Answered(stray).code(), StatusCode::kCorrupt);
  stray.number = question.number;
  stray.kind = QuestionKind::kJoin;
  EXPECT_EQ(other.rank().Answered(stray).code(), StatusCode::kCorrupt);
  other.Answer(Coordinator::To(question));
  EXPECT_TRUE(vote.get().ok());
  EXPECT_EQ(other.rank().Answered(Coordinator::To(question)).code(), StatusCode::kCorrupt);
}

// A vote that is cast may have been counted already: only the coordinator can say that it was not.
TEST(CoordinationRemoteTest, GivingUpWaitsForWhatTheCoordinatorSays) {
  Coordinator other;
  std::future<Status> vote = Voting(other, VotePoint::kDrained);
  Question question = other.Next();
  other.rank().Cancel();
  other.rank().Cancel();
  Question told = other.Next();
  EXPECT_EQ(told.kind, QuestionKind::kFail);
  EXPECT_EQ(told.failure.code(), StatusCode::kCancelled);
  other.Answer(Coordinator::To(question, told.failure));
  EXPECT_EQ(vote.get().code(), StatusCode::kCancelled);
  other.rank().Fail(told.failure);
  EXPECT_TRUE(other.empty()) << "told once";
}

TEST(CoordinationRemoteTest, TheWayBackIsNotGivenUp) {
  Coordinator other;
  other.rank().Fail(Status(StatusCode::kTimeout, "late"));
  EXPECT_EQ(other.Next().kind, QuestionKind::kFail);
  other.rank().Cancel();
  EXPECT_TRUE(other.empty());
}

TEST(CoordinationRemoteTest, TheEndOfTheTaskIsToldToWhoWaitsForIt) {
  Coordinator other;
  std::future<Status> vote = Voting(other, VotePoint::kHeld);
  Question question = other.Next();
  other.rank().TaskEnded();
  Question told = other.Next();
  EXPECT_EQ(told.failure.ToString(), "PEER_DIED: the task has ended");
  other.Answer(Coordinator::To(question, told.failure));
  EXPECT_EQ(vote.get().code(), StatusCode::kPeerDied);
  EXPECT_FALSE(other.rank().lost());
  other.rank().Fail(told.failure);
  EXPECT_TRUE(other.empty()) << "told once";
}

TEST(CoordinationRemoteTest, NothingIsAskedForATaskThatHasEnded) {
  Coordinator other;
  other.rank().TaskEnded();
  EXPECT_TRUE(other.empty()) << "the operation may have ended it";
  EXPECT_EQ(other.rank().Vote(VotePoint::kHeld, Soon()).code(), StatusCode::kPeerDied);
  EXPECT_TRUE(other.empty());
  other.rank().Fail(Status(StatusCode::kPeerDied, "the task has ended"));
  EXPECT_EQ(other.Next().kind, QuestionKind::kFail);
}

TEST(CoordinationRemoteTest, WhoWaitsLooksAroundNowAndThen) {
  Coordinator other;
  std::promise<void> looked;
  std::atomic<int> looks{0};
  other.rank().WhileWaiting([&] {
    if (looks++ == 0) looked.set_value();
  });
  std::future<Status> vote = Voting(other, VotePoint::kHeld);
  Question question = other.Next();
  looked.get_future().wait();
  other.Answer(Coordinator::To(question));
  EXPECT_TRUE(vote.get().ok());
}

TEST(CoordinationRemoteTest, ADeadlineThatPassesIsTheEndOfTheCoordinator) {
  Coordinator other;
  const MonotonicTime before = Clock::Real().Now();
  Deadline now = Deadline::After(Duration::zero());
  EXPECT_EQ(other.rank().Vote(VotePoint::kDrained, now).code(), StatusCode::kPeerDied);
  EXPECT_GE(Clock::Real().Now() - before, Duration(Coordinator::kGrace));
  EXPECT_TRUE(other.rank().lost());
  // What comes later finds nobody who asks.
  EXPECT_TRUE(other.rank().Answered(Coordinator::To(other.Next())).ok());
}

}  // namespace
}  // namespace stasis
