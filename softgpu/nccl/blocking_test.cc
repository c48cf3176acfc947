// Operations that are held up, given up or do not fit, and those in graphs.
#include <cstring>
#include <functional>
#include <set>
#include <thread>

#include "softgpu/driver/memory_testing.h"
#include "softgpu/nccl/nccl_testing.h"

namespace softgpu {

const std::vector<std::string> kDaemonOptions = {"--gpus", "3", "--memory", "256MiB"};

namespace nccl {
namespace {

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

}  // namespace
}  // namespace nccl
}  // namespace softgpu
