// The interposer's NCCL on a library that only says what it is told: what reaches the library, and what the
// program gets to see.
#include "intercept/libraries/nccl_library.h"

#include <cuda.h>
#include <gtest/gtest.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "ghost/cut.h"
#include "intercept/futex.h"
#include "intercept/gate.h"
#include "intercept/libraries/library.h"
#include "intercept/libraries/library_gate.h"
#include "intercept/libraries/nccl_cliques.h"
#include "intercept/libraries/nccl_watchdog.h"
#include "intercept/libraries/real_functions.h"
#include "vmm/testing.h"

// What the program's handles point to.
struct ncclComm {
  int size = 0, rank = 0;
  CUdevice device = -1;
  std::string id, net_name;
  int blocking = 1;
  std::atomic<ncclResult_t> state{ncclSuccess};
  bool finalized = false;
  int operators = 0, buffers = 0, windows = 0;
};

namespace stasis::nccl {
namespace {

using libraries::LibraryFn;
using std::chrono::milliseconds;
using std::chrono::seconds;

class FakeLibrary {
 public:
  static FakeLibrary& Get() {
    static FakeLibrary* const library = new FakeLibrary;
    return *library;
  }
  ncclResult_t Init(ncclComm_t* place, int size, const std::string& id, int rank,
                    const ncclConfig_t* config) {
    std::unique_lock<std::mutex> lock(mutex);
    if (refuse_inits) return ncclSystemError;
    auto comm = std::make_unique<ncclComm>();
    comm->size = size;
    comm->rank = rank;
    comm->id = id;
    (void)::cuCtxGetDevice(&comm->device);
    if (config != nullptr && config->netName != nullptr) comm->net_name = config->netName;
    if (config != nullptr) comm->blocking = config->blocking;
    *place = comm.get();
    comms.insert(comm.release());
    ++arrived[id];
    changed.notify_all();
    if ((*place)->blocking == 0) return ((*place)->state = ncclInProgress);
    if (t_depth == 0) changed.wait(lock, [&] { return arrived[id] >= size || remote_ranks; });
    return ncclSuccess;
  }
  ncclResult_t End(ncclComm_t comm) {
    std::lock_guard<std::mutex> lock(mutex);
    if (comms.erase(comm) == 0) return ncclInvalidArgument;
    delete comm;
    return ncclSuccess;
  }
  // An abort by another thread may end the communicator meanwhile.
  ncclResult_t Finalize(ncclComm_t comm) {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return !finalize_blocks; });
    if (comms.count(comm) == 0) return ncclSystemError;
    comm->finalized = true;
    return ncclSuccess;
  }
  void LetFinalize() {
    std::lock_guard<std::mutex> lock(mutex);
    finalize_blocks = false;
    changed.notify_all();
  }
  bool Has(ncclComm_t comm) {
    std::lock_guard<std::mutex> lock(mutex);
    return comms.count(comm) != 0;
  }
  // By rank.
  std::vector<ncclComm_t> Comms() {
    std::lock_guard<std::mutex> lock(mutex);
    std::vector<ncclComm_t> all(comms.begin(), comms.end());
    std::sort(all.begin(), all.end(), [](ncclComm_t a, ncclComm_t b) { return a->rank < b->rank; });
    return all;
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::set<ncclComm_t> comms;
  std::map<std::string, int> arrived;
  bool remote_ranks = false;  // nobody waits for those that are elsewhere
  bool refuse_inits = false;
  bool finalize_blocks = false;
  std::atomic<int> ids{0}, issued{0};
  static thread_local int t_depth;
};
thread_local int FakeLibrary::t_depth = 0;

FakeLibrary& Fake() { return FakeLibrary::Get(); }
std::string IdText(const ncclUniqueId& id) { return id.internal; }

ncclResult_t FakeGetUniqueId(ncclUniqueId* id) {
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "id %d", Fake().ids++);
  return ncclSuccess;
}
ncclResult_t FakeInitRank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  return Fake().Init(comm, size, IdText(id), rank, nullptr);
}
ncclResult_t FakeInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t* config) {
  return Fake().Init(comm, size, IdText(id), rank, config);
}
ncclResult_t FakeSplit(ncclComm_t comm, int color, int key, ncclComm_t* child, ncclConfig_t*) {
  if (color < 0) return *child = nullptr, ncclSuccess;
  return Fake().Init(child, comm->size, comm->id + " split " + std::to_string(color), key, nullptr);
}
ncclResult_t FakeFinalize(ncclComm_t comm) { return Fake().Finalize(comm); }
ncclResult_t FakeDestroy(ncclComm_t comm) { return Fake().End(comm); }
ncclResult_t FakeAbort(ncclComm_t comm) {
  Fake().LetFinalize();
  return Fake().End(comm);
}
// As the real one: it must not be asked about a communicator that is gone.
ncclResult_t FakeAsyncError(ncclComm_t comm, ncclResult_t* state) {
  EXPECT_TRUE(Fake().Has(comm));
  *state = comm->state;
  return ncclSuccess;
}
ncclResult_t FakeCount(const ncclComm_t comm, int* count) { return *count = comm->size, ncclSuccess; }
ncclResult_t FakeRank(const ncclComm_t comm, int* rank) { return *rank = comm->rank, ncclSuccess; }
ncclResult_t FakeDevice(const ncclComm_t comm, int* device) { return *device = comm->device, ncclSuccess; }
const char* FakeLastError(ncclComm_t) { return "the cable is out"; }
ncclResult_t FakeAllReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t) {
  if (!Fake().Has(comm) || static_cast<int>(op) >= static_cast<int>(ncclNumOps) + comm->operators)
    return ncclInvalidArgument;
  ++Fake().issued;
  return ncclSuccess;
}
ncclResult_t FakeGroupStart() { return ++FakeLibrary::t_depth, ncclSuccess; }
ncclResult_t FakeGroupEnd() { return --FakeLibrary::t_depth, ncclSuccess; }
ncclResult_t FakeOperator(ncclRedOp_t* op, void*, ncclDataType_t, ncclScalarResidence_t, ncclComm_t comm) {
  *op = static_cast<ncclRedOp_t>(static_cast<int>(ncclNumOps) + comm->operators++);
  return ncclSuccess;
}
ncclResult_t FakeRegister(const ncclComm_t comm, void*, size_t, void** handle) {
  ++comm->buffers;
  *handle = &comm->buffers;
  return ncclSuccess;
}
ncclResult_t FakeDeregister(const ncclComm_t comm, void* handle) {
  return handle == &comm->buffers ? ncclSuccess : ncclInvalidArgument;
}
ncclResult_t FakeWindow(ncclComm_t comm, void*, size_t, ncclWindow_t* window, int) {
  ++comm->windows;
  *window = reinterpret_cast<ncclWindow_t>(&comm->windows);
  return ncclSuccess;
}

