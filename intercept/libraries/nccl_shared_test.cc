// Communicators that reach other processes, as one of those processes sees them.
#include <nccl.h>

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "intercept/libraries/nccl_testing.h"

namespace stasis::nccl {
namespace {

// Another process, as its reports show it.
struct Other {
  Other(CommKey key, int32_t size, int32_t rank) {
    report.settled = true;
    report.ranks = {{key, size, rank, "ncclCommInitRank", {}}};
  }
  RankReport& rank() { return report.ranks[0]; }
  CutReport report;
};

class NcclSharedTest : public NcclLibraryTest {
 protected:
  void TearDown() override {
    if (comms_[0] != nullptr) {
      EXPECT_EQ(::ncclCommAbort(comms_[0]), ncclSuccess);
    }
    NcclLibraryTest::TearDown();
  }
  // Rank 0 of two is here.
  void Init(int rank = 0) {
    InitShared(2, rank);
    Meet(1 - rank);
  }
  void Meet(int rank) {
    other_ = std::make_unique<Other>(key_, 2, rank);
    others_ = [this](const CutTargets&) { return std::vector<CutReport>{other_->report}; };
  }
  static std::string Text(const std::string& id) { return id.c_str(); }
  Result<std::vector<CommReport>> Report() {
    const libraries::LibraryWork work;
    return libraries::ReportComms();
  }
  Status Rejoin(std::vector<CommId> ids, milliseconds limit = seconds(20)) {
    const libraries::LibraryWork work;
    return libraries::RejoinLibraries({static_cast<uint32_t>(limit.count()), std::move(ids)});
  }
  // With ids of its own making and the other rank coming to each.
  Status RejoinWithOther() {
    const libraries::LibraryWork work;
    ASSIGN_OR_RETURN(const std::vector<CommReport> comms, libraries::ReportComms());
    std::vector<CommId> ids;
    for (const CommReport& comm : comms) {
      Fake().Arrive(Text(comm.id), 1);
      ids.push_back({comm.comm, comm.id});
    }
    return libraries::RejoinLibraries({20000, std::move(ids)});
  }
  template <typename Function>
  void OnControlThread(Function f) {
    std::thread(f).join();
  }

