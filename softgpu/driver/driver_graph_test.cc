// Graphs and stream capture on a real daemon.
#include <cstring>
#include <thread>

#include "softgpu/driver/memory_testing.h"

namespace softgpu {

const std::vector<std::string> kDaemonOptions = {"--gpus", "1", "--memory", "512MiB"};

namespace {

#define OK(call) ASSERT_EQ(call, CUDA_SUCCESS)
#define EXPECT_OK(call) EXPECT_EQ(call, CUDA_SUCCESS)

class GraphTest : public testing::Test {
 protected:
  void SetUp() override {
    UseDevice();
    OK(cuMemAlloc(&word_, 64));
    OK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    OK(cuStreamCreate(&other_, CU_STREAM_NON_BLOCKING));
    OK(cuModuleLoadData(&module_, kTestPtx));
    OK(cuModuleGetFunction(&store_, module_, "store"));
  }
  void TearDown() override {
    EXPECT_OK(cuStreamDestroy(stream_));
    EXPECT_OK(cuStreamDestroy(other_));
    EXPECT_OK(cuModuleUnload(module_));
    EXPECT_OK(cuMemFree(word_));
  }
  CUDA_KERNEL_NODE_PARAMS Store(uint64_t value) {
    value_ = value;
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = store_;
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = params_;
    return params;
  }
  CUresult LaunchStore(uint64_t value, CUstream stream) {
    value_ = value;
    return cuLaunchKernel(store_, 1, 1, 1, 1, 1, 1, 0, stream, params_, nullptr);
  }
  uint32_t Read() {
    uint32_t seen = 0;
    EXPECT_OK(cuMemcpyDtoH(&seen, word_, 4));
    return seen;
  }
  void Run(CUgraphExec exec) {
    EXPECT_OK(cuGraphLaunch(exec, stream_));
    EXPECT_OK(cuStreamSynchronize(stream_));
  }

