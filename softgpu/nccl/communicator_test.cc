// The life of communicators, groups, memory, and what is left of them.
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
    EXPECT_TRUE(WithinAMinute([&] { return Entries("/proc/self/task").size() <= threads; }));
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
