// The interposer's NCCL on a library that only says what it is told: what reaches the library, and what the
// program gets to see.
#include "intercept/libraries/nccl_library.h"

#include <unistd.h>

#include "intercept/futex.h"
#include "intercept/libraries/nccl_cliques.h"
#include "intercept/libraries/nccl_testing.h"
#include "intercept/libraries/nccl_watchdog.h"

namespace stasis::nccl {
namespace {

TEST_F(NcclLibraryTest, MakesCommunicatorsAgainUnderTheirHandles) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  std::string name = "Socket";
  config.netName = name.c_str();
  InitTwo(&config);
  name = "gone";
  const ncclComm_t before[2] = {comms_[0], comms_[1]};
  ncclRedOp_t op;
  float half = 0.5f;
  ASSERT_EQ(::ncclRedOpCreatePreMulSum(&op, &half, ncclFloat, ncclScalarHostImmediate, comms_[0]),
            ncclSuccess);
  void* buffer = nullptr;
  ASSERT_EQ(::ncclCommRegister(comms_[1], &half, sizeof half, &buffer), ncclSuccess);
  ncclWindow_t windows[2];
  for (int r = 0; r < 2; ++r)
    ASSERT_EQ(::ncclCommWindowRegister(comms_[r], &half, sizeof half, &windows[r], 0), ncclSuccess);
  for (int cycle = 0; cycle < 3; ++cycle) {
    PauseAndResume();
    const std::vector<ncclComm_t> real = Fake().Comms();
    ASSERT_EQ(real.size(), 2u);
    for (int r = 0; r < 2; ++r) {
      EXPECT_EQ(real[r]->device, r);
      EXPECT_EQ(real[r]->size, 2);
      EXPECT_EQ(real[r]->net_name, "Socket");
      EXPECT_EQ(real[r]->windows, 1);
      EXPECT_EQ(Reduce(before[r], r == 0 ? op : ncclSum), ncclSuccess);
      int rank = -1;
      EXPECT_EQ(::ncclCommUserRank(before[r], &rank), ncclSuccess);
      EXPECT_EQ(rank, r);
    }
    EXPECT_EQ(real[0]->id, real[1]->id);
    EXPECT_EQ(real[0]->operators, 1);
    EXPECT_EQ(real[1]->buffers, 1);
  }
  EXPECT_EQ(::ncclCommDeregister(comms_[1], buffer), ncclSuccess);
  DestroyTwo();
}

TEST_F(NcclLibraryTest, WhatIsDestroyedIsNotMadeAgain) {
  InitTwo();
  DestroyTwo();
  PauseAndResume();
  EXPECT_TRUE(Fake().Comms().empty());
}

TEST_F(NcclLibraryTest, SplitsAreMadeAgainAndRanksWithoutColourGetNone) {
  InitTwo();
  ncclComm_t children[2], none = comms_[0];
  ASSERT_EQ(::ncclGroupStart(), ncclSuccess);
  for (int r = 0; r < 2; ++r)
    ASSERT_EQ(::ncclCommSplit(comms_[r], 3, 1 - r, &children[r], nullptr), ncclSuccess);
  ASSERT_EQ(::ncclGroupEnd(), ncclSuccess);
  for (int r = 0; r < 2; ++r) {
    ASSERT_EQ(::ncclCommSplit(comms_[r], NCCL_SPLIT_NOCOLOR, 0, &none, nullptr), ncclSuccess);
    EXPECT_EQ(none, nullptr);
  }
  PauseAndResume();
  EXPECT_EQ(Fake().Comms().size(), 4u);
  for (int r = 0; r < 2; ++r) {
    int rank = -1;
    EXPECT_EQ(::ncclCommUserRank(children[r], &rank), ncclSuccess);
    EXPECT_EQ(rank, 1 - r);
    EXPECT_EQ(Reduce(children[r]), ncclSuccess);
    EXPECT_EQ(::ncclCommDestroy(children[r]), ncclSuccess);
  }
  DestroyTwo();
}

TEST_F(NcclLibraryTest, RefusesCommunicatorsWithRanksInProcessesThatTakeNoPart) {
  InitShared(4, 2);
  EXPECT_EQ(Refusal(), "NCCL: ncclCommInitRank: rank 0 of 4 is in none of the processes that are paused");
  EXPECT_EQ(Reduce(comms_[0]), ncclSuccess);
  EXPECT_EQ(::ncclCommDestroy(comms_[0]), ncclSuccess);
  EXPECT_EQ(Refusal(), "");
}

TEST_F(NcclLibraryTest, ARankThatIsBehindIsLetThroughAndTheOthersWait) {
  InitTwo();
  ASSERT_EQ(Reduce(comms_[0]), ncclSuccess);
  const int issued = Fake().issued;
  EXPECT_STATUS_OK(libraries::ShutLibraryGate());
  std::vector<std::thread> threads;
  // The first of rank 1's two calls is awaited; both wait for the gate after that.
  for (int r = 0; r < 2; ++r)
    threads.push_back(OnRank(r, [this, r] {
      for (int i = 0; i < 2; ++i) EXPECT_EQ(Reduce(comms_[r]), ncclSuccess);
    }));
  std::thread([this] { EXPECT_STATUS_OK(Stop()); }).join();
  EXPECT_EQ(Fake().issued, issued + 1);
  Open();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Refusal(milliseconds(50)).substr(0, 5), "NCCL:");  // rank 0 is one ahead again
  EXPECT_EQ(Reduce(comms_[1]), ncclSuccess);
  DestroyTwo();
}

