// The life of communicators, and operations that are held up, given up or do not fit.
#include <dirent.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>

#include "softgpu/driver/memory_testing.h"
#include "softgpu/nccl/nccl_testing.h"

namespace softgpu {

const std::vector<std::string> kDaemonOptions = {"--gpus", "8", "--memory", "256MiB"};

namespace nccl {
namespace {

// Sums 1 over the ranks and checks it.
void ExpectWorks(const std::vector<ncclComm_t>& comms, const std::vector<int>& devices) {
  std::vector<Buffer> buffers;
  std::vector<Stream> streams;
  for (int device : devices) {
    buffers.push_back(MakeBuffer(device, std::vector<int32_t>(100, 1)));
    streams.emplace_back(device);
  }
  EXPECT_NCCL_OK(ncclGroupStart());
  for (size_t i = 0; i < comms.size(); i++)
    EXPECT_NCCL_OK(
        ncclAllReduce(buffers[i].at(), buffers[i].at(), 100, ncclInt32, ncclSum, comms[i], streams[i].get()));
  EXPECT_NCCL_OK(ncclGroupEnd());
  for (size_t i = 0; i < comms.size(); i++) {
    EXPECT_EQ(streams[i].Wait(), CUDA_SUCCESS);
    EXPECT_EQ(buffers[i].As<int32_t>(), std::vector<int32_t>(100, static_cast<int32_t>(comms.size())));
  }
}

TEST(Communicator, Facts) {
  const Ranks ranks(3);
  for (int rank = 0; rank < 3; rank++) {
    int count = 0, device = -1, user = -1;
    NCCL_OK(ncclCommCount(ranks.comms[rank], &count));
    NCCL_OK(ncclCommCuDevice(ranks.comms[rank], &device));
    NCCL_OK(ncclCommUserRank(ranks.comms[rank], &user));
    EXPECT_EQ(count, 3);
    EXPECT_EQ(device, rank);
    EXPECT_EQ(user, rank);
  }
  int version = 0;
  NCCL_OK(ncclGetVersion(&version));
  EXPECT_EQ(version, NCCL_VERSION_CODE);
  EXPECT_STREQ(ncclGetErrorString(ncclInvalidUsage), "invalid usage");
}

TEST(Communicator, InitAllInAnyOrderOfDevices) {
  const int devices[] = {5, 0, 3};
  std::vector<ncclComm_t> comms(3);
  NCCL_OK(ncclCommInitAll(comms.data(), 3, devices));
  for (int rank = 0; rank < 3; rank++) {
    int device = -1;
    NCCL_OK(ncclCommCuDevice(comms[rank], &device));
    EXPECT_EQ(device, devices[rank]);
  }
  ExpectWorks(comms, {5, 0, 3});
  for (ncclComm_t comm : comms) NCCL_OK(ncclCommDestroy(comm));
}

TEST(Communicator, InitRankByThreadsAndByGroup) {
  ncclUniqueId id;
  NCCL_OK(ncclGetUniqueId(&id));
  std::vector<ncclComm_t> comms(4);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 4; rank++) {
    threads.emplace_back([&, rank] {
      const OnDevice on(rank);
      EXPECT_NCCL_OK(ncclCommInitRank(&comms[rank], 4, id, rank));
    });
  }
  for (std::thread& thread : threads) thread.join();
  ExpectWorks(comms, {0, 1, 2, 3});
  for (ncclComm_t comm : comms) NCCL_OK(ncclCommDestroy(comm));

