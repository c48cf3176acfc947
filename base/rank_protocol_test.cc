#include "base/rank_protocol.h"

#include <gtest/gtest.h>

namespace stasis {
namespace {

template <typename T, typename Decode>
void ExpectEveryPrefixRefused(const T& value, Decode decode) {
  const std::vector<std::byte> whole = Encode(value);
  for (size_t size = 0; size < whole.size(); ++size) {
    const std::vector<std::byte> part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(decode(part).ok()) << size;
  }
}

CutReport SomeReport() {
  CutReport report;
  report.settled = true;
  report.events = 9;
  report.ranks = {{77, 4, 2, "ncclCommInitRank", {5, {{0, 3}, {3, 1}}, {{1, 7}}}, true, 2}};
  report.meetings = {12};
  report.making = true;
  report.used = {14};
  report.missing = {{31, "ncclAllReduce #6 of rank 2"}};
  return report;
}

TEST(RankProtocolTest, ReportsComeBackWhole) {
  const CutReport sent = SomeReport();
  Result<CutReport> got = DecodeCutReport(Encode(sent));
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_TRUE(got->settled);
  EXPECT_EQ(got->events, 9u);
  ASSERT_EQ(got->ranks.size(), 1u);
  EXPECT_EQ(got->ranks[0].comm, 77u);
  EXPECT_EQ(got->ranks[0].size, 4);
  EXPECT_EQ(got->ranks[0].rank, 2);
  EXPECT_EQ(got->ranks[0].made_by, "ncclCommInitRank");
  EXPECT_EQ(got->ranks[0].issued, sent.ranks[0].issued);
  EXPECT_TRUE(got->ranks[0].over);
  EXPECT_EQ(got->ranks[0].windows, 2u);
  EXPECT_EQ(got->meetings, sent.meetings);
  EXPECT_TRUE(got->making);
  EXPECT_EQ(got->used, sent.used);
  ASSERT_EQ(got->missing.size(), 1u);
  EXPECT_EQ(got->missing[0].call, "ncclAllReduce #6 of rank 2");
  ExpectEveryPrefixRefused(sent, DecodeCutReport);
}

TEST(RankProtocolTest, RanksThatCannotBeAreRefused) {
  CutReport report = SomeReport();
  report.ranks[0].rank = 4;
  EXPECT_EQ(DecodeCutReport(Encode(report)).status().code(), StatusCode::kCorrupt);
  report = SomeReport();
  report.ranks[0].issued.sends[4] = 1;
  EXPECT_EQ(DecodeCutReport(Encode(report)).status().code(), StatusCode::kCorrupt);
  report = SomeReport();
  report.ranks[0].issued.receives[-1] = 1;
  EXPECT_EQ(DecodeCutReport(Encode(report)).status().code(), StatusCode::kCorrupt);
}

TEST(RankProtocolTest, TargetsComeBackWhole) {
  CutTargets sent;
  sent.ranks = {{77, 1, {6, {}, {{2, 4}}}}};
  sent.meetings = {1, 2};
  sent.used = {5};
  sent.ended = {3};
  sent.admit_all = true;
  Result<CutTargets> got = DecodeCutTargets(Encode(sent));
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  ASSERT_EQ(got->ranks.size(), 1u);
  EXPECT_EQ(got->ranks[0].issued, sent.ranks[0].issued);
  EXPECT_EQ(got->meetings, sent.meetings);
  EXPECT_EQ(got->used, sent.used);
  EXPECT_EQ(got->ended, sent.ended);
  EXPECT_TRUE(got->admit_all);
  EXPECT_FALSE(got->making);
  ExpectEveryPrefixRefused(sent, DecodeCutTargets);

  const TaskCut round = {1500, 20, sent};
  Result<TaskCut> got_round = DecodeTaskCut(Encode(round));
  ASSERT_TRUE(got_round.ok()) << got_round.status().ToString();
  EXPECT_EQ(got_round->deadline_ms, 1500u);
  EXPECT_EQ(got_round->quiet_ms, 20u);
  EXPECT_EQ(got_round->targets.ranks[0].issued, sent.ranks[0].issued);
  EXPECT_EQ(got_round->targets.ended, sent.ended);
  ExpectEveryPrefixRefused(round, DecodeTaskCut);
}

TEST(RankProtocolTest, OnlyTheProcessOfRankZeroGivesAnId) {
  std::vector<CommReport> sent = {{5, 3, "ncclCommSplit", {0, 2}, std::string(kCommIdBytes, 'x')},
                                  {6, 3, "ncclCommSplit", {1}, ""}};
  Result<std::vector<CommReport>> got = DecodeCommReports(Encode(sent));
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  ASSERT_EQ(got->size(), 2u);
  EXPECT_EQ((*got)[0].ranks, sent[0].ranks);
  EXPECT_EQ((*got)[0].id, sent[0].id);
  ExpectEveryPrefixRefused(sent, DecodeCommReports);
  sent[1].id = sent[0].id;
  EXPECT_EQ(DecodeCommReports(Encode(sent)).status().code(), StatusCode::kCorrupt);
}

TEST(RankProtocolTest, IdsHaveTheirSize) {
  CommRejoin sent = {1500, {{5, std::string(kCommIdBytes, 'x')}}};
  Result<CommRejoin> got = DecodeCommRejoin(Encode(sent));
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  EXPECT_EQ(got->deadline_ms, 1500u);
  ASSERT_EQ(got->ids.size(), 1u);
  ExpectEveryPrefixRefused(sent, DecodeCommRejoin);
  sent.ids[0].id.pop_back();
  EXPECT_EQ(DecodeCommRejoin(Encode(sent)).status().code(), StatusCode::kCorrupt);
}

}  // namespace
}  // namespace stasis