TEST_F(NcclLibraryTest, NamesTheCallThatIsMissing) {
  InitTwo();
  ASSERT_EQ(Reduce(comms_[0]), ncclSuccess);
  EXPECT_EQ(Refusal(milliseconds(50)), "NCCL: ncclAllReduce #1 of rank 1 is missing");
  ASSERT_EQ(blockers_.size(), 1u);
  EXPECT_EQ(blockers_[0].call, "ncclAllReduce #1 of rank 1");
  ASSERT_EQ(Reduce(comms_[1]), ncclSuccess);
  EXPECT_EQ(Refusal(), "");
  DestroyTwo();
}

TEST_F(NcclLibraryTest, WaitsForTheEndOfAGroup) {
  InitTwo();
  ASSERT_EQ(::ncclGroupStart(), ncclSuccess);
  ASSERT_EQ(Reduce(comms_[0]), ncclSuccess);
  EXPECT_EQ(Refusal(milliseconds(50)), "NCCL: ncclGroupEnd is missing");
  EXPECT_EQ(blockers_[0].tid, gettid());
  std::thread pause([this] { EXPECT_STATUS_OK(Stop()); });
  ASSERT_EQ(Reduce(comms_[1]), ncclSuccess);
  ASSERT_EQ(::ncclGroupEnd(), ncclSuccess);
  pause.join();
  Open();
  DestroyTwo();
}

TEST_F(NcclLibraryTest, APauseDuringCreationLetsTheOtherRankIn) {
  ncclUniqueId id;
  ASSERT_EQ(::ncclGetUniqueId(&id), ncclSuccess);
  EXPECT_EQ(Refusal(milliseconds(50)), "NCCL: ncclCommInitRank with an id of ncclGetUniqueId is missing");
  std::thread first = OnRank(0, [&] { EXPECT_EQ(::ncclCommInitRank(&comms_[0], 2, id, 0), ncclSuccess); });
  std::thread pause([this] { EXPECT_STATUS_OK(Stop()); });
  std::thread second = OnRank(1, [&] { EXPECT_EQ(::ncclCommInitRank(&comms_[1], 2, id, 1), ncclSuccess); });
  pause.join();
  Open();
  first.join();
  second.join();
  PauseAndResume();
  DestroyTwo();
}

TEST_F(NcclLibraryTest, WaitsForCommunicatorsThatDoNotBlock) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  InitTwo(&config);
  EXPECT_EQ(Refusal(milliseconds(50)), "NCCL: ncclCommInitRankConfig is missing");
  std::thread pause([this] { EXPECT_STATUS_OK(Stop()); });
  for (ncclComm_t comm : Fake().Comms()) comm->state = ncclSuccess;
  pause.join();
  Open();
  int count = 0;
  EXPECT_EQ(::ncclCommCount(comms_[0], &count), ncclSuccess);
  EXPECT_EQ(count, 2);
  DestroyTwo();
}

TEST_F(NcclLibraryTest, AFailedCommunicatorKeepsItsError) {
  InitTwo();
  Fake().Comms()[1]->state = ncclSystemError;
  PauseAndResume();
  EXPECT_TRUE(Fake().Comms().empty());
  ncclResult_t states[2];
  for (int r = 0; r < 2; ++r) EXPECT_EQ(::ncclCommGetAsyncError(comms_[r], &states[r]), ncclSuccess);
  EXPECT_EQ(states[0], ncclRemoteError);
  EXPECT_EQ(states[1], ncclSystemError);
  EXPECT_EQ(Reduce(comms_[1]), ncclSystemError);
  EXPECT_STREQ(::ncclGetLastError(comms_[1]), "the cable is out");
  PauseAndResume();
  for (ncclComm_t comm : comms_) EXPECT_EQ(::ncclCommAbort(comm), ncclSuccess);
}