  std::unique_ptr<Other> other_;
};

TEST_F(NcclSharedTest, IsGivenUpAndMadeAgainWithAllProcesses) {
  Init();
  for (int cycle = 0; cycle < 3; ++cycle) {
    OnControlThread([this] {
      EXPECT_STATUS_OK(Stop());
      EXPECT_FALSE(libraries::LibrariesNeedRejoin());
      EXPECT_STATUS_OK(GiveUp());
      EXPECT_TRUE(Fake().Comms().empty());
      EXPECT_TRUE(libraries::LibrariesNeedRejoin());
      // Nothing that this process could do alone.
      EXPECT_STATUS_OK(Rebuild());
      EXPECT_TRUE(Fake().Comms().empty());
      const Result<std::vector<CommReport>> comms = libraries::ReportComms();
      ASSERT_TRUE(comms.ok());
      ASSERT_EQ(comms->size(), 1u);
      EXPECT_EQ((*comms)[0].size, 2);
      EXPECT_EQ((*comms)[0].ranks, std::vector<int32_t>{0});
      EXPECT_EQ((*comms)[0].made_by, "ncclCommInitRank");
      EXPECT_EQ((*comms)[0].id.size(), kCommIdBytes);
      EXPECT_STATUS_OK(RejoinWithOther());
      EXPECT_FALSE(libraries::LibrariesNeedRejoin());
      Open();
    });
    const std::vector<ncclComm_t> real = Fake().Comms();
    ASSERT_EQ(real.size(), 1u);
    EXPECT_EQ(real[0]->size, 2);
    EXPECT_EQ(Reduce(comms_[0]), ncclSuccess);
    ++other_->rank().issued.collectives;
  }
}

TEST_F(NcclSharedTest, TheProcessOfAnotherRankIsGivenTheId) {
  Init(/*rank=*/1);
  OnControlThread([this] {
    EXPECT_STATUS_OK(Stop());
    EXPECT_STATUS_OK(GiveUp());
    const Result<std::vector<CommReport>> comms = libraries::ReportComms();
    ASSERT_TRUE(comms.ok());
    ASSERT_EQ(comms->size(), 1u);
    EXPECT_TRUE((*comms)[0].id.empty());
    Fake().Arrive("an id from elsewhere", 1);
    std::string id = "an id from elsewhere";
    id.resize(kCommIdBytes);
    EXPECT_STATUS_OK(Rejoin({{(*comms)[0].comm, id}}));
    Open();
  });
  ASSERT_EQ(Fake().Comms().size(), 1u);
  EXPECT_EQ(Fake().Comms()[0]->id, "an id from elsewhere");
  EXPECT_EQ(Fake().Comms()[0]->rank, 1);
}

TEST_F(NcclSharedTest, WhoDoesNotComeIsNamedAtTheDeadlineAndItCanBeTriedAgain) {
  Init();
  OnControlThread([this] {
    EXPECT_STATUS_OK(Stop());
    EXPECT_STATUS_OK(GiveUp());
    for (int attempt = 0; attempt < 2; ++attempt) {
      const Result<std::vector<CommReport>> comms = libraries::ReportComms();
      ASSERT_TRUE(comms.ok());
      const Status status = Rejoin({{(*comms)[0].comm, (*comms)[0].id}}, milliseconds(50));
      EXPECT_EQ(status.code(), StatusCode::kTimeout);
      EXPECT_EQ(
          status.message(),
          "NCCL: ncclCommInitRank: rank 0 of 2 was not made again in time: not all of ranks 1, in other "
          "processes, came");
      EXPECT_TRUE(Fake().Comms().empty());
      EXPECT_TRUE(libraries::LibrariesNeedRejoin());
    }
    EXPECT_STATUS_OK(RejoinWithOther());
    Open();
  });
  EXPECT_EQ(Reduce(comms_[0]), ncclSuccess);
}

// The library keeps a thread and a socket for it, which would be in every image from then on.
TEST_F(NcclSharedTest, AnIdThatNobodyCouldJoinIsUsedUp) {
  Init();
  std::string unused;
  OnControlThread([this, &unused] {
    EXPECT_STATUS_OK(Stop());
    EXPECT_STATUS_OK(GiveUp());
    const Result<std::vector<CommReport>> comms = libraries::ReportComms();
    ASSERT_TRUE(comms.ok());
    unused = Text((*comms)[0].id);
    Fake().refuse_inits = true;
    EXPECT_FALSE(Rejoin({{(*comms)[0].comm, (*comms)[0].id}}).ok());
    Fake().refuse_inits = false;
    EXPECT_EQ(Fake().arrived[unused], 0);
    EXPECT_STATUS_OK(RejoinWithOther());
    Open();
  });
  EXPECT_EQ(Fake().arrived[unused], 1);
  EXPECT_EQ(Reduce(comms_[0]), ncclSuccess);
}

// As for want of device memory: what would use it up finds no room either, until there is some.
TEST_F(NcclSharedTest, NoIdIsLeftWhereThereWasNoRoomForALongTime) {
  Init();
  const int before = Fake().ids;
  OnControlThread([this] {
    EXPECT_STATUS_OK(Stop());
    EXPECT_STATUS_OK(GiveUp());
    for (bool* fails : {&Fake().refuse_inits, &Fake().no_room}) {
      *fails = true;
      for (int i = 0; i < 3; ++i) {
        const Result<std::vector<CommReport>> comms = Report();
        ASSERT_TRUE(comms.ok());
        EXPECT_FALSE(Rejoin({{(*comms)[0].comm, (*comms)[0].id}}).ok());
      }
      *fails = false;
    }
    EXPECT_STATUS_OK(RejoinWithOther());
    Open();
  });
  for (int id = before; id < Fake().ids; ++id)
    EXPECT_GT(Fake().arrived["id " + std::to_string(id)], 0) << "id " << id;
  EXPECT_EQ(Reduce(comms_[0]), ncclSuccess);
}

// Of one that the other processes do not make again.
TEST_F(NcclSharedTest, AnIdThatNobodyWantsIsUsedUp) {
  Init();
  const int before = Fake().ids;
  OnControlThread([this] {
    EXPECT_STATUS_OK(Stop());
    EXPECT_STATUS_OK(GiveUp());
    ASSERT_TRUE(Report().ok());
    EXPECT_STATUS_OK(Rejoin({}));
    Open();
  });
  for (int id = before; id < Fake().ids; ++id)
    EXPECT_GT(Fake().arrived["id " + std::to_string(id)], 0) << "id " << id;
}

TEST_F(NcclSharedTest, OnesThatDoNotBlockComeByTheDeadlineOrNot) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclUniqueId id;
  ASSERT_EQ(::ncclGetUniqueId(&id), ncclSuccess);
  ASSERT_EQ(::ncclCommInitRankConfig(&comms_[0], 2, id, 0, &config), ncclInProgress);
  Fake().Comms()[0]->state = ncclSuccess;
  key_ = CliqueKey(&id, 1);
  Meet(1);
  OnControlThread([this] {
    EXPECT_STATUS_OK(Stop());
    EXPECT_STATUS_OK(GiveUp());
    const Result<std::vector<CommReport>> comms = libraries::ReportComms();
    ASSERT_TRUE(comms.ok());
    EXPECT_EQ(Rejoin({{(*comms)[0].comm, (*comms)[0].id}}, milliseconds(50)).code(), StatusCode::kTimeout);
    EXPECT_TRUE(Fake().Comms().empty());
    std::thread ready([] {
      while (Fake().Comms().empty()) std::this_thread::yield();
      Fake().Comms()[0]->state = ncclSuccess;
    });
    EXPECT_STATUS_OK(RejoinWithOther());
    ready.join();
    Open();
  });
}

TEST_F(NcclSharedTest, WithoutAnIdItCanOnlyBeEnded) {
  Init();
  OnControlThread([this] {
    EXPECT_STATUS_OK(Stop());
    EXPECT_STATUS_OK(GiveUp());
    EXPECT_STATUS_OK(Rejoin({}));
    EXPECT_FALSE(libraries::LibrariesNeedRejoin());
    Open();
  });
  EXPECT_EQ(Reduce(comms_[0]), ncclInvalidUsage);
  int rank = -1;
  EXPECT_EQ(::ncclCommUserRank(comms_[0], &rank), ncclSuccess);
  EXPECT_EQ(rank, 0);
  EXPECT_EQ(::ncclCommDestroy(comms_[0]), ncclSuccess);
  comms_[0] = nullptr;
}

TEST_F(NcclSharedTest, WhatOthersHaveIssuedIsIssuedHere) {
  Init();
  other_->rank().issued.collectives = 2;
  EXPECT_STATUS_OK(libraries::ShutLibraryGate());
  const int issued = Fake().issued;
  std::thread rank = OnRank(0, [this] {
    for (int i = 0; i < 3; ++i) EXPECT_EQ(Reduce(comms_[0]), ncclSuccess);
  });
  OnControlThread([this] { EXPECT_STATUS_OK(Stop()); });
  EXPECT_EQ(Fake().issued, issued + 2);
  Open();
  rank.join();
}

TEST_F(NcclSharedTest, WhatOthersLackIsNamed) {
  Init();
  EXPECT_EQ(Reduce(comms_[0]), ncclSuccess);
  EXPECT_EQ(Refusal(milliseconds(50)), "NCCL: collective #1 of rank 1 of 2 (ncclCommInitRank) is missing");
  other_->rank().issued.collectives = 1;
  EXPECT_EQ(Refusal(), "");
  other_->rank().issued.collectives = 2;
  EXPECT_EQ(Refusal(milliseconds(50)), "NCCL: collective #2 of rank 0 is missing");
}

TEST_F(NcclSharedTest, WhatAnotherProcessHasEndedIsNotMadeAgain) {
  Init();
  other_->rank().over = true;
  OnControlThread([this] {
    EXPECT_STATUS_OK(Stop());
    EXPECT_EQ(targets_.ended.size(), 1u);
    EXPECT_STATUS_OK(GiveUp());
    EXPECT_FALSE(libraries::LibrariesNeedRejoin());
    EXPECT_TRUE(libraries::ReportComms()->empty());
    EXPECT_STATUS_OK(Rejoin({}));
    Open();
  });
  EXPECT_EQ(Reduce(comms_[0]), ncclInvalidUsage);
}

TEST_F(NcclSharedTest, WhatIsEndedHereIsToldToThoseWhoAsk) {
  Init();
  EXPECT_EQ(Refusal(), "");
  EXPECT_EQ(::ncclCommDestroy(comms_[0]), ncclSuccess);
  comms_[0] = nullptr;
  bool told = false;
  others_ = [&](const CutTargets& targets) {
    told = targets.ended == std::vector<CommKey>{key_};
    return std::vector<CutReport>{other_->report};
  };
  EXPECT_EQ(Refusal(), "");
  EXPECT_TRUE(told);
}

// The error comes to this process alone, and none of them makes it again.
TEST_F(NcclSharedTest, AnErrorHereEndsItEverywhere) {
  Init();
  Fake().Comms()[0]->state = ncclSystemError;
  OnControlThread([this] {
    EXPECT_STATUS_OK(Stop());
    EXPECT_EQ(targets_.ended.size(), 1u);
    EXPECT_STATUS_OK(GiveUp());
    EXPECT_FALSE(libraries::LibrariesNeedRejoin());
    EXPECT_STATUS_OK(Rejoin({}));
    Open();
  });
  ncclResult_t state;
  EXPECT_EQ(::ncclCommGetAsyncError(comms_[0], &state), ncclSuccess);
  EXPECT_EQ(state, ncclSystemError);
  EXPECT_EQ(Reduce(comms_[0]), ncclSystemError);
}

// What one process ends breaks it for the next, which must not take that for an error of its own.
TEST_F(NcclSharedTest, AnErrorAfterTheCutIsHealed) {
  Init();
  OnControlThread([this] {
    EXPECT_STATUS_OK(Stop());
    Fake().Comms()[0]->state = ncclRemoteError;
    EXPECT_STATUS_OK(GiveUp());
    EXPECT_STATUS_OK(RejoinWithOther());
    Open();
  });
  EXPECT_EQ(Reduce(comms_[0]), ncclSuccess);
}

TEST_F(NcclSharedTest, AnIdIsWaitedForUntilAnotherProcessHasUsedIt) {
  ncclUniqueId id;
  ASSERT_EQ(::ncclGetUniqueId(&id), ncclSuccess);
  others_ = [](const CutTargets&) {
    CutReport other;
    other.settled = true;
    return std::vector<CutReport>{other};
  };
  EXPECT_EQ(Refusal(milliseconds(50)), "NCCL: ncclCommInitRank with an id of ncclGetUniqueId is missing");
  others_ = [](const CutTargets& targets) {
    CutReport other;
    other.settled = true;
    other.used = targets.meetings;
    return std::vector<CutReport>{other};
  };
  EXPECT_EQ(Refusal(), "");
}

TEST_F(NcclSharedTest, TellsWhichIdsOfOthersItHasUsed) {
  ncclUniqueId id;
  std::memset(&id, 0, sizeof id);
  std::strcpy(id.internal, "another process's");
  Fake().remote_ranks = true;
  ASSERT_EQ(::ncclCommInitRank(&comms_[0], 2, id, 1), ncclSuccess);
  Fake().remote_ranks = false;
  key_ = CliqueKey(&id, 1);
  Meet(0);
  // Its maker waits for it to be used until it is told.
  other_->report.meetings = {key_};
  bool told = false;
  others_ = [&](const CutTargets& targets) {
    told = told || targets.used == std::vector<CommKey>{key_};
    if (told) other_->report.meetings.clear();
    return std::vector<CutReport>{other_->report};
  };
  EXPECT_EQ(Refusal(), "");
  EXPECT_TRUE(told);
}

TEST_F(NcclSharedTest, RanksWithDifferentWindowsAreNamed) {
  Init();
  float value = 0;
  ncclWindow_t window;
  ASSERT_EQ(::ncclCommWindowRegister(comms_[0], &value, sizeof value, &window, 0), ncclSuccess);
  other_->rank().issued.collectives = 1;
  EXPECT_EQ(Refusal(milliseconds(50)),
            "NCCL: ncclCommWindowDeregister of rank 0 of 2 (ncclCommInitRank) is missing");
  other_->rank().windows = 1;
  OnControlThread([this] {
    EXPECT_STATUS_OK(Stop());
    EXPECT_STATUS_OK(GiveUp());
    EXPECT_STATUS_OK(RejoinWithOther());
    Open();
  });
  ASSERT_EQ(Fake().Comms().size(), 1u);
  EXPECT_EQ(Fake().Comms()[0]->windows, 1);
}

// A held call goes on once when nothing moves anywhere.
TEST_F(NcclSharedTest, HeldCallsGoOnWhenNothingMoves) {
  Init();
  EXPECT_STATUS_OK(libraries::ShutLibraryGate());
  other_->report.missing = {{1, "ncclAllReduce"}};
  std::atomic<bool> passed{false};
  std::thread rank = OnRank(0, [this, &passed] {
    EXPECT_EQ(Reduce(comms_[0]), ncclSuccess);
    passed = true;
  });
  // The other process waits for something that comes behind this rank's call.
  others_ = [&](const CutTargets&) {
    other_->report.settled = passed;
    if (passed) other_->rank().issued.collectives = 1;
    return std::vector<CutReport>{other_->report};
  };
  OnControlThread([this] { EXPECT_STATUS_OK(Stop()); });
  EXPECT_TRUE(passed);
  Open();
  rank.join();
}

}  // namespace
}  // namespace stasis::nccl
