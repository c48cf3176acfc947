#include "ghost/cut.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace stasis {
namespace {

using std::chrono::milliseconds;

RankReport Rank(CommKey comm, int32_t size, int32_t rank, RankCounts issued) {
  return {comm, size, rank, "ncclCommInitRank", std::move(issued), false, 0};
}
RankReport Over(CommKey comm, int32_t size, int32_t rank) {
  RankReport report = Rank(comm, size, rank, {});
  report.over = true;
  return report;
}
CutReport Settled(std::vector<RankReport> ranks) {
  CutReport report;
  report.settled = true;
  report.ranks = std::move(ranks);
  return report;
}

class CutSearchTest : public testing::Test {
 protected:
  void Take(const std::vector<CutReport>& reports) { search_.Take(reports, now_); }
  RankCounts TargetOf(CommKey comm, int32_t rank) {
    for (const RankTarget& target : search_.targets().ranks)
      if (target.comm == comm && target.rank == rank) return target.issued;
    ADD_FAILURE() << "no target of rank " << rank;
    return {};
  }

  CutSearch search_;
  MonotonicTime now_{};
};

TEST_F(CutSearchTest, NobodyIsAtTheCut) {
  Take({});
  EXPECT_TRUE(search_.settled());
}

TEST_F(CutSearchTest, TheTargetIsWhatTheFarthestRankHasIssued) {
  Take({Settled({Rank(7, 3, 0, {4, {}, {}})}),
        Settled({Rank(7, 3, 1, {6, {}, {}}), Rank(7, 3, 2, {5, {}, {}})})});
  EXPECT_FALSE(search_.settled());
  for (int32_t rank : {0, 1, 2}) EXPECT_EQ(TargetOf(7, rank).collectives, 6u);
  EXPECT_EQ(search_.Missing(), "collective #5 of rank 0 of 3 (ncclCommInitRank) is missing (and 1 more)");
  Take({Settled({Rank(7, 3, 0, {6, {}, {}})}),
        Settled({Rank(7, 3, 1, {6, {}, {}}), Rank(7, 3, 2, {6, {}, {}})})});
  EXPECT_TRUE(search_.settled());
}

TEST_F(CutSearchTest, SendsAndReceivesRaiseEachOther) {
  Take({Settled({Rank(7, 2, 0, {0, {{1, 2}}, {}})}), Settled({Rank(7, 2, 1, {0, {{0, 1}}, {{0, 1}}})})});
  EXPECT_FALSE(search_.settled());
  EXPECT_EQ(TargetOf(7, 0).receives, (std::map<int32_t, uint64_t>{{1, 1}}));
  EXPECT_EQ(TargetOf(7, 0).sends, (std::map<int32_t, uint64_t>{{1, 2}}));
  EXPECT_EQ(TargetOf(7, 1).receives, (std::map<int32_t, uint64_t>{{0, 2}}));
  EXPECT_NE(search_.Missing().find("ncclRecv from rank 1 of rank 0 of 2"), std::string::npos);
}

TEST_F(CutSearchTest, WhatAProcessSaysIsMissingIsNamedFirst) {
  CutReport busy = Settled({Rank(7, 2, 0, {4, {}, {}})});
  busy.settled = false;
  busy.missing = {{12, "ncclAllReduce #5 of rank 0"}};
  Take({busy, Settled({Rank(7, 2, 1, {5, {}, {}})})});
  EXPECT_EQ(search_.Missing(), "ncclAllReduce #5 of rank 0 is missing");
  busy.missing = {{12, "ncclCommInitRank"}};
  Take({busy});
  EXPECT_EQ(search_.Missing(), "thread 12 is still in ncclCommInitRank");
}

TEST_F(CutSearchTest, MeetingsAreToldToAll) {
  CutReport making = Settled({});
  making.meetings = {9};
  CutReport other = Settled({});
  other.making = true;
  Take({making, other});
  EXPECT_FALSE(search_.settled());
  EXPECT_EQ(search_.targets().meetings, std::vector<CommKey>{9});
  EXPECT_TRUE(search_.targets().making);
  EXPECT_EQ(search_.Missing(), "a communicator is being made or ended");
  Take({Settled({}), Settled({})});
  EXPECT_TRUE(search_.settled());
  EXPECT_TRUE(search_.targets().meetings.empty());
}

TEST_F(CutSearchTest, AnIdThatOthersHaveUsedIsToldToItsMaker) {
  CutReport maker = Settled({}), user = Settled({});
  maker.meetings = {9};
  Take({maker, user});
  user.used = {9};
  Take({maker, user});
  EXPECT_EQ(search_.targets().used, std::vector<CommKey>{9});
  EXPECT_FALSE(search_.settled());
  Take({Settled({}), Settled({})});
  EXPECT_TRUE(search_.settled());
}

TEST_F(CutSearchTest, EverybodyHearsOfWhatOneHasEndedBeforeTheCut) {
  const std::vector<CutReport> first = {Settled({Rank(7, 2, 0, {})}), Settled({})};
  Take(first);
  EXPECT_FALSE(search_.settled());
  EXPECT_TRUE(search_.refused().ok());
  const std::vector<CutReport> second = {Settled({Rank(7, 2, 0, {})}), Settled({Over(7, 2, 1)})};
  Take(second);
  EXPECT_FALSE(search_.settled());
  EXPECT_EQ(search_.targets().ended, std::vector<CommKey>{7});
  Take(second);
  EXPECT_TRUE(search_.settled());
  EXPECT_EQ(search_.targets().ended, std::vector<CommKey>{7});
}

TEST_F(CutSearchTest, WhatAllHaveEndedIsForgotten) {
  Take({Settled({Over(7, 2, 0)}), Settled({Over(7, 2, 1)})});
  EXPECT_TRUE(search_.settled());
  EXPECT_TRUE(search_.targets().ended.empty());
}

TEST_F(CutSearchTest, ARankThatIsNowhereIsRefusedByName) {
  const std::vector<CutReport> reports = {Settled({Rank(7, 2, 0, {})}), Settled({})};
  Take(reports);
  EXPECT_TRUE(search_.refused().ok());
  Take(reports);
  EXPECT_FALSE(search_.settled());
  EXPECT_EQ(search_.refused().code(), StatusCode::kUnsupported);
  EXPECT_EQ(search_.refused().message(),
            "NCCL: ncclCommInitRank: rank 1 of 2 is in none of the processes that are paused");
}

TEST_F(CutSearchTest, ARankThatIsNotMadeYetIsWaitedFor) {
  CutReport making = Settled({});
  making.settled = false;
  making.meetings = {7};
  for (int i = 0; i < 3; ++i) {
    Take({Settled({Rank(7, 2, 0, {})}), making});
    EXPECT_FALSE(search_.settled());
    EXPECT_TRUE(search_.refused().ok());
  }
  Take({Settled({Rank(7, 2, 0, {})}), Settled({Rank(7, 2, 1, {})})});
  EXPECT_TRUE(search_.settled());
}

TEST_F(CutSearchTest, RanksWithDifferentWindowsAreNotAtTheCut) {
  std::vector<CutReport> reports = {Settled({Rank(7, 2, 0, {})}), Settled({Rank(7, 2, 1, {})})};
  reports[1].ranks[0].windows = 1;
  Take(reports);
  EXPECT_FALSE(search_.settled());
  EXPECT_EQ(search_.Missing(), "ncclCommWindowDeregister of rank 1 of 2 (ncclCommInitRank) is missing");
  reports[1].ranks[0].windows = 0;
  Take(reports);
  EXPECT_TRUE(search_.settled());
}

TEST_F(CutSearchTest, HeldCallsGoOnOnceWhenNothingMoves) {
  CutReport busy = Settled({});
  busy.settled = false;
  Take({busy});
  EXPECT_FALSE(search_.targets().admit_all);
  now_ += milliseconds(99);
  Take({busy});
  EXPECT_FALSE(search_.targets().admit_all);
  now_ += milliseconds(1);
  Take({busy});
  EXPECT_TRUE(search_.targets().admit_all);
  now_ += milliseconds(1);
  Take({busy});
  EXPECT_FALSE(search_.targets().admit_all);
  now_ += milliseconds(99);
  busy.events = 1;
  Take({busy});
  EXPECT_FALSE(search_.targets().admit_all);
}

CommReport Join(CommKey comm, int32_t size, std::vector<int32_t> ranks) {
  CommReport report = {comm, size, "ncclCommSplit", std::move(ranks), {}};
  if (report.ranks.front() == 0) report.id = std::string(kCommIdBytes, static_cast<char>('a' + comm));
  return report;
}

TEST(JoinCommsTest, GivesTheIdOfRankZero) {
  const std::vector<CommReport> reports = {Join(1, 3, {1}), Join(1, 3, {0, 2}), Join(2, 2, {0, 1})};
  const Result<std::vector<CommId>> ids = JoinComms(reports, {});
  ASSERT_TRUE(ids.ok()) << ids.status().ToString();
  ASSERT_EQ(ids->size(), 2u);
  EXPECT_EQ((*ids)[0].comm, 1u);
  EXPECT_EQ((*ids)[0].id, reports[1].id);
  EXPECT_EQ((*ids)[1].id, reports[2].id);
}

TEST(JoinCommsTest, NamesTheRanksThatAreMissing) {
  const std::vector<CommReport> reports = {Join(1, 4, {1}), Join(2, 1, {0})};
  EXPECT_EQ(JoinComms(reports, {}).status().message(), "NCCL: ncclCommSplit: ranks 0, 2, 3 of 4 are missing");
  EXPECT_EQ(JoinComms(reports, {}).status().code(), StatusCode::kFailedPrecondition);
  const Result<std::vector<CommId>> rest = JoinComms(reports, {1});
  ASSERT_TRUE(rest.ok());
  ASSERT_EQ(rest->size(), 1u);
  EXPECT_EQ((*rest)[0].comm, 2u);
}

TEST(JoinCommsTest, ProcessesHaveToAgree) {
  EXPECT_EQ(JoinComms(std::vector<CommReport>{Join(1, 2, {0}), Join(1, 2, {0})}, {}).status().message(),
            "NCCL: ncclCommSplit: two processes have rank 0 of 2");
  EXPECT_EQ(JoinComms(std::vector<CommReport>{Join(1, 2, {0}), Join(1, 3, {1})}, {}).status().message(),
            "NCCL: ncclCommSplit: processes say that it has 2 and 3 ranks");
}

}  // namespace
}  // namespace stasis