template <typename Function>
void Install(LibraryFn function, Function* fake) {
  libraries::internal::g_real_functions[static_cast<uint32_t>(function)].store(reinterpret_cast<void*>(fake));
}

void InstallFakes() {
  Install(LibraryFn::ncclGetUniqueId, FakeGetUniqueId);
  Install(LibraryFn::ncclCommInitRank, FakeInitRank);
  Install(LibraryFn::ncclCommInitRankConfig, FakeInitRankConfig);
  Install(LibraryFn::ncclCommSplit, FakeSplit);
  Install(LibraryFn::ncclCommFinalize, FakeFinalize);
  Install(LibraryFn::ncclCommDestroy, FakeDestroy);
  Install(LibraryFn::ncclCommAbort, FakeAbort);
  Install(LibraryFn::ncclCommGetAsyncError, FakeAsyncError);
  Install(LibraryFn::ncclCommCount, FakeCount);
  Install(LibraryFn::ncclCommUserRank, FakeRank);
  Install(LibraryFn::ncclCommCuDevice, FakeDevice);
  Install(LibraryFn::ncclGetLastError, FakeLastError);
  Install(LibraryFn::ncclAllReduce, FakeAllReduce);
  Install(LibraryFn::ncclGroupStart, FakeGroupStart);
  Install(LibraryFn::ncclGroupEnd, FakeGroupEnd);
  Install(LibraryFn::ncclRedOpCreatePreMulSum, FakeOperator);
  Install(LibraryFn::ncclCommRegister, FakeRegister);
  Install(LibraryFn::ncclCommDeregister, FakeDeregister);
  Install(LibraryFn::ncclCommWindowRegister, FakeWindow);
}

ncclResult_t Reduce(ncclComm_t comm, ncclRedOp_t op = ncclSum) {
  return ::ncclAllReduce(nullptr, nullptr, 1, ncclInt, op, comm, nullptr);
}

