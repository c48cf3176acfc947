// A library that only says what it is told, and a program on it, for tests of the interposer's NCCL.
#ifndef INTERCEPT_LIBRARIES_NCCL_TESTING_H_
#define INTERCEPT_LIBRARIES_NCCL_TESTING_H_

#include <cuda.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ghost/cut.h"
#include "intercept/gate.h"
#include "intercept/libraries/library.h"
#include "intercept/libraries/library_gate.h"
#include "intercept/libraries/nccl_comms.h"
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
    if (no_room) return (t_refused = true), ncclSuccess;
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
    t_waiting.push_back(*place);
    return t_depth == 0 ? AwaitAll(lock) : ncclSuccess;
  }
  ncclResult_t GroupEnd() {
    std::unique_lock<std::mutex> lock(mutex);
    if (--t_depth != 0) return ncclSuccess;
    const ncclResult_t result = AwaitAll(lock);
    return std::exchange(t_refused, false) ? ncclUnhandledCudaError : result;
  }
  // Ranks of another process have come.
  void Arrive(const std::string& id, int ranks) {
    std::lock_guard<std::mutex> lock(mutex);
    arrived[id] += ranks;
    changed.notify_all();
  }
  ncclResult_t End(ncclComm_t comm) {
    std::lock_guard<std::mutex> lock(mutex);
    if (comms.erase(comm) == 0) return ncclInvalidArgument;
    delete comm;
    changed.notify_all();
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
  bool no_room = false;  // found out at the end of a group, before anybody is met
  bool finalize_blocks = false;
  std::atomic<int> ids{0}, issued{0};
  static inline thread_local int t_depth = 0;

 private:
  // For all ranks of what this thread makes, or until another one has aborted it.
  ncclResult_t AwaitAll(std::unique_lock<std::mutex>& lock) {
    bool aborted = false;
    for (ncclComm_t comm : std::exchange(t_waiting, {})) {
      const auto gone = [&] { return comms.count(comm) == 0; };
      changed.wait(lock, [&] { return gone() || remote_ranks || arrived[comm->id] >= comm->size; });
      aborted = aborted || gone();
    }
    return aborted ? ncclSystemError : ncclSuccess;
  }
  static inline thread_local std::vector<ncclComm_t> t_waiting;
  static inline thread_local bool t_refused = false;
};

inline FakeLibrary& Fake() { return FakeLibrary::Get(); }
// Takes the place of the library's functions.
void InstallFakes();

inline ncclResult_t Reduce(ncclComm_t comm, ncclRedOp_t op = ncclSum) {
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
    others_ = nullptr;
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
    key_ = CliqueKey(&id, 1);
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
  uint64_t key_ = 0;  // of InitShared()
  std::vector<TaskBlocker> blockers_;
  CutTargets targets_;  // the last ones
  std::function<std::vector<CutReport>(const CutTargets& targets)> others_;
};

}  // namespace stasis::nccl

#endif  // INTERCEPT_LIBRARIES_NCCL_TESTING_H_
