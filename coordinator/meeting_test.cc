#include "coordinator/meeting.h"

#include <gtest/gtest.h>

namespace stasis {
namespace {

class MeetingTest : public testing::Test {
 protected:
  static constexpr int kRanks = 3;

  Meeting Make() {
    Meeting::Options options;
    options.ranks = kRanks;
    options.drained_within = std::chrono::seconds(10);
    options.clock = &clock_;
    options.last = VotePoint::kHeld;
    return Meeting(options);
  }
  static Question Vote(VotePoint point, uint32_t number = 1) {
    Question question;
    question.number = number;
    question.kind = QuestionKind::kVote;
    question.point = point;
    return question;
  }
  static Question Kind(QuestionKind kind) {
    Question question;
    question.kind = kind;
    return question;
  }
  static Question Cut(bool settled, uint32_t events = 0) {
    Question question = Kind(QuestionKind::kCut);
    question.cut.resize(1);
    question.cut[0].settled = settled;
    question.cut[0].events = events;
    return question;
  }
  // One rank of a communicator of two that has issued so many collectives.
  static Question Issued(int rank, uint64_t collectives) {
    Question question = Cut(true);
    question.cut[0].ranks.resize(1);
    RankReport& report = question.cut[0].ranks[0];
    report.comm = 77;
    report.size = 2;
    report.rank = rank;
    report.made_by = "ncclCommInitRank";
    report.issued.collectives = collectives;
    return question;
  }
  static Question Failure(StatusCode code, const char* message) {
    Question question = Kind(QuestionKind::kFail);
    question.failure = Status(code, message);
    return question;
  }
  static Question Claim(std::vector<Hash128> chunks) {
    Question question = Kind(QuestionKind::kClaim);
    question.chunks = std::move(chunks);
    return question;
  }
  static void AllPass(Meeting& meeting, const Question& question) {
    for (int rank = 0; rank < kRanks; ++rank) {
      Meeting::Answers answers = meeting.Take(rank, question);
      ASSERT_EQ(answers.size(), rank + 1 == kRanks ? 3u : 0u);
      for (const Meeting::Answer& answer : answers) EXPECT_TRUE(answer.answer.status.ok());
    }
  }

  ManualClock clock_;
};

TEST_F(MeetingTest, AVoteIsAnsweredWhenAllHaveAsked) {
  Meeting meeting = Make();
  EXPECT_TRUE(meeting.Take(0, Vote(VotePoint::kDrained, 5)).empty());
  EXPECT_TRUE(meeting.Take(2, Vote(VotePoint::kDrained, 6)).empty());
  Meeting::Answers answers = meeting.Take(1, Vote(VotePoint::kDrained, 7));
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(answers[0].answer.number, 5u);
  EXPECT_EQ(answers[1].answer.number, 7u);
  EXPECT_EQ(meeting.passed(2), VotePoint::kDrained);
}

TEST_F(MeetingTest, AllAreToldTheSameTargets) {
  Meeting meeting = Make();
  meeting.Take(0, Issued(0, 4));
  meeting.Take(1, Issued(1, 6));
  Meeting::Answers answers = meeting.Take(2, Cut(true));
  ASSERT_EQ(answers.size(), 3u);
  for (const Meeting::Answer& answer : answers) {
    EXPECT_FALSE(answer.answer.cut.settled);
    ASSERT_EQ(answer.answer.cut.targets.ranks.size(), 2u);
    EXPECT_EQ(answer.answer.cut.targets.ranks[0].issued.collectives, 6u);
  }
  meeting.Take(0, Issued(0, 6));
  meeting.Take(1, Issued(1, 6));
  EXPECT_TRUE(meeting.Take(2, Cut(true))[0].answer.cut.settled);
}

TEST_F(MeetingTest, OneMayLookForTheCutAgainWhileOthersHaveDrained) {
  Meeting meeting = Make();
  for (int rank = 0; rank < kRanks; ++rank) meeting.Take(rank, Cut(true));
  meeting.Take(0, Vote(VotePoint::kDrained));
  meeting.Take(1, Vote(VotePoint::kDrained));
  Meeting::Answers again = meeting.Take(2, Cut(true));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].rank, 2);
  EXPECT_TRUE(again[0].answer.cut.settled);
  EXPECT_EQ(meeting.Take(2, Vote(VotePoint::kDrained)).size(), 3u);
}

TEST_F(MeetingTest, WhatIsMissingIsSaidShortlyBeforeTheEnd) {
  Meeting meeting = Make();
  clock_.Advance(std::chrono::milliseconds(9200));
  meeting.Take(0, Issued(0, 4));
  meeting.Take(1, Issued(1, 6));
  Meeting::Answers answers = meeting.Take(2, Cut(true));
  ASSERT_EQ(answers.size(), 3u);
  EXPECT_EQ(answers[0].answer.status.code(), StatusCode::kTimeout);
  EXPECT_NE(meeting.failure().message().find("collective #5 of rank 0"), std::string_view::npos)
      << meeting.failure().ToString();
}

TEST_F(MeetingTest, WhoDoesNotComeIsNamed) {
  Meeting meeting = Make();
  meeting.Take(1, Vote(VotePoint::kDrained));
  clock_.Advance(std::chrono::seconds(10));
  EXPECT_FALSE(meeting.deadline().Expired());
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_TRUE(meeting.deadline().Expired());
  Meeting::Answers answers = meeting.TimeOver();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(meeting.failure().message(), "ranks 0 and 2 do not stand still in time");
  EXPECT_TRUE(meeting.deadline().never());
}

