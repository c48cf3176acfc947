#include "ghost/meet.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace stasis {
namespace {

template <typename T, typename Decode>
void ExpectOnlyTheWholeIsRead(const T& value, Decode decode) {
  std::vector<std::byte> whole = Encode(value);
  for (size_t size = 0; size < whole.size(); ++size) {
    std::span<const std::byte> part(whole.data(), size);
    EXPECT_EQ(decode(part).status().code(), StatusCode::kCorrupt) << size;
  }
  whole.push_back(std::byte{0});
  EXPECT_EQ(decode(whole).status().code(), StatusCode::kCorrupt);
}

Question Asked(QuestionKind kind) {
  Question question;
  question.number = 41;
  question.kind = kind;
  return question;
}

QuestionAnswer Answered(QuestionKind kind) {
  QuestionAnswer answer;
  answer.number = 41;
  answer.kind = kind;
  return answer;
}

Question Back(const Question& question) {
  Result<Question> got = DecodeQuestion(Encode(question));
  EXPECT_TRUE(got.ok()) << got.status().ToString();
  if (!got.ok()) return {};
  EXPECT_EQ(got->number, 41u);
  EXPECT_EQ(got->kind, question.kind);
  return *std::move(got);
}

QuestionAnswer Back(const QuestionAnswer& answer) {
  Result<QuestionAnswer> got = DecodeQuestionAnswer(Encode(answer));
  EXPECT_TRUE(got.ok()) << got.status().ToString();
  if (!got.ok()) return {};
  EXPECT_EQ(got->number, 41u);
  EXPECT_EQ(got->kind, answer.kind);
  return *std::move(got);
}

Question SomeCut() {
  Question cut = Asked(QuestionKind::kCut);
  cut.cut.resize(2);
  cut.cut[0].settled = true;
  cut.cut[0].ranks = {{77, 4, 2, "ncclCommInitRank", {5, {{0, 3}}, {{1, 7}}}}};
  cut.cut[1].events = 3;
  cut.cut[1].missing = {{31, "ncclAllReduce #6 of rank 2"}};
  return cut;
}

TEST(MeetTest, CutsComeBackWhole) {
  const Question sent = SomeCut();
  const Question got = Back(sent);
  ASSERT_EQ(got.cut.size(), 2u);
  EXPECT_TRUE(got.cut[0].settled);
  EXPECT_EQ(got.cut[0].ranks[0].issued, sent.cut[0].ranks[0].issued);
  EXPECT_EQ(got.cut[1].events, 3u);
  EXPECT_EQ(got.cut[1].missing[0].call, "ncclAllReduce #6 of rank 2");
  ExpectOnlyTheWholeIsRead(sent, DecodeQuestion);

  QuestionAnswer answer = Answered(QuestionKind::kCut);
  answer.cut.targets.ranks = {{77, 1, {6, {}, {{2, 4}}}}};
  answer.cut.targets.admit_all = true;
  EXPECT_FALSE(Back(answer).cut.settled);
  EXPECT_EQ(Back(answer).cut.targets.ranks[0].issued, answer.cut.targets.ranks[0].issued);
  EXPECT_TRUE(Back(answer).cut.targets.admit_all);
  ExpectOnlyTheWholeIsRead(answer, DecodeQuestionAnswer);
}

TEST(MeetTest, VotesComeBackWhole) {
  for (int i = 0; i <= static_cast<int>(VotePoint::kJoined); ++i) {
    VotePoint point = static_cast<VotePoint>(i);
    Question sent = Asked(QuestionKind::kVote);
    sent.point = point;
    EXPECT_EQ(Back(sent).point, point);
    ExpectOnlyTheWholeIsRead(sent, DecodeQuestion);
  }
  EXPECT_TRUE(Back(Answered(QuestionKind::kVote)).status.ok());
  ExpectOnlyTheWholeIsRead(Answered(QuestionKind::kVote), DecodeQuestionAnswer);
}

TEST(MeetTest, JoinsComeBackWhole) {
  Question sent = Asked(QuestionKind::kJoin);
  sent.comms = {{5, 3, "ncclCommSplit", {0, 2}, std::string(kCommIdBytes, 'x')}};
  ASSERT_EQ(Back(sent).comms.size(), 1u);
  EXPECT_EQ(Back(sent).comms[0].id, sent.comms[0].id);
  ExpectOnlyTheWholeIsRead(sent, DecodeQuestion);

  QuestionAnswer answer = Answered(QuestionKind::kJoin);
  answer.ids = {{5, std::string(kCommIdBytes, 'x')}, {6, std::string(kCommIdBytes, 'y')}};
  ASSERT_EQ(Back(answer).ids.size(), 2u);
  EXPECT_EQ(Back(answer).ids[1].comm, 6u);
  EXPECT_EQ(Back(answer).ids[1].id, answer.ids[1].id);
  ExpectOnlyTheWholeIsRead(answer, DecodeQuestionAnswer);
}

TEST(MeetTest, ClaimsComeBackWhole) {
  Question sent = Asked(QuestionKind::kClaim);
  sent.chunks = {{1, 2}, {3, 4}, {5, 6}};
  EXPECT_EQ(Back(sent).chunks, sent.chunks);
  ExpectOnlyTheWholeIsRead(sent, DecodeQuestion);
  sent.chunks.resize(kMaxClaim);
  EXPECT_EQ(Back(sent).chunks.size(), kMaxClaim);
  sent.chunks.emplace_back();
  EXPECT_EQ(DecodeQuestion(Encode(sent)).status().code(), StatusCode::kCorrupt);

  QuestionAnswer answer = Answered(QuestionKind::kClaim);
  answer.mine = {true, false, true};
  EXPECT_EQ(Back(answer).mine, answer.mine);
  ExpectOnlyTheWholeIsRead(answer, DecodeQuestionAnswer);
  answer.mine.resize(kMaxClaim + 1);
  EXPECT_EQ(DecodeQuestionAnswer(Encode(answer)).status().code(), StatusCode::kCorrupt);
}

TEST(MeetTest, FailuresComeBackWhole) {
  Question sent = Asked(QuestionKind::kFail);
  sent.failure = Status(StatusCode::kTimeout, "process 12 does not stand still");
  EXPECT_EQ(Back(sent).failure.ToString(), sent.failure.ToString());
  ExpectOnlyTheWholeIsRead(sent, DecodeQuestion);
  sent.failure = Status();
  EXPECT_EQ(DecodeQuestion(Encode(sent)).status().code(), StatusCode::kCorrupt);

  for (QuestionKind kind :
       {QuestionKind::kCut, QuestionKind::kVote, QuestionKind::kJoin, QuestionKind::kClaim}) {
    QuestionAnswer answer = Answered(kind);
    answer.status = Status(StatusCode::kPeerDied, "rank 3: the task has ended");
    EXPECT_EQ(Back(answer).status.ToString(), answer.status.ToString());
    ExpectOnlyTheWholeIsRead(answer, DecodeQuestionAnswer);
  }
  EXPECT_EQ(DecodeQuestionAnswer(Encode(Answered(QuestionKind::kFail))).status().code(),
            StatusCode::kCorrupt);
}

TEST(MeetTest, ALongReasonIsCutOff) {
  Question sent = Asked(QuestionKind::kFail);
  sent.failure = Status(StatusCode::kInternal, std::string(1 << 20, 'x'));
  EXPECT_EQ(Back(sent).failure.code(), StatusCode::kInternal);
  EXPECT_LT(Back(sent).failure.message().size(), size_t{1} << 20);
}

// Each byte with each of its values: what is read is what would be written, so nothing has two spellings.
TEST(MeetTest, WhatIsReadIsWhatIsWritten) {
  Question join = Asked(QuestionKind::kJoin);
  join.comms = {{5, 3, "x", {1, 2}, ""}};
  for (const Question& question : {SomeCut(), join}) {
    std::vector<std::byte> bytes = Encode(question);
    for (std::byte& byte : bytes) {
      const std::byte before = byte;
      for (int value = 0; value < 256; ++value) {
        byte = static_cast<std::byte>(value);
        Result<Question> got = DecodeQuestion(bytes);
        if (!got.ok()) continue;
        EXPECT_EQ(Encode(*got), bytes);
      }
      byte = before;
    }
  }
}

}  // namespace
}  // namespace stasis
