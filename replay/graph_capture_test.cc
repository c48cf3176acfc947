// Stream capture: a pause waits for its end, and the graphs it makes are as any other.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "intercept/capture_streams.h"
#include "intercept/gate.h"
#include "replay/graph_testing.h"

namespace stasis {
namespace {

using replay::PauseAndResume;
using replay::Refusal;
using testing::HasSubstr;

TEST_F(ReplayGraphTest, CapturedGraphs) {
  CUstream other = nullptr;
  CUevent fork = nullptr, join = nullptr;
  int calls = 0;
  ASSERT_CUDA_OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  ASSERT_CUDA_OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  ASSERT_CUDA_OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
  const auto store = [this](CUstream stream, size_t word, uint32_t value) {
    CUdeviceptr where = At(word);
    void* arguments[] = {&where, &value};
    EXPECT_CUDA_OK(cuLaunchKernel(store_, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr));
  };
  const auto capture = [&](uint32_t base) {
    CUgraph graph = nullptr;
    EXPECT_CUDA_OK(cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
    EXPECT_EQ(CapturesInProgress(), 1u);
    store(stream_, 1, base);
    EXPECT_CUDA_OK(cuEventRecord(fork, stream_));
    EXPECT_CUDA_OK(cuStreamWaitEvent(other, fork, 0));
    store(other, 2, base + 1);
    EXPECT_CUDA_OK(cuMemsetD32Async(At(4), base, 2, stream_));
    EXPECT_CUDA_OK(cuEventRecord(join, other));
    EXPECT_CUDA_OK(cuStreamWaitEvent(stream_, join, 0));
    EXPECT_CUDA_OK(cuMemcpyDtoDAsync_v2(At(3), At(2), 4, stream_));
    EXPECT_CUDA_OK(cuLaunchHostFunc(stream_, Count, &calls));
    EXPECT_CUDA_OK(cuStreamEndCapture(stream_, &graph));
    EXPECT_EQ(CapturesInProgress(), 0u);
    return graph;
  };
  const CUgraph graph = capture(100);
  const CUgraphExec exec = Instantiate(graph);
  const Words undisturbed = Run(exec);
  EXPECT_EQ(undisturbed[3], 101u);
  const Nodes nodes = NodesOf(graph);
  PauseAndResume();
  EXPECT_EQ(NodesOf(graph), nodes);
  EXPECT_EQ(Run(exec), undisturbed);
  EXPECT_EQ(calls, 2);
  // A graph of the new driver updates what the old one instantiated, and both survive another pause.
  const CUgraph next = capture(200);
  CUgraphExecUpdateResultInfo info{};
  ASSERT_CUDA_OK(cuGraphExecUpdate_v2(exec, next, &info));
  const Words updated = Run(exec);
  EXPECT_EQ(updated[3], 201u);
  ASSERT_CUDA_OK(cuGraphDestroy(next));
  PauseAndResume();
  EXPECT_EQ(Run(exec), updated);
  EXPECT_EQ(Run(Instantiate(graph)), undisturbed);
  ASSERT_CUDA_OK(cuGraphExecUpdate_v2(exec, graph, &info));
  EXPECT_EQ(Run(exec), undisturbed);
  EXPECT_CUDA_OK(cuGraphDestroy(graph));
  for (const replay::RecordPtr& record : replay::ObjectTable::Get().InOrder(replay::ObjectKind::kGraphExec)) {
    EXPECT_CUDA_OK(cuGraphExecDestroy(reinterpret_cast<CUgraphExec>(record->visible())));
  }
  EXPECT_CUDA_OK(cuStreamDestroy_v2(other));
  EXPECT_CUDA_OK(cuEventDestroy_v2(fork));
  EXPECT_CUDA_OK(cuEventDestroy_v2(join));
}

TEST_F(ReplayGraphTest, CapturesAreCounted) {
  CUgraph graph = nullptr;
  CUstream doomed = nullptr;
  // Invalidated: it goes on until it is ended.
  ASSERT_CUDA_OK(cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_NE(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(CapturesInProgress(), 1u);
  ASSERT_EQ(CaptureBlockers().size(), 1u);
  EXPECT_EQ(CaptureBlockers()[0].tid, gettid());
  EXPECT_FALSE(WaitForCaptures(Deadline::After(std::chrono::milliseconds(1))));
  EXPECT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(CapturesInProgress(), 0u);
  EXPECT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(CapturesInProgress(), 0u);
  // Ended by the end of its stream, or of its context.
  ASSERT_CUDA_OK(cuStreamCreate(&doomed, CU_STREAM_NON_BLOCKING));
  ASSERT_CUDA_OK(cuStreamBeginCapture_v2(doomed, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_CUDA_OK(cuStreamDestroy_v2(doomed));
  EXPECT_EQ(CapturesInProgress(), 0u);
  CUcontext made = nullptr, popped = nullptr;
  ASSERT_CUDA_OK(cuCtxCreate_v2(&made, 0, 0));
  ASSERT_CUDA_OK(cuStreamBeginCapture_v2(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_EQ(CapturesInProgress(), 1u);
  static_cast<void>(popped);
  ASSERT_CUDA_OK(cuCtxDestroy_v2(made));
  ASSERT_CUDA_OK(cuCtxSetCurrent(context_));
  EXPECT_EQ(CapturesInProgress(), 0u);
  // A wait ends with the capture.
  ASSERT_CUDA_OK(cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
  std::thread waiter([] { EXPECT_TRUE(WaitForCaptures(Deadline::After(std::chrono::seconds(20)))); });
  CUstreamCaptureStatus status;
  cuuint64_t id = 0;
  CUgraph going = nullptr;
  ASSERT_CUDA_OK(cuStreamGetCaptureInfo_v2(stream_, &status, &id, &going, nullptr, nullptr));
  ASSERT_CUDA_OK(cuStreamEndCapture(stream_, &graph));
  waiter.join();
  EXPECT_EQ(graph, going);
  EXPECT_CUDA_OK(cuGraphDestroy(graph));
}

TEST_F(ReplayGraphTest, CaptureInfoAfterARebuild) {
  PauseAndResume();
  CUgraph graph = nullptr, going = nullptr;
  ASSERT_CUDA_OK(cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
  CUdeviceptr where = At(1);
  uint32_t value = 9;
  void* arguments[] = {&where, &value};
  ASSERT_CUDA_OK(cuLaunchKernel(store_, 1, 1, 1, 1, 1, 1, 0, stream_, arguments, nullptr));
  CUstreamCaptureStatus status;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  size_t count = 0;
  ASSERT_CUDA_OK(cuStreamGetCaptureInfo_v3(stream_, &status, nullptr, &going, &nodes, &edges, &count));
  ASSERT_EQ(count, 1u);
  // The program adds a node of its own and goes on behind it.
  CUgraphNode added = AddStore(going, {nodes[0]}, 2, 8);
  ASSERT_CUDA_OK(cuStreamUpdateCaptureDependencies(stream_, &added, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  ASSERT_CUDA_OK(cuStreamEndCapture(stream_, &graph));
  EXPECT_EQ(graph, going);
  const CUgraphExec exec = Instantiate(graph);
  PauseAndResume();
  const Words words = Run(exec);
  EXPECT_EQ(words[1], 9u);
  EXPECT_EQ(words[2], 8u);
  EXPECT_CUDA_OK(cuGraphExecDestroy(exec));
  EXPECT_CUDA_OK(cuGraphDestroy(graph));
  // One that fails leaves nothing behind.
  const size_t before = replay::ObjectTable::Get().size();
  ASSERT_CUDA_OK(cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_CUDA_OK(cuStreamGetCaptureInfo_v2(stream_, &status, nullptr, &going, nullptr, nullptr));
  EXPECT_NE(cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(replay::ObjectTable::Get().size(), before);
}

// In every mode a capture is there, and its graph is made again; what is forked to another stream belongs to
// it.
TEST_F(ReplayGraphTest, ForkedCapturesInEveryMode) {
  CUstream side = nullptr;
  CUevent fork = nullptr, join = nullptr;
  ASSERT_CUDA_OK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
  ASSERT_CUDA_OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  ASSERT_CUDA_OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
  for (const CUstreamCaptureMode mode :
       {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED}) {
    for (int round = 0; round < 2; ++round) {
      ASSERT_CUDA_OK(cuStreamBeginCapture_v2(stream_, mode));
      EXPECT_EQ(CapturesInProgress(), 1u);
      ASSERT_CUDA_OK(cuEventRecord(fork, stream_));
      ASSERT_CUDA_OK(cuStreamWaitEvent(side, fork, 0));
      EXPECT_EQ(CapturesInProgress(), 1u) << "the same one";
      uint32_t value = 5;
      CUdeviceptr where = At(1);
      void* arguments[] = {&where, &value};
      ASSERT_CUDA_OK(cuLaunchKernel(store_, 1, 1, 1, 1, 1, 1, 0, stream_, arguments, nullptr));
      where = At(2);
      value = 6;
      ASSERT_CUDA_OK(cuLaunchKernel(store_, 1, 1, 1, 1, 1, 1, 0, side, arguments, nullptr));
      ASSERT_CUDA_OK(cuEventRecord(join, side));
      ASSERT_CUDA_OK(cuStreamWaitEvent(stream_, join, 0));
      CUgraph graph = nullptr;
      ASSERT_CUDA_OK(cuStreamEndCapture(stream_, &graph));
      EXPECT_EQ(CapturesInProgress(), 0u);
      const CUgraphExec exec = Instantiate(graph);
      PauseAndResume();
      const Words words = Run(exec);
      EXPECT_EQ(words[1], 5u);
      EXPECT_EQ(words[2], 6u);
      EXPECT_EQ(NodesOf(graph).size(), 2u);
      EXPECT_CUDA_OK(cuGraphExecDestroy(exec));
      EXPECT_CUDA_OK(cuGraphDestroy(graph));
    }
  }
  // One that is not joined fails, and is over.
  CUgraph graph = nullptr;
  ASSERT_CUDA_OK(cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
  ASSERT_CUDA_OK(cuEventRecord(fork, stream_));
  ASSERT_CUDA_OK(cuStreamWaitEvent(side, fork, 0));
  CUdeviceptr where = At(1);
  uint32_t value = 5;
  void* arguments[] = {&where, &value};
  ASSERT_CUDA_OK(cuLaunchKernel(store_, 1, 1, 1, 1, 1, 1, 0, side, arguments, nullptr));
  EXPECT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_EQ(CapturesInProgress(), 0u);
  PauseAndResume();
  EXPECT_CUDA_OK(cuEventDestroy_v2(fork));
  EXPECT_CUDA_OK(cuEventDestroy_v2(join));
  EXPECT_CUDA_OK(cuStreamDestroy_v2(side));
}

// The nodes go behind those that are there, under the handles of the last driver.
TEST_F(ReplayGraphTest, CapturesIntoAGraphThatIsThere) {
  const CUgraph graph = NewGraph();
  const CUgraphNode first = AddStore(graph, {}, 1, 3);
  PauseAndResume();
  ASSERT_CUDA_OK(
      cuStreamBeginCaptureToGraph(stream_, graph, &first, nullptr, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_EQ(CapturesInProgress(), 1u);
  CUdeviceptr where = At(1);
  uint32_t value = 4;
  void* arguments[] = {&where, &value};
  ASSERT_CUDA_OK(cuLaunchKernel(store_, 1, 1, 1, 1, 1, 1, 0, stream_, arguments, nullptr));
  CUgraph captured = nullptr;
  ASSERT_CUDA_OK(cuStreamEndCapture(stream_, &captured));
  EXPECT_EQ(captured, graph);
  EXPECT_EQ(CapturesInProgress(), 0u);
  PauseAndResume();
  const Nodes nodes = NodesOf(graph);
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0], first);
  EXPECT_EQ(DependenciesOf(nodes[1]), Nodes{first});
  const CUgraphExec exec = Instantiate(graph);
  EXPECT_EQ(Run(exec)[1], 4u);
  EXPECT_CUDA_OK(cuGraphExecDestroy(exec));
  EXPECT_CUDA_OK(cuGraphDestroy(graph));
}

// The mode of a thread is the thread's own in the next driver, too.
TEST_F(ReplayGraphTest, TheCaptureModeOfAThreadStays) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  ASSERT_CUDA_OK(cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
  PauseAndResume();
  CUgraph graph = nullptr;
  ASSERT_CUDA_OK(cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
  void* memory = nullptr;
  EXPECT_CUDA_OK(cuMemHostAlloc(&memory, 64, 0)) << "unsafe, and allowed to a thread that is relaxed";
  EXPECT_CUDA_OK(cuStreamEndCapture(stream_, &graph));
  EXPECT_CUDA_OK(cuMemFreeHost(memory));
  EXPECT_CUDA_OK(cuGraphDestroy(graph));
  mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  ASSERT_CUDA_OK(cuThreadExchangeStreamCaptureMode(&mode));
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
}

// Refused for as long as the graph or its executable form is there, and no longer.
TEST_F(ReplayGraphTest, CapturedAllocationsAreRefusedByName) {
  CUdeviceptr memory = 0;
  CUgraph graph = nullptr;
  ASSERT_CUDA_OK(cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  ASSERT_CUDA_OK(cuMemAllocAsync(&memory, 4096, stream_));
  ASSERT_CUDA_OK(cuMemsetD32Async(memory, 9, 1, stream_));
  ASSERT_CUDA_OK(cuMemcpyDtoDAsync_v2(At(1), memory, 4, stream_));
  ASSERT_CUDA_OK(cuMemFreeAsync(memory, stream_));
  ASSERT_CUDA_OK(cuStreamEndCapture(stream_, &graph));
  EXPECT_THAT(Refusal(), HasSubstr("cuMemAllocAsync in a capture"));
  const CUgraphExec exec = Instantiate(graph);
  EXPECT_EQ(Run(exec)[1], 9u);
  EXPECT_CUDA_OK(cuGraphDestroy(graph));
  EXPECT_THAT(Refusal(), HasSubstr("cuMemAllocAsync in a capture"));
  EXPECT_EQ(Run(exec)[1], 9u) << "the refusals have left it alone";
  EXPECT_CUDA_OK(cuGraphExecDestroy(exec));
  EXPECT_EQ(Refusal(), "");
  PauseAndResume();
}

}  // namespace
}  // namespace stasis

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const stasis::vmm::TestNode node({"--gpus", "2", "--memory", "256MiB"});
  setenv("STASIS_DRIVER", LIBCUDA_PATH, 1);
  return RUN_ALL_TESTS();
}