TEST_F(MeetingTest, AFailureIsEachOnesNextAnswerAndOnlyThat) {
  Meeting meeting = Make();
  AllPass(meeting, Vote(VotePoint::kDrained));
  meeting.Take(0, Vote(VotePoint::kHeld));
  Meeting::Answers answers = meeting.Take(1, Failure(StatusCode::kDriver, "no"));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].rank, 0);
  EXPECT_EQ(answers[0].answer.status.message(), "rank 1: no");
  EXPECT_TRUE(meeting.Take(0, Kind(QuestionKind::kJoin)).empty());
  EXPECT_TRUE(meeting.Take(1, Kind(QuestionKind::kJoin)).empty());
  EXPECT_FALSE(meeting.Take(2, Vote(VotePoint::kHeld))[0].answer.status.ok());
  EXPECT_EQ(meeting.Take(2, Kind(QuestionKind::kJoin)).size(), 3u);
  AllPass(meeting, Vote(VotePoint::kJoined));
  EXPECT_EQ(meeting.failed_rank(), 1);
}

TEST_F(MeetingTest, WithoutARankThatIsGoneNobodyGoesBack) {
  Meeting meeting = Make();
  AllPass(meeting, Vote(VotePoint::kDrained));
  meeting.Take(0, Vote(VotePoint::kHeld));
  EXPECT_EQ(meeting.Ended(1, Status(StatusCode::kPeerDied, "gone")).size(), 1u);
  Meeting::Answers join = meeting.Take(0, Kind(QuestionKind::kJoin));
  ASSERT_EQ(join.size(), 1u);
  EXPECT_EQ(join[0].answer.status.message(), "rank 1 cannot go back: gone");
  EXPECT_EQ(meeting.Take(2, Vote(VotePoint::kHeld))[0].answer.status.message(), "rank 1: gone");
  EXPECT_FALSE(meeting.Take(2, Kind(QuestionKind::kJoin))[0].answer.status.ok());
  EXPECT_EQ(meeting.failed_rank(), 1);
}

TEST_F(MeetingTest, BeingCancelledWhileGoingBackHindersNobody) {
  Meeting meeting = Make();
  AllPass(meeting, Vote(VotePoint::kDrained));
  meeting.Fail(Status(StatusCode::kCancelled, "given up"));
  for (int rank = 0; rank < kRanks; ++rank) meeting.Take(rank, Failure(StatusCode::kCancelled, "too"));
  AllPass(meeting, Kind(QuestionKind::kJoin));
}

TEST_F(MeetingTest, OneChunkIsOneRanks) {
  Meeting meeting = Make();
  EXPECT_EQ(meeting.Take(1, Claim({{1, 1}, {2, 2}}))[0].answer.mine, (std::vector<bool>{true, true}));
  EXPECT_EQ(meeting.Take(0, Claim({{2, 2}, {3, 3}}))[0].answer.mine, (std::vector<bool>{false, true}));
  EXPECT_EQ(meeting.Take(1, Claim({{2, 2}, {3, 3}}))[0].answer.mine, (std::vector<bool>{true, false}));
  meeting.Take(2, Vote(VotePoint::kDrained));
  meeting.Take(2, Failure(StatusCode::kDriver, "no"));
  EXPECT_EQ(meeting.Take(0, Claim({{4, 4}}))[0].answer.status.message(), "rank 2: no");
}

TEST_F(MeetingTest, AClaimBesideAQuestionIsAnswered) {
  Meeting meeting = Make();
  EXPECT_TRUE(meeting.Take(0, Vote(VotePoint::kDrained)).empty());
  EXPECT_EQ(meeting.Take(0, Claim({{1, 1}})).size(), 1u);
}

TEST_F(MeetingTest, RanksAtDifferentPlacesAreAFault) {
  Meeting meeting = Make();
  AllPass(meeting, Vote(VotePoint::kDrained));
  meeting.Take(0, Vote(VotePoint::kHeld));
  meeting.Take(1, Kind(QuestionKind::kJoin));
  EXPECT_EQ(meeting.Take(2, Vote(VotePoint::kHeld)).size(), 3u);
  EXPECT_EQ(meeting.failure().code(), StatusCode::kInternal);
}

TEST_F(MeetingTest, WhatIsDoneIsNotGivenUp) {
  Meeting meeting = Make();
  AllPass(meeting, Vote(VotePoint::kDrained));
  AllPass(meeting, Vote(VotePoint::kHeld));
  EXPECT_TRUE(meeting.Fail(Status(StatusCode::kCancelled, "too late")).empty());
  EXPECT_TRUE(meeting.failure().ok());
}

TEST_F(MeetingTest, ACommunicatorThatLacksARankIsNotMadeAgain) {
  Meeting meeting = Make();
  Question join = Kind(QuestionKind::kJoin);
  join.comms.resize(1);
  join.comms[0].comm = 77;
  join.comms[0].size = 2;
  join.comms[0].made_by = "ncclCommInitRank";
  join.comms[0].ranks = {0};
  join.comms[0].id = std::string(kCommIdBytes, 'x');
  meeting.Take(0, join);
  meeting.Take(1, Kind(QuestionKind::kJoin));
  EXPECT_FALSE(meeting.Take(2, Kind(QuestionKind::kJoin))[0].answer.status.ok());
  EXPECT_EQ(meeting.failure().code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace stasis
