#include "ghost/coordination.h"

#include <gtest/gtest.h>

namespace stasis {
namespace {

constexpr CommKey kComm = 5;

CutReport ReportOf(int32_t rank, uint64_t collectives) {
  CutReport report;
  report.settled = true;
  report.events = static_cast<uint32_t>(collectives);
  report.ranks = {{kComm, 2, rank, "ncclCommInitRank", {collectives, {}, {}}, false, 0}};
  return report;
}

TEST(AloneCoordinationTest, ARankIsToldWhatAnotherProcessHasIssued) {
  AloneCoordination alone;
  std::vector<CutReport> reports = {ReportOf(0, 7), ReportOf(1, 6)};
  reports[1].settled = false;
  Result<Coordination::CutAnswer> answer = alone.Cut(reports, Deadline::Never());
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  EXPECT_FALSE(answer->settled);
  bool told = false;
  for (const RankTarget& target : answer->targets.ranks)
    told = told || (target.comm == kComm && target.rank == 1 && target.issued.collectives == 7);
  EXPECT_TRUE(told);
  reports = {ReportOf(0, 7), ReportOf(1, 7)};
  // Settled only when each has issued what it was told; a round or two later.
  for (int round = 0; round < 3 && !answer->settled; ++round) {
    answer = alone.Cut(reports, Deadline::Never());
    ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  }
  EXPECT_TRUE(answer->settled);
}

TEST(AloneCoordinationTest, WhatIsMissingAtTheDeadlineIsNamed) {
  AloneCoordination alone;
  std::vector<CutReport> reports = {ReportOf(0, 7), ReportOf(1, 6)};
  reports[1].settled = false;
  const Status status = alone.Cut(reports, Deadline::After(Duration::zero())).status();
  EXPECT_EQ(status.code(), StatusCode::kTimeout);
  EXPECT_NE(status.message().find("rank 1"), std::string_view::npos) << status.message();
}

TEST(AloneCoordinationTest, ProcessesThatShareNothingAreSettledAtOnce) {
  AloneCoordination alone;
  CutReport idle;
  idle.settled = true;
  Result<Coordination::CutAnswer> answer = alone.Cut({idle, idle}, Deadline::Never());
  ASSERT_TRUE(answer.ok());
  EXPECT_TRUE(answer->settled);
  answer = alone.Cut({}, Deadline::Never());
  ASSERT_TRUE(answer.ok());
  EXPECT_TRUE(answer->settled);
}

TEST(AloneCoordinationTest, CommunicatorsAreJoinedByTheIdOfRankZero) {
  AloneCoordination alone;
  const std::string id(kCommIdBytes, 'x');
  const CommReport first = {kComm, 2, "ncclCommInitRank", {0}, id},
                   second = {kComm, 2, "ncclCommInitRank", {1}, ""};
  Result<std::vector<CommId>> ids = alone.Join({second, first}, Deadline::Never());
  ASSERT_TRUE(ids.ok()) << ids.status().ToString();
  ASSERT_EQ(ids->size(), 1u);
  EXPECT_EQ((*ids)[0].comm, kComm);
  EXPECT_EQ((*ids)[0].id, id);
  EXPECT_EQ(alone.Join({second}, Deadline::Never()).status().code(), StatusCode::kFailedPrecondition);
}

TEST(AloneCoordinationTest, AllChunksAreItsOwn) {
  AloneCoordination alone;
  const std::vector<Hash128> chunks(3);
  Result<std::vector<bool>> mine = alone.Claim(chunks);
  ASSERT_TRUE(mine.ok());
  EXPECT_EQ(*mine, std::vector<bool>(3, true));
  EXPECT_TRUE(alone.Vote(VotePoint::kDrained, Deadline::Never()).ok());
}

}  // namespace
}  // namespace stasis