  CUdeviceptr word_ = 0;
  uint64_t value_ = 0;
  void* params_[2] = {&word_, &value_};
  CUstream stream_ = nullptr, other_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction store_ = nullptr;
};

// An allocation and a free in a capture are nodes; each execution has the memory at the same address.
TEST_F(GraphTest, StreamOrderedMemoryInACaptureBelongsToTheGraph) {
  CUdeviceptr memory = 0, other = 0;
  CUgraph graph = nullptr;
  OK(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  OK(cuMemAllocAsync(&memory, 4096, stream_));
  OK(cuMemsetD32Async(memory, 7, 1024, stream_));
  OK(cuMemcpyDtoDAsync(word_, memory + 4000, 4, stream_));
  EXPECT_EQ(cuMemFreeAsync(word_, stream_), CUDA_ERROR_INVALID_VALUE) << "not of this graph";
  OK(cuMemFreeAsync(memory, stream_));
  EXPECT_EQ(cuMemFreeAsync(memory, stream_), CUDA_ERROR_INVALID_VALUE) << "twice";
  OK(cuStreamEndCapture(stream_, &graph));
  size_t count = 0;
  EXPECT_OK(cuGraphGetNodes(graph, nullptr, &count));
  EXPECT_EQ(count, 4u);
  CUgraphNode root = nullptr;
  count = 1;
  EXPECT_OK(cuGraphGetRootNodes(graph, &root, &count));
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  EXPECT_OK(cuGraphMemAllocNodeGetParams(root, &params));
  EXPECT_EQ(params.dptr, memory);
  EXPECT_EQ(params.bytesize, 4096u);
  CUgraphExec exec = nullptr;
  OK(cuGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 2; ++i) {
    OK(cuMemsetD32(word_, 0, 1));
    Run(exec);
    EXPECT_EQ(Read(), 7u);
  }
  cuuint64_t used = 1;
  EXPECT_OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
  EXPECT_EQ(used, 0u);
  OK(cuMemAlloc(&other, 4096));
  EXPECT_NE(other, memory);
  EXPECT_OK(cuMemFree(other));
  EXPECT_OK(cuGraphExecDestroy(exec));
  EXPECT_OK(cuGraphDestroy(graph));
}

void Count(void* data) { __atomic_add_fetch(static_cast<int*>(data), 1, __ATOMIC_RELAXED); }

TEST_F(GraphTest, RunsNodesInTheOrderOfTheirDependencies) {
  CUgraph graph;
  CUgraphNode set, store, copy, host;
  uint32_t seen = 0;
  int calls = 0;
  OK(cuGraphCreate(&graph, 0));
  CUDA_MEMSET_NODE_PARAMS memset_params{word_, 0, 0xff, 1, 4, 1};
  CUcontext context;
  OK(cuCtxGetCurrent(&context));
  OK(cuGraphAddMemsetNode(&set, graph, nullptr, 0, &memset_params, context));
  CUDA_KERNEL_NODE_PARAMS kernel_params = Store(5);
  OK(cuGraphAddKernelNode(&store, graph, &set, 1, &kernel_params));
  CUDA_MEMCPY3D copy_params{};
  copy_params.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy_params.srcDevice = word_;
  copy_params.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy_params.dstHost = &seen;
  copy_params.WidthInBytes = 4;
  copy_params.Height = copy_params.Depth = 1;
  OK(cuGraphAddMemcpyNode(&copy, graph, &store, 1, &copy_params, context));
  CUDA_HOST_NODE_PARAMS host_params{Count, &calls};
  OK(cuGraphAddHostNode(&host, graph, &copy, 1, &host_params));
  CUgraphExec exec;
  OK(cuGraphInstantiate(&exec, graph, 0));
  Run(exec);
  EXPECT_EQ(seen, 5u);
  EXPECT_EQ(calls, 1);

  // Parameters of the executable form alone, then of the graph with an update.
  kernel_params = Store(6);
  OK(cuGraphExecKernelNodeSetParams(exec, store, &kernel_params));
  Run(exec);
  EXPECT_EQ(seen, 6u);
  kernel_params = Store(7);
  OK(cuGraphKernelNodeSetParams(store, &kernel_params));
  CUgraphExecUpdateResultInfo info;
  OK(cuGraphExecUpdate(exec, graph, &info));
  Run(exec);
  EXPECT_EQ(seen, 7u);
  EXPECT_EQ(calls, 3);
  OK(cuGraphNodeSetEnabled(exec, store, 0));
  Run(exec);
  EXPECT_EQ(seen, 0xffffffffu);

  CUDA_KERNEL_NODE_PARAMS asked{};
  OK(cuGraphKernelNodeGetParams(store, &asked));
  EXPECT_EQ(asked.func, store_);
  EXPECT_EQ(*static_cast<uint64_t*>(asked.kernelParams[1]), 7u);
  OK(cuGraphAddHostNode(&host, graph, nullptr, 0, &host_params));
  EXPECT_EQ(cuGraphExecUpdate(exec, graph, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
  CUgraphNodeType type;
  EXPECT_EQ(cuGraphNodeGetType(store, &type), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(GraphTest, ShapeQueriesCyclesAndClones) {
  CUgraph graph, clone;
  CUgraphNode a, b, c, twin;
  OK(cuGraphCreate(&graph, 0));
  OK(cuGraphAddEmptyNode(&a, graph, nullptr, 0));
  OK(cuGraphAddEmptyNode(&b, graph, &a, 1));
  OK(cuGraphAddEmptyNode(&c, graph, &a, 1));
  size_t count = 0;
  OK(cuGraphGetNodes(graph, nullptr, &count));
  EXPECT_EQ(count, 3u);
  OK(cuGraphGetRootNodes(graph, nullptr, &count));
  EXPECT_EQ(count, 1u);
  CUgraphNode from[4], to[4];
  count = 4;
  OK(cuGraphGetEdges(graph, from, to, nullptr, &count));
  EXPECT_EQ(count, 2u);
  EXPECT_EQ(from[0], a);
  EXPECT_EQ(from[3], nullptr);
  EXPECT_EQ(cuGraphAddDependencies(graph, &a, &b, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
  OK(cuGraphAddDependencies(graph, &b, &c, nullptr, 1));
  OK(cuGraphClone(&clone, graph));
  OK(cuGraphNodeFindInClone(&twin, c, clone));
  OK(cuGraphNodeGetDependencies(twin, nullptr, nullptr, &count));
  EXPECT_EQ(count, 2u);
  OK(cuGraphAddDependencies(graph, &c, &a, nullptr, 1));
  CUgraphExec exec;
  EXPECT_EQ(cuGraphInstantiate(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuGraphInstantiate(&exec, clone, 0));
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroyNode(a));
  OK(cuGraphGetNodes(graph, nullptr, &count));
  EXPECT_EQ(count, 2u);
  OK(cuGraphDestroy(graph));
  OK(cuGraphDestroy(clone));
}

TEST_F(GraphTest, ChildGraphsRunInPlace) {
  CUgraph child, graph, embedded;
  CUgraphNode store, node, copy;
  OK(cuGraphCreate(&child, 0));
  CUDA_KERNEL_NODE_PARAMS params = Store(31);
  OK(cuGraphAddKernelNode(&store, child, nullptr, 0, &params));
  OK(cuGraphCreate(&graph, 0));
  OK(cuGraphAddChildGraphNode(&node, graph, nullptr, 0, child));
  OK(cuGraphDestroy(child));
  params = Store(32);
  OK(cuGraphAddKernelNode(&copy, graph, &node, 1, &params));
  OK(cuGraphChildGraphNodeGetGraph(node, &embedded));
  size_t count = 1;
  CUgraphNode inner, cloned_node;
  OK(cuGraphGetNodes(embedded, &inner, &count));
  // A clone has a graph of its own inside, which lives as long as its node.
  CUgraph clone, cloned;
  OK(cuGraphClone(&clone, graph));
  OK(cuGraphNodeFindInClone(&cloned_node, node, clone));
  OK(cuGraphChildGraphNodeGetGraph(cloned_node, &cloned));
  OK(cuGraphNodeFindInClone(&cloned_node, inner, cloned));
  OK(cuGraphDestroy(clone));
  EXPECT_EQ(cuGraphGetNodes(cloned, nullptr, &count), CUDA_ERROR_INVALID_HANDLE);
  count = 1;
  CUgraphExec exec;
  OK(cuGraphInstantiate(&exec, graph, 0));
  OK(cuGraphNodeSetEnabled(exec, copy, 0));
  Run(exec);
  EXPECT_EQ(Read(), 31u);
  params = Store(33);
  OK(cuGraphExecKernelNodeSetParams(exec, inner, &params));
  Run(exec);
  EXPECT_EQ(Read(), 33u);
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
}

TEST_F(GraphTest, CaptureForksAndJoins) {
  CUevent fork, join;
  OK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
  OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
  OK(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(LaunchStore(1, stream_));
  OK(cuEventRecord(fork, stream_));
  OK(cuStreamWaitEvent(other_, fork, 0));
  OK(LaunchStore(2, other_));
  OK(cuEventRecord(join, other_));
  CUstreamCaptureStatus status;
  cuuint64_t id = 0;
  const CUgraphNode* nodes;
  size_t count = 0;
  CUgraph going;
  OK(cuStreamGetCaptureInfo(other_, &status, &id, &going, &nodes, nullptr, &count));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(cuEventQuery(fork), CUDA_ERROR_CAPTURED_EVENT);
  CUgraph graph;
  EXPECT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

  OK(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(LaunchStore(1, stream_));
  OK(cuEventRecord(fork, stream_));
  OK(cuStreamWaitEvent(other_, fork, 0));
  OK(LaunchStore(2, other_));
  EXPECT_EQ(cuStreamEndCapture(other_, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  EXPECT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);

  OK(cuMemsetD32(word_, 0, 1));
  OK(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(LaunchStore(1, stream_));
  OK(cuEventRecord(fork, stream_));
  OK(cuStreamWaitEvent(other_, fork, 0));
  OK(LaunchStore(2, other_));
  OK(cuEventRecord(join, other_));
  OK(cuStreamWaitEvent(stream_, join, 0));
  OK(cuStreamEndCapture(stream_, &graph));
  OK(cuStreamIsCapturing(other_, &status));
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(Read(), 0u) << "captured work must not run";
  OK(cuGraphGetNodes(graph, nullptr, &count));
  EXPECT_EQ(count, 2u);
  CUgraphExec exec;
  OK(cuGraphInstantiate(&exec, graph, 0));
  Run(exec);
  EXPECT_EQ(Read(), 2u);
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
  OK(cuEventDestroy(fork));
  OK(cuEventDestroy(join));
}

TEST_F(GraphTest, UnsafeCallsInvalidateByMode) {
  auto end = [this] {
    CUgraph graph = nullptr;
    CUresult result = cuStreamEndCapture(stream_, &graph);
    if (graph != nullptr) {
      EXPECT_OK(cuGraphDestroy(graph));
    }
    return result;
  };
  auto sync_copy = [this] {
    uint32_t seen;
    return cuMemcpyDtoH(&seen, word_, 4);
  };
  OK(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_EQ(cuStreamSynchronize(stream_), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(LaunchStore(1, stream_), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

  // Another thread's copy: forbidden by a global capture, not by a thread-local one.
  CUcontext context;
  OK(cuCtxGetCurrent(&context));
  auto elsewhere = [&](CUstreamCaptureMode mine) {
    CUresult result = CUDA_ERROR_UNKNOWN;
    std::thread([&] {
      cuCtxSetCurrent(context);
      cuThreadExchangeStreamCaptureMode(&mine);
      result = sync_copy();
    }).join();
    return result;
  };
  OK(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_EQ(elsewhere(CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(elsewhere(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  EXPECT_EQ(elsewhere(CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  OK(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_EQ(elsewhere(CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(sync_copy(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  OK(cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
  EXPECT_EQ(sync_copy(), CUDA_SUCCESS);
  EXPECT_EQ(end(), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamBeginCapture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_GLOBAL),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CUgraph graph;
  EXPECT_EQ(cuStreamEndCapture(stream_, &graph), CUDA_ERROR_ILLEGAL_STATE);
}

TEST_F(GraphTest, EventNodesRecordAndWaitAtEachLaunch) {
  CUgraph graph;
  CUgraphNode record;
  CUevent event;
  OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
  OK(cuGraphCreate(&graph, 0));
  OK(cuGraphAddEventRecordNode(&record, graph, nullptr, 0, event));
  CUgraphExec exec;
  OK(cuGraphInstantiate(&exec, graph, 0));
  float elapsed;
  EXPECT_EQ(cuEventElapsedTime(&elapsed, event, event), CUDA_ERROR_INVALID_HANDLE);
  Run(exec);
  EXPECT_OK(cuEventElapsedTime(&elapsed, event, event));
  EXPECT_OK(cuEventQuery(event));
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
  OK(cuEventDestroy(event));
}

TEST_F(GraphTest, MemoryNodes) {
  CUgraph graph, clone;
  CUgraphNode alloc, set, copy, release;
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  params.bytesize = 1 << 20;
  CUcontext context;
  OK(cuCtxGetCurrent(&context));
  OK(cuGraphCreate(&graph, 0));
  OK(cuGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &params));
  ASSERT_NE(params.dptr, 0u);
  CUDA_MEMSET_NODE_PARAMS fill{params.dptr, 0, 77, 4, 1, 1};
  OK(cuGraphAddMemsetNode(&set, graph, &alloc, 1, &fill, context));
  CUDA_MEMCPY3D move{};
  move.srcMemoryType = move.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  move.srcDevice = params.dptr;
  move.dstDevice = word_;
  move.WidthInBytes = 4;
  move.Height = move.Depth = 1;
  OK(cuGraphAddMemcpyNode(&copy, graph, &set, 1, &move, context));
  EXPECT_EQ(cuGraphAddMemFreeNode(&release, graph, &copy, 1, word_), CUDA_ERROR_INVALID_VALUE);
  OK(cuGraphAddMemFreeNode(&release, graph, &copy, 1, params.dptr));
  EXPECT_EQ(cuGraphAddMemFreeNode(&release, graph, &copy, 1, params.dptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphClone(&clone, graph), CUDA_ERROR_NOT_SUPPORTED);
  CUgraphExec exec;
  OK(cuGraphInstantiate(&exec, graph, 0));
  Run(exec);
  Run(exec);
  EXPECT_EQ(Read(), 77u);
  cuuint64_t used = 1, high = 0, reserved = 0;
  OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used));
  OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &high));
  EXPECT_EQ(used, 0u);
  EXPECT_EQ(high, params.bytesize);
  OK(cuGraphDestroy(graph));
  OK(cuGraphExecDestroy(exec));
  OK(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved));
  EXPECT_EQ(reserved, 0u);
}

TEST_F(GraphTest, UserObjectsLiveAsLongAsTheGraphs) {
  int destroyed = 0;
  CUuserObject object;
  CUgraph graph;
  CUgraphExec exec;
  OK(cuUserObjectCreate(&object, &destroyed, Count, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  OK(cuGraphCreate(&graph, 0));
  OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  OK(cuGraphInstantiate(&exec, graph, 0));
  OK(cuGraphDestroy(graph));
  EXPECT_EQ(destroyed, 0);
  OK(cuGraphExecDestroy(exec));
  EXPECT_EQ(destroyed, 1);
  EXPECT_EQ(cuUserObjectRelease(object, 1), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace softgpu