TEST_F(NcclLibraryTest, FinalizedAndOrphanedOnesCanOnlyBeDestroyed) {
  InitTwo();
  for (ncclComm_t comm : comms_) EXPECT_EQ(::ncclCommFinalize(comm), ncclSuccess);
  PauseAndResume();
  EXPECT_TRUE(Fake().Comms().empty());
  EXPECT_EQ(Reduce(comms_[0]), ncclInvalidUsage);
  DestroyTwo();
  InitTwo();
  EXPECT_EQ(::ncclCommAbort(comms_[0]), ncclSuccess);
  PauseAndResume();
  EXPECT_EQ(Reduce(comms_[1]), ncclInvalidUsage);
  EXPECT_EQ(::ncclCommFinalize(comms_[1]), ncclSuccess);
  EXPECT_EQ(::ncclCommFinalize(comms_[1]), ncclInvalidUsage);
  EXPECT_EQ(::ncclCommDestroy(comms_[1]), ncclSuccess);
}

TEST_F(NcclLibraryTest, ARebuildThatFailsCanBeTriedAgain) {
  InitTwo();
  std::thread([this] {
    EXPECT_STATUS_OK(Stop());
    EXPECT_STATUS_OK(GiveUp());
    Fake().refuse_inits = true;
    EXPECT_EQ(std::string(Rebuild().message()),
              "NCCL: ncclCommInitRank: rank 0 of 2: ncclCommInitRank answers 2");
    EXPECT_TRUE(Fake().Comms().empty());
    Fake().refuse_inits = false;
    EXPECT_STATUS_OK(Rebuild());
    Open();
  }).join();
  EXPECT_EQ(Reduce(comms_[0]), ncclSuccess);
  EXPECT_EQ(Reduce(comms_[1]), ncclSuccess);
  DestroyTwo();
}

// The library keeps a thread and a socket for it, which would be in every image from then on.
TEST_F(NcclLibraryTest, NoIdIsLeftOfRebuildsThatHaveFailed) {
  InitTwo();
  const int before = Fake().ids;
  std::thread([this] {
    EXPECT_STATUS_OK(Stop());
    EXPECT_STATUS_OK(GiveUp());
    for (bool* fails : {&Fake().refuse_inits, &Fake().no_room}) {
      *fails = true;
      for (int i = 0; i < 3; ++i) EXPECT_FALSE(Rebuild().ok());
      *fails = false;
    }
    EXPECT_STATUS_OK(Rebuild());
    Open();
  }).join();
  EXPECT_GT(Fake().ids, before);
  for (int id = before; id < Fake().ids; ++id)
    EXPECT_GT(Fake().arrived["id " + std::to_string(id)], 0) << "id " << id;
  DestroyTwo();
}

TEST_F(NcclLibraryTest, AbortsWhatCannotBeFinalizedInTime) {
  InitTwo();
  std::thread([this] {
    EXPECT_STATUS_OK(Stop());
    Fake().finalize_blocks = true;
    {
      const libraries::LibraryWork work;
      GiveUpCliques(milliseconds(20));
    }
    EXPECT_TRUE(Fake().Comms().empty());
    EXPECT_STATUS_OK(Rebuild());
    Open();
  }).join();
  EXPECT_EQ(Fake().Comms().size(), 2u);
  DestroyTwo();
}

// Handles of a later communicator never mean an earlier one to the program.
TEST_F(NcclLibraryTest, NewCommunicatorsGetHandlesOfTheirOwn) {
  std::set<ncclComm_t> seen;
  std::vector<ncclComm_t> all;
  for (int i = 0; i < 20; ++i) {
    InitTwo();
    for (ncclComm_t comm : comms_) {
      EXPECT_TRUE(seen.insert(comm).second);
      all.push_back(comm);
    }
    PauseAndResume();
  }
  for (size_t i = 0; i < all.size(); ++i) {
    int rank = -1;
    EXPECT_EQ(::ncclCommUserRank(all[i], &rank), ncclSuccess);
    EXPECT_EQ(rank, static_cast<int>(i % 2));
    EXPECT_EQ(::ncclCommDestroy(all[i]), ncclSuccess);
  }
}

TEST(WatchdogTest, CallsOnceWhenItIsLateAndNotBefore) {
  std::atomic<int> calls{0};
  {
    Watchdog early(Deadline::After(seconds(60)), [&calls] { ++calls; });
    EXPECT_FALSE(early.Stop());
  }
  EXPECT_EQ(calls, 0);
  std::atomic<uint32_t> called{0};
  Watchdog late(Deadline::After(milliseconds(1)), [&called] {
    called.store(1);
    FutexWakeAll(called);
  });
  while (called.load() == 0) FutexWait(called, 0);
  EXPECT_TRUE(late.Stop());
  EXPECT_TRUE(late.Stop());
}

}  // namespace
}  // namespace stasis::nccl