class NcclLibraryTest : public testing::Test {
 protected:
  void SetUp() override {
    node_ = std::make_unique<vmm::TestNode>(std::vector<std::string>{"--gpus", "2", "--memory", "64MiB"});
    contexts_[0] = vmm::OpenOn(0);
    ASSERT_CUDA_OK(::cuDevicePrimaryCtxRetain(&contexts_[1], 1));
    RegisterGateBarrier();
    InstallFakes();
  }
  void TearDown() override {
    Open();
    EXPECT_TRUE(Fake().Comms().empty()) << "communicators left over";
    vmm::CloseAll(2);
  }

  // What rank r does, in a thread of its own, on device r.
  template <typename Function>
  std::thread OnRank(int r, Function f) {
    return std::thread([this, r, f] {
      ASSERT_CUDA_OK(::cuCtxSetCurrent(contexts_[r]));
      f();
    });
  }
  void InitTwo(const ncclConfig_t* config = nullptr) {
    ncclUniqueId id;
    ASSERT_EQ(::ncclGetUniqueId(&id), ncclSuccess);
    std::vector<std::thread> threads;
    for (int r = 0; r < 2; ++r)
      threads.push_back(OnRank(r, [this, id, r, config] {
        ncclConfig_t copy = NCCL_CONFIG_INITIALIZER;
        if (config != nullptr) copy = *config;
        const ncclResult_t result = config == nullptr ? ::ncclCommInitRank(&comms_[r], 2, id, r)
                                                      : ::ncclCommInitRankConfig(&comms_[r], 2, id, r, &copy);
        EXPECT_TRUE(result == ncclSuccess || result == ncclInProgress);
      }));
    for (std::thread& thread : threads) thread.join();
  }

  // One rank of a communicator whose others are in other processes.
  void InitShared(int size, int rank) {
    Fake().remote_ranks = true;
    ncclUniqueId id;
    ASSERT_EQ(::ncclGetUniqueId(&id), ncclSuccess);
    ASSERT_EQ(::ncclCommInitRank(&comms_[0], size, id, rank), ncclSuccess);
    Fake().remote_ranks = false;
  }

  // As the ghost does it, with the reports of others_ as those of other processes. What is missing is in
  // blockers_.
  Status FindCut(const Deadline& deadline) {
    CutSearch search;
    for (;;) {
      ASSIGN_OR_RETURN(CutReport report,
                       libraries::AdvanceLibraries(search.targets(), milliseconds(5), deadline));
      blockers_ = report.missing;
      std::vector<CutReport> reports =
          others_ == nullptr ? std::vector<CutReport>() : others_(search.targets());
      reports.insert(reports.begin(), std::move(report));
      search.Take(reports, Clock::Real().Now());
      targets_ = search.targets();
      if (search.settled()) return {};
      RETURN_IF_ERROR(search.refused());
      if (deadline.Expired()) return Status(StatusCode::kTimeout, "NCCL: " + search.Missing());
    }
  }
  // As task_server does it.
  Status Stop(Duration limit = seconds(20)) {
    const Deadline deadline = Deadline::After(limit);
    RETURN_IF_ERROR(libraries::ShutLibraryGate());
    RETURN_IF_ERROR(FindCut(deadline));
    RETURN_IF_ERROR(libraries::AwaitLibraryCalls(deadline, &blockers_));
    RETURN_IF_ERROR(CloseGate(deadline, &blockers_));
    return libraries::CheckLibraries();
  }
  Status GiveUp() {
    const libraries::LibraryWork work;
    return libraries::GiveUpLibraries();
  }
  Status Rebuild() {
    const libraries::LibraryWork work;
    return libraries::RebuildLibraries();
  }
  static void Open() {
    OpenGate();
    libraries::OpenLibraryGate();
  }
  void PauseAndResume() {
    std::thread([this] {
      EXPECT_STATUS_OK(Stop());
      EXPECT_STATUS_OK(GiveUp());
      EXPECT_TRUE(Fake().Comms().empty());
      EXPECT_STATUS_OK(Rebuild());
      Open();
    }).join();
  }
  // What a pause has against the program.
  std::string Refusal(Duration limit = seconds(20)) {
    std::string message;
    std::thread([&] {
      const Status status = Stop(limit);
      message = std::string(status.message());
      Open();
    }).join();
    return message;
  }
  void DestroyTwo() {
    for (ncclComm_t& comm : comms_) EXPECT_EQ(::ncclCommDestroy(comm), ncclSuccess);
  }

  std::unique_ptr<vmm::TestNode> node_;
  CUcontext contexts_[2] = {};
  ncclComm_t comms_[2] = {};
  std::vector<TaskBlocker> blockers_;
  CutTargets targets_;  // the last ones
  std::function<std::vector<CutReport>(const CutTargets& targets)> others_;
};

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