  ncclUniqueId ids[2];
  for (ncclUniqueId& each : ids) NCCL_OK(ncclGetUniqueId(&each));
  NCCL_OK(ncclGroupStart());
  for (int rank = 0; rank < 3; rank++) {
    const OnDevice on(rank);
    NCCL_OK(ncclCommInitRankScalable(&comms[rank], 3, rank, 2, ids, nullptr));
  }
  NCCL_OK(ncclGroupEnd());
  comms.resize(3);
  ExpectWorks(comms, {0, 1, 2});
  NCCL_OK(ncclGroupStart());
  for (ncclComm_t comm : comms) NCCL_OK(ncclCommDestroy(comm));
  NCCL_OK(ncclGroupEnd());
}

// With NVIDIA's library each of two groups of one thread may hold communicators of which the other thread
// makes one after the other.
TEST(Communicator, SetupsOfAGroupGoOnSideBySide) {
  ncclUniqueId first, second;
  NCCL_OK(ncclGetUniqueId(&first));
  NCCL_OK(ncclGetUniqueId(&second));
  ncclComm_t comms[4];
  std::thread other([&] {
    const OnDevice on(1);
    EXPECT_NCCL_OK(ncclCommInitRank(&comms[1], 2, first, 0));
    EXPECT_NCCL_OK(ncclCommInitRank(&comms[3], 2, second, 0));
  });
  {
    const OnDevice on(0);
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclCommInitRank(&comms[0], 2, first, 1));
    NCCL_OK(ncclCommInitRank(&comms[2], 2, second, 1));
    NCCL_OK(ncclGroupEnd());
  }
  other.join();
  ExpectWorks({comms[1], comms[0]}, {1, 0});
  ExpectWorks({comms[3], comms[2]}, {1, 0});
  for (ncclComm_t comm : comms) NCCL_OK(ncclCommDestroy(comm));
}

TEST(Communicator, WhatMakesNoSenseIsRefused) {
  std::vector<ncclComm_t> comms(2);
  const int twice[] = {1, 1}, absent[] = {0, 8};
  EXPECT_EQ(ncclCommInitAll(comms.data(), 2, twice), ncclInvalidUsage);
  EXPECT_EQ(ncclCommInitAll(comms.data(), 2, absent), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitAll(comms.data(), 0, nullptr), ncclInvalidArgument);
  const OnDevice on(0);
  ncclUniqueId id;
  NCCL_OK(ncclGetUniqueId(&id));
  EXPECT_EQ(ncclCommInitRank(&comms[0], 2, id, 2), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(nullptr, 2, id, 0), ncclInvalidArgument);
  ncclUniqueId empty{};
  EXPECT_EQ(ncclCommInitRank(&comms[0], 1, empty, 0), ncclInvalidArgument);
  // Two ranks on one device.
  NCCL_OK(ncclGroupStart());
  NCCL_OK(ncclCommInitRank(&comms[0], 2, id, 0));
  NCCL_OK(ncclCommInitRank(&comms[1], 2, id, 1));
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  EXPECT_NE(strstr(ncclGetLastError(nullptr), "Duplicate GPU"), nullptr);
  EXPECT_EQ(comms[0], nullptr);
  EXPECT_EQ(comms[1], nullptr);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
}

TEST(Communicator, RanksThatDisagreeOnTheirNumber) {
  ncclUniqueId id;
  NCCL_OK(ncclGetUniqueId(&id));
  ncclComm_t comms[2];
  ncclResult_t results[2];
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; rank++) {
    threads.emplace_back([&, rank] {
      const OnDevice on(rank);
      results[rank] = ncclCommInitRank(&comms[rank], 2 + rank, id, rank);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (ncclResult_t result : results) EXPECT_EQ(result, ncclInvalidUsage);
}

TEST(Communicator, HandlesAreGoodUntilDestroyed) {
  Ranks ranks(1);
  const Buffer buffer(0, 16);
  ncclComm_t comm = ranks.comms[0];
  NCCL_OK(ncclCommDestroy(comm));
  ranks.comms[0] = nullptr;
  int count;
  EXPECT_EQ(ncclCommCount(comm, &count), ncclInvalidArgument);
  EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidArgument);
  EXPECT_EQ(ncclAllReduce(buffer.at(), buffer.at(), 1, ncclInt8, ncclSum, comm, nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclCommDestroy(nullptr), ncclSuccess);
  EXPECT_EQ(ncclCommAbort(nullptr), ncclSuccess);
}

TEST(Communicator, ArgumentsOfOperationsAreChecked) {
  const Ranks ranks(2);
  const Buffer buffer(0, 64);
  ncclComm_t comm = ranks.comms[0];
  EXPECT_EQ(ncclAllReduce(buffer.at(), buffer.at(), 1, ncclNumTypes, ncclSum, comm, nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclAllReduce(buffer.at(), buffer.at(), 1, ncclInt8, ncclNumOps, comm, nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclAllReduce(buffer.at(), buffer.at(), SIZE_MAX / 2, ncclInt32, ncclSum, comm, nullptr),
            ncclInvalidArgument);
  EXPECT_EQ(ncclBcast(buffer.at(), 1, ncclInt8, 2, comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclSend(buffer.at(), 1, ncclInt8, -1, comm, nullptr), ncclInvalidArgument);
  // To itself, and nobody receives.
  EXPECT_EQ(ncclSend(buffer.at(), 1, ncclInt8, 0, comm, nullptr), ncclInvalidUsage);
  // An error within a group is the group's, and nothing of it is done.
  NCCL_OK(ncclGroupStart());
  NCCL_OK(ncclAllReduce(buffer.at(), buffer.at(), 1, ncclInt8, ncclSum, comm, ranks.streams[0].get()));
  EXPECT_EQ(ncclBcast(buffer.at(), 1, ncclInt8, 7, comm, ranks.streams[0].get()), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(ranks.streams[0].Query(), CUDA_SUCCESS);
  ExpectWorks(ranks.comms, {0, 1});
}

TEST(Communicator, ConfigurationIsChecked) {
  const OnDevice on(0);
  const auto init = [](ncclConfig_t* config) {
    ncclUniqueId id;
    EXPECT_NCCL_OK(ncclGetUniqueId(&id));
    ncclComm_t comm = nullptr;
    const ncclResult_t result = ncclCommInitRankConfig(&comm, 1, id, 0, config);
    EXPECT_EQ(comm != nullptr, result == ncclSuccess);
    EXPECT_NCCL_OK(ncclCommDestroy(comm));
    return result;
  };
  ncclConfig_t good = NCCL_CONFIG_INITIALIZER;
  good.blocking = 1;
  good.commName = "a name";
  good.maxCTAs = 4;
  EXPECT_EQ(init(&good), ncclSuccess);
  EXPECT_EQ(init(nullptr), ncclSuccess);
  ncclConfig_t bad = good;
  bad.magic = 0;
  EXPECT_EQ(init(&bad), ncclInvalidArgument);
  bad = good;
  bad.blocking = 2;
  EXPECT_EQ(init(&bad), ncclInvalidArgument);
  bad = good;
  bad.minCTAs = 8;
  EXPECT_EQ(init(&bad), ncclInvalidArgument);
  EXPECT_NE(strstr(ncclGetLastError(nullptr), "minCTAs"), nullptr);
  // Of a program with older headers.
  ncclConfig_t old = good;
  old.size = offsetof(ncclConfig_t, trafficClass);
  old.nvlsCTAs = -5;
  EXPECT_EQ(init(&old), ncclSuccess);
}

TEST(Communicator, InitWithoutBlocking) {
  ncclUniqueId id;
  NCCL_OK(ncclGetUniqueId(&id));
  std::vector<ncclComm_t> comms(2);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const Buffer buffer(0, 16);
  {
    const OnDevice on(0);
    EXPECT_EQ(ncclCommInitRankConfig(&comms[0], 2, id, 0, &config), ncclInProgress);
  }
  // Cannot be through without the other.
  ncclResult_t state;
  NCCL_OK(ncclCommGetAsyncError(comms[0], &state));
  EXPECT_EQ(state, ncclInProgress);
  EXPECT_EQ(ncclBcast(buffer.at(), 1, ncclInt8, 0, comms[0], nullptr), ncclInvalidArgument);
  int count;
  EXPECT_EQ(ncclCommCount(comms[0], &count), ncclInvalidArgument);
  {
    const OnDevice on(1);
    EXPECT_EQ(ncclCommInitRankConfig(&comms[1], 2, id, 1, &config), ncclInProgress);
  }
  for (ncclComm_t comm : comms) EXPECT_EQ(AwaitState(comm, ncclInProgress), ncclSuccess);
  ExpectWorks(comms, {0, 1});
  // Children take the configuration over.
  std::vector<ncclComm_t> children(2);
  EXPECT_EQ(ncclCommSplit(comms[0], 0, 1, &children[1], nullptr), ncclInProgress);
  EXPECT_EQ(ncclCommSplit(comms[1], 0, 0, &children[0], nullptr), ncclInProgress);
  for (ncclComm_t comm : children) EXPECT_EQ(AwaitState(comm, ncclInProgress), ncclSuccess);
  for (ncclComm_t comm : comms) EXPECT_EQ(AwaitState(comm, ncclInProgress), ncclSuccess);
  ExpectWorks(children, {1, 0});
  for (ncclComm_t comm : children) EXPECT_EQ(ncclCommFinalize(comm), ncclInProgress);
  for (ncclComm_t comm : children) EXPECT_EQ(AwaitState(comm, ncclInProgress), ncclSuccess);
  EXPECT_EQ(ncclBcast(buffer.at(), 1, ncclInt8, 0, children[1], nullptr), ncclInvalidUsage);
  for (ncclComm_t comm : children) NCCL_OK(ncclCommDestroy(comm));
  for (ncclComm_t comm : comms) NCCL_OK(ncclCommDestroy(comm));
}

TEST(Communicator, AbortOfAnInitThatLacksARank) {
  ncclUniqueId id;
  NCCL_OK(ncclGetUniqueId(&id));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm;
  const OnDevice on(0);
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
  NCCL_OK(ncclCommAbort(comm));
}

TEST(Communicator, Split) {
  const Ranks ranks(6);
  // Even ranks in reversed order; odd ones in order, but 5, which gets none.
  std::vector<ncclComm_t> children(6, reinterpret_cast<ncclComm_t>(1));
  ranks.Group([&](int rank) {
    const int color = rank == 5 ? NCCL_SPLIT_NOCOLOR : rank % 2;
    return ncclCommSplit(ranks.comms[rank], color, color == 0 ? -rank : 7, &children[rank], nullptr);
  });
  EXPECT_EQ(children[5], nullptr);
  const int expected_rank[] = {2, 0, 1, 1, 0}, expected_count[] = {3, 2, 3, 2, 3};
  for (int rank = 0; rank < 5; rank++) {
    int count = 0, user = -1, device = -1;
    NCCL_OK(ncclCommCount(children[rank], &count));
    NCCL_OK(ncclCommUserRank(children[rank], &user));
    NCCL_OK(ncclCommCuDevice(children[rank], &device));
    EXPECT_EQ(count, expected_count[rank]);
    EXPECT_EQ(user, expected_rank[rank]);
    EXPECT_EQ(device, rank);
  }
  ExpectWorks({children[4], children[2], children[0]}, {4, 2, 0});
  ExpectWorks({children[1], children[3]}, {1, 3});
  // Parents and children of children work side by side.
  std::vector<ncclComm_t> grandchildren(2);
  NCCL_OK(ncclGroupStart());
  NCCL_OK(ncclCommSplit(children[1], 3, 0, &grandchildren[0], nullptr));
  NCCL_OK(ncclCommSplit(children[3], 3, 0, &grandchildren[1], nullptr));
  NCCL_OK(ncclGroupEnd());
  ExpectWorks(grandchildren, {1, 3});
  ExpectWorks(ranks.comms, {0, 1, 2, 3, 4, 5});
  for (ncclComm_t comm : grandchildren) NCCL_OK(ncclCommDestroy(comm));
  for (ncclComm_t comm : children) NCCL_OK(ncclCommDestroy(comm));
  EXPECT_EQ(ncclCommSplit(ranks.comms[0], -2, 0, &children[0], nullptr), ncclInvalidArgument);
}

TEST(Communicator, Shrink) {
  const Ranks ranks(4);
  int excluded[] = {0, 2};
  std::vector<ncclComm_t> rest(2);
  NCCL_OK(ncclGroupStart());
  NCCL_OK(ncclCommShrink(ranks.comms[1], excluded, 2, &rest[0], nullptr, NCCL_SHRINK_DEFAULT));
  NCCL_OK(ncclCommShrink(ranks.comms[3], excluded, 2, &rest[1], nullptr, NCCL_SHRINK_DEFAULT));
  NCCL_OK(ncclGroupEnd());
  int user = -1;
  NCCL_OK(ncclCommUserRank(rest[1], &user));
  EXPECT_EQ(user, 1);
  ExpectWorks(rest, {1, 3});
  for (ncclComm_t comm : rest) NCCL_OK(ncclCommDestroy(comm));
  EXPECT_EQ(ncclCommShrink(ranks.comms[0], excluded, 2, &rest[0], nullptr, NCCL_SHRINK_DEFAULT),
            ncclInvalidArgument);
}

// ---- Operations that are held up

// A kernel that runs on the device until it is let go.
class Blocker {
 public:
  explicit Blocker(const Stream& stream) : on_(stream.device), spin_(kTestPtx, "spin") {
    EXPECT_EQ(cuMemHostAlloc(reinterpret_cast<void**>(&flag_), 64, CU_MEMHOSTALLOC_PORTABLE), CUDA_SUCCESS);
    __atomic_store_n(flag_, 0, __ATOMIC_RELEASE);
    EXPECT_EQ(spin_.Launch({reinterpret_cast<uint64_t>(flag_)}, stream.stream), CUDA_SUCCESS);
  }
  void LetGo() { __atomic_store_n(flag_, 1, __ATOMIC_RELEASE); }

 private:
  const OnDevice on_;
  TestKernel spin_;
  uint32_t* flag_ = nullptr;
};

TEST(Blocking, ACollectiveWaitsForItsPartnerInTheStream) {
  const Ranks ranks(3);
  std::vector<Buffer> buffers;
  for (int rank = 0; rank < 3; rank++) buffers.push_back(MakeBuffer(rank, std::vector<int32_t>{rank + 1}));
  const auto reduce = [&](int rank) {
    return ncclAllReduce(buffers[rank].at(), buffers[rank].at(), 1, ncclInt32, ncclSum, ranks.comms[rank],
                         ranks.streams[rank].get());
  };
  NCCL_OK(reduce(0));
  NCCL_OK(reduce(1));
  // The two have met each other for as long as other work of the device takes; the third is missing.
  const Stream other(0);
  NCCL_OK(ncclGroupStart());
  NCCL_OK(ncclSend(buffers[0].at(), 0, ncclInt8, 0, ranks.comms[0], other.get()));
  NCCL_OK(ncclRecv(buffers[0].at(), 0, ncclInt8, 0, ranks.comms[0], other.get()));
  NCCL_OK(ncclGroupEnd());
  for (int rank : {0, 1}) EXPECT_EQ(ranks.streams[rank].Query(), CUDA_ERROR_NOT_READY);
  // Nor may the communicator's next operation, in whatever stream, overtake.
  EXPECT_EQ(other.Query(), CUDA_ERROR_NOT_READY);
  NCCL_OK(reduce(2));
  ranks.Wait();
  EXPECT_EQ(other.Wait(), CUDA_SUCCESS);
  for (int rank = 0; rank < 3; rank++) EXPECT_EQ(buffers[rank].As<int32_t>()[0], 6);
}

TEST(Blocking, APartnerIsNotThereBeforeItsStreamIs) {
  const Ranks ranks(2);
  std::vector<Buffer> buffers;
  for (int rank = 0; rank < 2; rank++) buffers.push_back(MakeBuffer(rank, std::vector<int32_t>{rank + 1}));
  Blocker blocker(ranks.streams[1]);
  ranks.Group([&](int rank) {
    return ncclAllReduce(buffers[rank].at(), buffers[rank].at(), 1, ncclInt32, ncclSum, ranks.comms[rank],
                         ranks.streams[rank].get());
  });
  EXPECT_EQ(ranks.streams[0].Query(), CUDA_ERROR_NOT_READY);
  blocker.LetGo();
  ranks.Wait();
  for (int rank = 0; rank < 2; rank++) EXPECT_EQ(buffers[rank].As<int32_t>()[0], 3);
}

TEST(Blocking, AbortEndsWhatIsHeldUp) {
  Ranks ranks(2);
  const Buffer buffer(0, 1 << 20), other(0, 1 << 20);
  NCCL_OK(ncclAllReduce(buffer.at(), buffer.at(), 1 << 20, ncclInt8, ncclSum, ranks.comms[0],
                        ranks.streams[0].get()));
  // And what is behind it in the stream and has not begun.
  NCCL_OK(ncclRecv(other.at(), 1 << 20, ncclInt8, 1, ranks.comms[0], ranks.streams[0].get()));
  EXPECT_EQ(ranks.streams[0].Query(), CUDA_ERROR_NOT_READY);
  NCCL_OK(ncclCommAbort(ranks.comms[0]));
  ranks.comms[0] = nullptr;
  EXPECT_EQ(ranks.streams[0].Wait(), CUDA_SUCCESS);
  NCCL_OK(ncclCommAbort(ranks.comms[1]));
  ranks.comms[1] = nullptr;
}

TEST(Blocking, AbortByAnotherThreadEndsAWait) {
  Ranks ranks(2);
  const Buffer buffer(0, 64);
  NCCL_OK(ncclRecv(buffer.at(), 64, ncclInt8, 1, ranks.comms[0], ranks.streams[0].get()));
  std::thread waiting([&] { EXPECT_EQ(ranks.streams[0].Wait(), CUDA_SUCCESS); });
  NCCL_OK(ncclCommAbort(ranks.comms[0]));
  waiting.join();
  ranks.comms[0] = nullptr;
}

TEST(Blocking, RevokeEndsWhatIsHeldUpAndAllowsAShrink) {
  const Ranks ranks(3);
  const Buffer buffer(0, 64);
  NCCL_OK(ncclRecv(buffer.at(), 64, ncclInt8, 2, ranks.comms[0], ranks.streams[0].get()));
  for (int rank : {0, 1}) NCCL_OK(ncclCommRevoke(ranks.comms[rank], NCCL_REVOKE_DEFAULT));
  EXPECT_EQ(ranks.streams[0].Wait(), CUDA_SUCCESS);
  EXPECT_EQ(ncclRecv(buffer.at(), 64, ncclInt8, 2, ranks.comms[0], ranks.streams[0].get()), ncclInvalidUsage);
  int excluded[] = {2};
  std::vector<ncclComm_t> rest(2);
  NCCL_OK(ncclGroupStart());
  for (int rank : {0, 1})
    NCCL_OK(ncclCommShrink(ranks.comms[rank], excluded, 1, &rest[rank], nullptr, NCCL_SHRINK_ABORT));
  NCCL_OK(ncclGroupEnd());
  ExpectWorks(rest, {0, 1});
  for (ncclComm_t comm : rest) NCCL_OK(ncclCommDestroy(comm));
}

TEST(Blocking, StreamsOfOneGroupAreJoined) {
  const Ranks ranks(2);
  const Stream second(0);
  const Buffer one(0, 64), two(0, 64), from(1, 64, 7);
  Blocker blocker(second);
  NCCL_OK(ncclGroupStart());
  NCCL_OK(ncclRecv(one.at(), 64, ncclInt8, 1, ranks.comms[0], ranks.streams[0].get()));
  NCCL_OK(ncclRecv(two.at(), 64, ncclInt8, 1, ranks.comms[0], second.get()));
  for (int i = 0; i < 2; i++)
    NCCL_OK(ncclSend(from.at(), 64, ncclInt8, 0, ranks.comms[1], ranks.streams[1].get()));
  NCCL_OK(ncclGroupEnd());
  // Behind what is in the second stream.
  EXPECT_EQ(ranks.streams[0].Query(), CUDA_ERROR_NOT_READY);
  blocker.LetGo();
  EXPECT_EQ(second.Wait(), CUDA_SUCCESS);
  EXPECT_EQ(one.Bytes(), std::vector<uint8_t>(64, 7));
  EXPECT_EQ(two.Bytes(), std::vector<uint8_t>(64, 7));
}

// ---- Operations that do not fit

void ExpectMisfit(const std::function<void(const Ranks&, const std::vector<Buffer>&)>& launch) {
  Ranks ranks(2);
  std::vector<Buffer> buffers;
  for (int rank = 0; rank < 2; rank++) buffers.emplace_back(rank, 4096, 1);
  launch(ranks, buffers);
  std::set<ncclResult_t> states;
  for (ncclComm_t comm : ranks.comms) states.insert(AwaitState(comm, ncclSuccess));
  EXPECT_EQ(states.count(ncclInvalidUsage), 1u);
  EXPECT_EQ(states.count(ncclSuccess), 0u);
  EXPECT_EQ(ncclBcast(buffers[0].at(), 1, ncclInt8, 0, ranks.comms[0], ranks.streams[0].get()) == ncclSuccess,
            false);
  // As with NVIDIA's library the streams stand until the communicators are given up.
  for (ncclComm_t& comm : ranks.comms) {
    NCCL_OK(ncclCommAbort(comm));
    comm = nullptr;
  }
  ranks.Wait();
}

TEST(Misfits, SizesOfACollective) {
  ExpectMisfit([](const Ranks& ranks, const std::vector<Buffer>& buffers) {
    ranks.Group([&](int rank) {
      return ncclAllReduce(buffers[rank].at(), buffers[rank].at(), rank == 0 ? 4096 : 100, ncclInt8, ncclSum,
                           ranks.comms[rank], ranks.streams[rank].get());
    });
  });
}

TEST(Misfits, KindsOfCollectives) {
  ExpectMisfit([](const Ranks& ranks, const std::vector<Buffer>& buffers) {
    NCCL_OK(ncclBcast(buffers[0].at(), 64, ncclInt8, 0, ranks.comms[0], ranks.streams[0].get()));
    NCCL_OK(ncclAllReduce(buffers[1].at(), buffers[1].at(), 64, ncclInt8, ncclSum, ranks.comms[1],
                          ranks.streams[1].get()));
  });
}

TEST(Misfits, SizesOfAMessage) {
  ExpectMisfit([](const Ranks& ranks, const std::vector<Buffer>& buffers) {
    NCCL_OK(ncclSend(buffers[0].at(), 64, ncclInt8, 1, ranks.comms[0], ranks.streams[0].get()));
    NCCL_OK(ncclRecv(buffers[1].at(), 65, ncclInt8, 0, ranks.comms[1], ranks.streams[1].get()));
  });
}

// ---- Graphs

TEST(Graphs, EachLaunchIsAnOperation) {
  const Ranks ranks(2);
  std::vector<Buffer> buffers;
  std::vector<CUgraphExec> execs(2);
  for (int rank = 0; rank < 2; rank++) {
    const OnDevice on(rank);
    buffers.push_back(MakeBuffer(rank, std::vector<int32_t>(1000, rank + 1)));
    const CUstream stream = ranks.streams[rank].stream;
    ASSERT_EQ(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
    NCCL_OK(ncclAllReduce(buffers[rank].at(), buffers[rank].at(), 1000, ncclInt32, ncclSum, ranks.comms[rank],
                          ranks.streams[rank].get()));
    NCCL_OK(ncclGroupStart());
    // More than fit into a launch.
    for (int i = 0; i < 40; i++) {
      void* place = buffers[rank].at(static_cast<size_t>(i) * 4);
      NCCL_OK(rank == 0 ? ncclSend(place, 1, ncclInt32, 1, ranks.comms[0], ranks.streams[0].get())
                        : ncclRecv(place, 1, ncclInt32, 0, ranks.comms[1], ranks.streams[1].get()));
    }
    NCCL_OK(ncclGroupEnd());
    CUgraph graph = nullptr;
    ASSERT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphInstantiate(&execs[rank], graph, 0), CUDA_SUCCESS);
    ASSERT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  }
  const auto launch = [&](int rank) {
    const OnDevice on(rank);
    EXPECT_EQ(cuGraphLaunch(execs[rank], ranks.streams[rank].stream), CUDA_SUCCESS);
  };
  // Nothing ran while it was captured.
  EXPECT_EQ(buffers[0].As<int32_t>()[0], 1);
  int32_t expected = 3;
  for (int round = 0; round < 5; round++) {
    launch(0);
    EXPECT_EQ(ranks.streams[0].Query(), CUDA_ERROR_NOT_READY);
    launch(1);
    // Launches of graphs and plain operations take turns.
    ranks.Group([&](int rank) {
      return ncclAllReduce(buffers[rank].at(), buffers[rank].at(), 1000, ncclInt32, ncclMax,
                           ranks.comms[rank], ranks.streams[rank].get());
    });
    ranks.Wait();
    for (int rank = 0; rank < 2; rank++)
      ASSERT_EQ(buffers[rank].As<int32_t>(), std::vector<int32_t>(1000, expected));
    expected *= 2;
  }
  for (CUgraphExec exec : execs) EXPECT_EQ(cuGraphExecDestroy(exec), CUDA_SUCCESS);
}

// ---- Groups

TEST(Groups, SimulationDoesNothing) {
  const Ranks ranks(2);
  const Buffer buffer(0, 1 << 20, 5);
  NCCL_OK(ncclGroupStart());
  NCCL_OK(ncclAllReduce(buffer.at(), buffer.at(), 1 << 20, ncclInt8, ncclSum, ranks.comms[0],
                        ranks.streams[0].get()));
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  NCCL_OK(ncclGroupSimulateEnd(&info));
  EXPECT_GT(info.estimatedTime, 0);
  EXPECT_EQ(ranks.streams[0].Wait(), CUDA_SUCCESS);
  EXPECT_EQ(buffer.Bytes()[0], 5);
}

TEST(Groups, NestedGroupsEndWithTheOutermost) {
  const Ranks ranks(2);
  std::vector<Buffer> buffers;
  for (int rank = 0; rank < 2; rank++) buffers.push_back(MakeBuffer(rank, std::vector<int32_t>{1}));
  NCCL_OK(ncclGroupStart());
  for (int rank = 0; rank < 2; rank++) {
    NCCL_OK(ncclGroupStart());
    NCCL_OK(ncclAllReduce(buffers[rank].at(), buffers[rank].at(), 1, ncclInt32, ncclSum, ranks.comms[rank],
                          ranks.streams[rank].get()));
    NCCL_OK(ncclGroupEnd());
    EXPECT_EQ(buffers[0].As<int32_t>()[0], 1);
  }
  NCCL_OK(ncclGroupEnd());
  ranks.Wait();
  EXPECT_EQ(buffers[1].As<int32_t>()[0], 2);
}

// ---- Memory

TEST(Memory, AllocAndRegister) {
  const Ranks ranks(2);
  std::vector<void*> buffers(2);
  for (int rank = 0; rank < 2; rank++) {
    const OnDevice on(rank);
    NCCL_OK(ncclMemAlloc(&buffers[rank], 3 << 20));
    ASSERT_NE(buffers[rank], nullptr);
    ASSERT_EQ(cuMemsetD8(reinterpret_cast<CUdeviceptr>(buffers[rank]), 3, 3 << 20), CUDA_SUCCESS);
    ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  }
  void* handle = nullptr;
  ncclWindow_t window = nullptr;
  NCCL_OK(ncclCommRegister(ranks.comms[0], buffers[0], 3 << 20, &handle));
  NCCL_OK(ncclCommWindowRegister(ranks.comms[1], buffers[1], 3 << 20, &window, NCCL_WIN_COLL_SYMMETRIC));
  EXPECT_NE(handle, nullptr);
  EXPECT_NE(window, nullptr);
  ranks.Group([&](int rank) {
    return ncclAllReduce(buffers[rank], buffers[rank], 3 << 20, ncclUint8, ncclSum, ranks.comms[rank],
                         ranks.streams[rank].get());
  });
  ranks.Wait();
  uint8_t last = 0;
  const OnDevice on(0);
  ASSERT_EQ(cuMemcpyDtoH(&last, reinterpret_cast<CUdeviceptr>(buffers[0]) + (3 << 20) - 1, 1), CUDA_SUCCESS);
  EXPECT_EQ(last, 6);
  EXPECT_EQ(ncclCommDeregister(ranks.comms[1], handle), ncclInvalidArgument);
  NCCL_OK(ncclCommDeregister(ranks.comms[0], handle));
  EXPECT_EQ(ncclCommDeregister(ranks.comms[0], handle), ncclInvalidArgument);
  NCCL_OK(ncclCommWindowDeregister(ranks.comms[1], window));
  void* odd = static_cast<char*>(buffers[1]) + 8;
  EXPECT_EQ(ncclCommWindowRegister(ranks.comms[1], odd, 64, &window, NCCL_WIN_DEFAULT), ncclInvalidArgument);
  for (void* buffer : buffers) NCCL_OK(ncclMemFree(buffer));
}

// ---- What is left

std::set<std::string> Entries(const char* folder) {
  std::set<std::string> names;
  DIR* dir = opendir(folder);
  while (const dirent* entry = readdir(dir)) names.insert(entry->d_name);
  closedir(dir);
  return names;
}

size_t FreeOn(int device) {
  const OnDevice on(device);
  return FreeBytes();
}

size_t SharedMappings() {
  FILE* maps = fopen("/proc/self/maps", "re");
  char line[4096];
  size_t count = 0;
  while (fgets(line, sizeof line, maps) != nullptr) count += strstr(line, "softgpu-nccl") != nullptr;
  fclose(maps);
  return count;
}

TEST(Leaks, NothingIsLeftOfACommunicator) {
  const OnDevice first(0), second(1);
  { const Ranks warm(2); }
  const auto rounds = [](bool abort) {
    for (int i = 0; i < 10; i++) {
      Ranks ranks(2);
      std::vector<ncclComm_t> children(2);
      ranks.Group([&](int rank) { return ncclCommSplit(ranks.comms[rank], 0, 0, &children[rank], nullptr); });
      ExpectWorks(children, {0, 1});
      for (std::vector<ncclComm_t>* comms : {&children, &ranks.comms}) {
        for (ncclComm_t& comm : *comms) {
          EXPECT_NCCL_OK(abort ? ncclCommAbort(comm) : ncclCommDestroy(comm));
          comm = nullptr;
        }
      }
    }
  };
  rounds(false);
  const auto threads = Entries("/proc/self/task").size(), files = Entries("/proc/self/fd").size();
  const size_t memory = FreeOn(0), mappings = SharedMappings();
  EXPECT_EQ(mappings, 0u);
  for (bool abort : {false, true}) {
    rounds(abort);
    // The threads of the meetings end by themselves.
    EXPECT_TRUE(WithinASecond([&] { return Entries("/proc/self/task").size() <= threads; }));
    EXPECT_LE(Entries("/proc/self/fd").size(), files);
    EXPECT_EQ(FreeOn(0), memory);
    EXPECT_EQ(SharedMappings(), mappings);
  }
}

TEST(Leaks, HiddenMemoryIsOnTheDevice) {
  const OnDevice on(0);
  const size_t before = FreeOn(0);
  const Ranks ranks(1);
  EXPECT_LE(FreeOn(0) + (4 << 20), before);
}

}  // namespace
}  // namespace nccl
}  // namespace softgpu
