// Graphs made through the interposer's own wrappers, and used again in a new driver under their old handles.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "intercept/capture_streams.h"
#include "intercept/captures.h"
#include "intercept/gate.h"
#include "intercept/process.h"
#include "replay/graph_edges.h"
#include "replay/graph_records.h"
#include "replay/object_table.h"
#include "replay/pause.h"
#include "replay/testing.h"
#include "replay/translate.h"
#include "vmm/pause.h"
#include "vmm/testing.h"

namespace stasis {
namespace {

using replay::ComeBack;
using replay::LetGo;
using replay::PauseAndResume;
using replay::Refusal;
using testing::HasSubstr;

// store(out, value): *out = value.   sum(out, a, b, c): *out = *a + *b + *c + 1.
const char kCode[] = R"(
.version 8.0
.target sm_75
.address_size 64
.visible .entry store(.param .u64 out, .param .u32 value)
{
  .reg .b64 %rd<3>;
  .reg .b32 %r<2>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [value];
  cvta.to.global.u64 %rd2, %rd1;
  st.global.u32 [%rd2], %r1;
  ret;
}
.visible .entry sum(.param .u64 out, .param .u64 a, .param .u64 b, .param .u64 c)
{
  .reg .b64 %rd<5>;
  .reg .b32 %r<8>;
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [a];
  ld.param.u64 %rd3, [b];
  ld.param.u64 %rd4, [c];
  ld.u32 %r1, [%rd2];
  ld.u32 %r2, [%rd3];
  ld.u32 %r3, [%rd4];
  add.u32 %r4, %r1, %r2;
  add.u32 %r5, %r4, %r3;
  add.u32 %r6, %r5, 1;
  st.u32 [%rd1], %r6;
  ret;
}
)";
constexpr size_t kWords = 256;
using Words = std::vector<uint32_t>;

void Count(void* data) { __atomic_add_fetch(static_cast<int*>(data), 1, __ATOMIC_RELAXED); }

class ReplayGraphTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_CUDA_OK(cuInit(0));
    replay::KeepGraphSnapshots(true);
    ASSERT_CUDA_OK(cuDevicePrimaryCtxRetain(&context_, 0));
    ASSERT_CUDA_OK(cuCtxSetCurrent(context_));
    ASSERT_CUDA_OK(cuMemAlloc_v2(&words_, kWords * 4));
    ASSERT_CUDA_OK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    ASSERT_CUDA_OK(cuModuleLoadData(&module_, kCode));
    ASSERT_CUDA_OK(cuModuleGetFunction(&store_, module_, "store"));
    ASSERT_CUDA_OK(cuModuleGetFunction(&sum_, module_, "sum"));
    Clear();
    records_ = replay::ObjectTable::Get().size();
  }
  void TearDown() override {
    EXPECT_EQ(CapturesInProgress(), 0u);
    // One record, which stands for memory of graphs, stays with the first graph.
    EXPECT_LE(replay::ObjectTable::Get().size(), records_ + 1);
    EXPECT_CUDA_OK(cuModuleUnload(module_));
    EXPECT_CUDA_OK(cuStreamDestroy_v2(stream_));
    EXPECT_CUDA_OK(cuMemFree_v2(words_));
    CUcontext popped = nullptr;
    EXPECT_CUDA_OK(cuCtxPopCurrent_v2(&popped));
    EXPECT_CUDA_OK(cuDevicePrimaryCtxRelease_v2(0));
  }

  CUdeviceptr At(size_t word) const { return words_ + word * 4; }
  void Clear() {
    ASSERT_CUDA_OK(cuMemsetD32_v2(words_, 0, kWords));
    ASSERT_CUDA_OK(cuCtxSynchronize());  // a fill is not ordered before a non-blocking stream
  }
  Words Read() {
    Words words(kWords);
    EXPECT_CUDA_OK(cuMemcpyDtoH_v2(words.data(), words_, kWords * 4));
    return words;
  }
  uint32_t ReadWord(size_t word) { return Read()[word]; }
  Words Run(CUgraphExec exec) {
    Clear();
    EXPECT_CUDA_OK(cuGraphLaunch(exec, stream_));
    EXPECT_CUDA_OK(cuStreamSynchronize(stream_));
    return Read();
  }
  CUDA_KERNEL_NODE_PARAMS Kernel(CUfunction function, void** arguments) {
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = function;
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = arguments;
    return params;
  }
  CUgraphNode AddStore(CUgraph graph, const std::vector<CUgraphNode>& before, size_t word, uint32_t value) {
    CUdeviceptr where = At(word);
    void* arguments[] = {&where, &value};
    const CUDA_KERNEL_NODE_PARAMS params = Kernel(store_, arguments);
    CUgraphNode node = nullptr;
    EXPECT_CUDA_OK(cuGraphAddKernelNode_v2(&node, graph, before.data(), before.size(), &params));
    return node;
  }
  void SetStore(CUgraphExec exec, CUgraphNode node, size_t word, uint32_t value) {
    CUdeviceptr where = At(word);
    void* arguments[] = {&where, &value};
    const CUDA_KERNEL_NODE_PARAMS params = Kernel(store_, arguments);
    if (exec != nullptr) {
      EXPECT_CUDA_OK(cuGraphExecKernelNodeSetParams_v2(exec, node, &params));
    } else {
      EXPECT_CUDA_OK(cuGraphKernelNodeSetParams_v2(node, &params));
    }
  }
  CUgraphExec Instantiate(CUgraph graph) {
    CUgraphExec exec = nullptr;
    EXPECT_CUDA_OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
  }
  CUgraph NewGraph() {
    CUgraph graph = nullptr;
    EXPECT_CUDA_OK(cuGraphCreate(&graph, 0));
    return graph;
  }
  CUDA_MEMCPY3D Copy(CUdeviceptr to, CUdeviceptr from) {
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = from;
    copy.dstDevice = to;
    copy.WidthInBytes = 4;
    copy.Height = copy.Depth = 1;
    return copy;
  }

  CUcontext context_ = nullptr;
  CUdeviceptr words_ = 0;
  CUstream stream_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction store_ = nullptr, sum_ = nullptr;
  size_t records_ = 0;
};

using Nodes = std::vector<CUgraphNode>;

Nodes NodesOf(CUgraph graph) {
  size_t count = 0;
  EXPECT_CUDA_OK(cuGraphGetNodes(graph, nullptr, &count));
  Nodes nodes(count);
  if (count != 0) {
    EXPECT_CUDA_OK(cuGraphGetNodes(graph, nodes.data(), &count));
  }
  return nodes;
}

std::vector<std::pair<CUgraphNode, CUgraphNode>> EdgesOf(CUgraph graph) {
  size_t count = 0;
  EXPECT_CUDA_OK(cuGraphGetEdges_v2(graph, nullptr, nullptr, nullptr, &count));
  Nodes from(count), to(count);
  std::vector<CUgraphEdgeData> data(count);
  if (count != 0) {
    EXPECT_CUDA_OK(cuGraphGetEdges_v2(graph, from.data(), to.data(), data.data(), &count));
  }
  std::vector<std::pair<CUgraphNode, CUgraphNode>> edges;
  for (size_t i = 0; i < count; ++i) edges.emplace_back(from[i], to[i]);
  return edges;
}

Nodes DependenciesOf(CUgraphNode node) {
  size_t count = 0;
  EXPECT_CUDA_OK(cuGraphNodeGetDependencies_v2(node, nullptr, nullptr, &count));
  Nodes nodes(count);
  std::vector<CUgraphEdgeData> data(count);
  if (count != 0) {
    EXPECT_CUDA_OK(cuGraphNodeGetDependencies_v2(node, nodes.data(), data.data(), &count));
  }
  return nodes;
}

TEST_F(ReplayGraphTest, EveryKindOfNode) {
  int calls = 0;
  CUevent event = nullptr;
  ASSERT_CUDA_OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
  CUgraph inner = NewGraph(), middle = NewGraph(), graph = NewGraph();
  CUgraphNode deep = AddStore(inner, {}, 10, 110);
  CUgraphNode inner_node = nullptr, nodes[8] = {};
  ASSERT_CUDA_OK(cuGraphAddChildGraphNode(&inner_node, middle, nullptr, 0, inner));
  AddStore(middle, {inner_node}, 11, 111);
  CUDA_MEMSET_NODE_PARAMS set{At(20), 0, 0x01020304, 4, 3, 1};
  ASSERT_CUDA_OK(cuGraphAddMemsetNode(&nodes[0], graph, nullptr, 0, &set, context_));
  nodes[1] = AddStore(graph, {nodes[0]}, 21, 77);
  const CUDA_MEMCPY3D copy = Copy(At(30), At(21));
  ASSERT_CUDA_OK(cuGraphAddMemcpyNode(&nodes[2], graph, &nodes[1], 1, &copy, context_));
  CUDA_HOST_NODE_PARAMS host{Count, &calls};
  ASSERT_CUDA_OK(cuGraphAddHostNode(&nodes[3], graph, &nodes[2], 1, &host));
  ASSERT_CUDA_OK(cuGraphAddChildGraphNode(&nodes[4], graph, &nodes[3], 1, middle));
  ASSERT_CUDA_OK(cuGraphAddEmptyNode(&nodes[5], graph, &nodes[4], 1));
  ASSERT_CUDA_OK(cuGraphAddEventRecordNode(&nodes[6], graph, &nodes[5], 1, event));
  CUstreamBatchMemOpParams op{};
  op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  op.writeValue.address = At(40);
  op.writeValue.value = 1234;
  CUDA_BATCH_MEM_OP_NODE_PARAMS batch{context_, 1, &op, 0};
  ASSERT_CUDA_OK(cuGraphAddBatchMemOpNode(&nodes[7], graph, &nodes[6], 1, &batch));
  CUgraphNode wait = nullptr;
  ASSERT_CUDA_OK(cuGraphAddEventWaitNode(&wait, graph, &nodes[7], 1, event));
  const CUgraphExec exec = Instantiate(graph);
  const Words undisturbed = Run(exec);
  EXPECT_EQ(undisturbed[10], 110u);
  EXPECT_EQ(undisturbed[11], 111u);
  EXPECT_EQ(undisturbed[22], 0x01020304u);
  EXPECT_EQ(undisturbed[30], 77u);
  EXPECT_EQ(undisturbed[40], 1234u);
  EXPECT_EQ(calls, 1);
  const Nodes listed = NodesOf(graph);
  const auto edges = EdgesOf(graph);
  for (int round = 2; round < 8; round += 2) {
    PauseAndResume();
    EXPECT_EQ(Run(exec), undisturbed);
    EXPECT_CUDA_OK(cuEventQuery(event));
    const CUgraphExec fresh = Instantiate(graph);
    EXPECT_EQ(Run(fresh), undisturbed);
    EXPECT_EQ(calls, round + 1);
    EXPECT_CUDA_OK(cuGraphExecDestroy(fresh));
    EXPECT_EQ(NodesOf(graph), listed);
    EXPECT_EQ(EdgesOf(graph), edges);
  }
  CUDA_KERNEL_NODE_PARAMS kernel{};
  ASSERT_CUDA_OK(cuGraphKernelNodeGetParams_v2(nodes[1], &kernel));
  EXPECT_EQ(kernel.func, store_);
  EXPECT_EQ(*static_cast<uint32_t*>(kernel.kernelParams[1]), 77u);
  CUevent asked = nullptr;
  ASSERT_CUDA_OK(cuGraphEventRecordNodeGetEvent(nodes[6], &asked));
  EXPECT_EQ(asked, event);
  ASSERT_CUDA_OK(cuGraphDestroyNode(wait));
  SetStore(nullptr, deep, 10, 5);
  CUgraphNodeType type;
  ASSERT_CUDA_OK(cuGraphNodeGetType(nodes[4], &type));
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_GRAPH);
  for (CUgraph made : {inner, middle, graph}) EXPECT_CUDA_OK(cuGraphDestroy(made));
  EXPECT_CUDA_OK(cuGraphExecDestroy(exec));
  EXPECT_CUDA_OK(cuEventDestroy_v2(event));
}

TEST_F(ReplayGraphTest, GraphsInsideOfNodesKeepTheirHandles) {
  CUgraph child = NewGraph(), graph = NewGraph(), embedded = nullptr, again = nullptr;
  AddStore(child, {}, 1, 11);
  CUgraphNode node = nullptr;
  ASSERT_CUDA_OK(cuGraphAddChildGraphNode(&node, graph, nullptr, 0, child));
  ASSERT_CUDA_OK(cuGraphDestroy(child));
  ASSERT_CUDA_OK(cuGraphChildGraphNodeGetGraph(node, &embedded));
  const Nodes inner = NodesOf(embedded);
  ASSERT_EQ(inner.size(), 1u);
  const CUgraphExec exec = Instantiate(graph);
  SetStore(exec, inner[0], 1, 12);
  for (uint32_t value = 12; value < 15; ++value) {
    PauseAndResume();
    EXPECT_EQ(Run(exec)[1], value);
    ASSERT_CUDA_OK(cuGraphChildGraphNodeGetGraph(node, &again));
    EXPECT_EQ(again, embedded);
    EXPECT_EQ(NodesOf(embedded), inner);
    SetStore(exec, inner[0], 1, value + 1);
    EXPECT_EQ(Run(exec)[1], value + 1);
  }
  AddStore(embedded, {inner[0]}, 2, 22);
  const CUgraphExec larger = Instantiate(graph);
  PauseAndResume();
  const Words words = Run(larger);
  EXPECT_EQ(words[1], 11u);
  EXPECT_EQ(words[2], 22u);
  EXPECT_CUDA_OK(cuGraphExecDestroy(exec));
  EXPECT_CUDA_OK(cuGraphExecDestroy(larger));
  EXPECT_CUDA_OK(cuGraphDestroy(graph));
}

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

TEST_F(ReplayGraphTest, AnExecutableGraphIsWhatItWasMadeFromAndWhatWasChangedInIt) {
  const CUgraph graph = NewGraph();
  const CUgraphNode first = AddStore(graph, {}, 1, 11), second = AddStore(graph, {first}, 2, 12);
  const CUgraphNode third = AddStore(graph, {first}, 3, 13);
  const CUgraphExec exec = Instantiate(graph);
  // The graph changes behind it, in parameters and shape.
  SetStore(nullptr, first, 1, 91);
  AddStore(graph, {second}, 4, 94);
  ASSERT_CUDA_OK(cuGraphDestroyNode(third));
  SetStore(exec, second, 2, 22);
  ASSERT_CUDA_OK(cuGraphNodeSetEnabled(exec, first, 0));
  const Words undisturbed = Run(exec);
  EXPECT_EQ(undisturbed[1], 0u);
  EXPECT_EQ(undisturbed[2], 22u);
  EXPECT_EQ(undisturbed[3], 13u);
  EXPECT_EQ(undisturbed[4], 0u);
  PauseAndResume();
  EXPECT_EQ(Run(exec), undisturbed);
  unsigned enabled = 7;
  ASSERT_CUDA_OK(cuGraphNodeGetEnabled(exec, first, &enabled));
  EXPECT_EQ(enabled, 0u);
  // Handles of the program name nodes of the rebuilt one.
  SetStore(exec, second, 2, 23);
  ASSERT_CUDA_OK(cuGraphNodeSetEnabled(exec, first, 1));
  PauseAndResume();
  Words words = Run(exec);
  EXPECT_EQ(words[1], 11u);
  EXPECT_EQ(words[2], 23u);
  EXPECT_EQ(words[3], 13u);
  const CUgraphExec fresh = Instantiate(graph);
  words = Run(fresh);
  EXPECT_EQ(words[1], 91u);
  EXPECT_EQ(words[2], 12u);
  EXPECT_EQ(words[3], 0u);
  EXPECT_EQ(words[4], 94u);
  EXPECT_CUDA_OK(cuGraphExecDestroy(fresh));
  EXPECT_CUDA_OK(cuGraphExecDestroy(exec));
  EXPECT_CUDA_OK(cuGraphDestroy(graph));
}

TEST_F(ReplayGraphTest, UpdatesAfterTheGraphIsGone) {
  const CUgraph graph = NewGraph(), update = NewGraph();
  const CUgraphNode node = AddStore(graph, {}, 1, 11);
  AddStore(graph, {node}, 2, 12);
  AddStore(update, {AddStore(update, {}, 1, 21)}, 2, 22);
  const CUgraphExec exec = Instantiate(graph), other = Instantiate(graph);
  CUgraphExecUpdateResultInfo info{};
  ASSERT_CUDA_OK(cuGraphExecUpdate_v2(other, update, &info));
  SetStore(other, node, 1, 31);  // after an update: on top of it
  ASSERT_CUDA_OK(cuGraphDestroy(graph));
  PauseAndResume();
  EXPECT_EQ(Run(exec)[2], 12u);
  Words words = Run(other);
  EXPECT_EQ(words[1], 31u);
  EXPECT_EQ(words[2], 22u);
  ASSERT_CUDA_OK(cuGraphExecUpdate_v2(exec, update, &info));
  PauseAndResume();
  EXPECT_EQ(Run(exec)[1], 21u);
  EXPECT_EQ(Run(other)[1], 31u);
  // A graph of another shape is refused as before, and the node is named by the program's handle.
  const CUgraphNode extra = AddStore(update, {}, 3, 23);
  EXPECT_EQ(cuGraphExecUpdate_v2(exec, update, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  EXPECT_CUDA_OK(cuGraphDestroyNode(extra));
  EXPECT_CUDA_OK(cuGraphDestroy(update));
  EXPECT_CUDA_OK(cuGraphExecDestroy(exec));
  EXPECT_CUDA_OK(cuGraphExecDestroy(other));
}

TEST_F(ReplayGraphTest, EveryExecutableSetterIsKept) {
  int calls = 0, others = 0;
  CUevent first = nullptr, second = nullptr;
  ASSERT_CUDA_OK(cuEventCreate(&first, CU_EVENT_DEFAULT));
  ASSERT_CUDA_OK(cuEventCreate(&second, CU_EVENT_DEFAULT));
  const CUgraph graph = NewGraph();
  CUgraphNode set_node, copy_node, host_node, record_node, ops_node;
  CUDA_MEMSET_NODE_PARAMS set{At(1), 0, 1, 4, 1, 1};
  ASSERT_CUDA_OK(cuGraphAddMemsetNode(&set_node, graph, nullptr, 0, &set, context_));
  CUDA_MEMCPY3D copy = Copy(At(2), At(1));
  ASSERT_CUDA_OK(cuGraphAddMemcpyNode(&copy_node, graph, &set_node, 1, &copy, context_));
  CUDA_HOST_NODE_PARAMS host{Count, &calls};
  ASSERT_CUDA_OK(cuGraphAddHostNode(&host_node, graph, nullptr, 0, &host));
  ASSERT_CUDA_OK(cuGraphAddEventRecordNode(&record_node, graph, nullptr, 0, first));
  CUstreamBatchMemOpParams op{};
  op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  op.writeValue.address = At(3);
  op.writeValue.value = 3;
  CUDA_BATCH_MEM_OP_NODE_PARAMS batch{context_, 1, &op, 0};
  ASSERT_CUDA_OK(cuGraphAddBatchMemOpNode(&ops_node, graph, nullptr, 0, &batch));
  const CUgraphExec exec = Instantiate(graph);
  for (uint32_t round = 1; round <= 2; ++round) {
    set.value = 10 * round;
    ASSERT_CUDA_OK(cuGraphExecMemsetNodeSetParams(exec, set_node, &set, context_));
    copy.dstDevice = At(10 + round);
    ASSERT_CUDA_OK(cuGraphExecMemcpyNodeSetParams(exec, copy_node, &copy, context_));
    host.userData = &others;
    ASSERT_CUDA_OK(cuGraphExecHostNodeSetParams(exec, host_node, &host));
    ASSERT_CUDA_OK(cuGraphExecEventRecordNodeSetEvent(exec, record_node, second));
    op.writeValue.value = 30 * round;
    ASSERT_CUDA_OK(cuGraphExecBatchMemOpNodeSetParams(exec, ops_node, &batch));
    PauseAndResume();
    const Words words = Run(exec);
    EXPECT_EQ(words[10 + round], 10 * round);
    EXPECT_EQ(words[3], 30 * round);
  }
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(others, 2);
  float elapsed = 0;
  EXPECT_CUDA_OK(cuEventElapsedTime(&elapsed, second, second));
  EXPECT_NE(cuEventElapsedTime(&elapsed, first, first), CUDA_SUCCESS) << "it was never recorded";
  EXPECT_CUDA_OK(cuGraphExecDestroy(exec));
  EXPECT_CUDA_OK(cuGraphDestroy(graph));
  EXPECT_CUDA_OK(cuEventDestroy_v2(first));
  EXPECT_CUDA_OK(cuEventDestroy_v2(second));
}

TEST_F(ReplayGraphTest, NodesThroughTheUnionAndTheirParameters) {
  const CUgraph graph = NewGraph();
  CUdeviceptr where = At(1);
  uint32_t value = 5;
  void* arguments[] = {&where, &value};
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_KERNEL;
  params.kernel.func = store_;
  params.kernel.gridDimX = params.kernel.gridDimY = params.kernel.gridDimZ = 1;
  params.kernel.blockDimX = params.kernel.blockDimY = params.kernel.blockDimZ = 1;
  params.kernel.kernelParams = arguments;
  CUgraphNode first = nullptr, second = nullptr;
  ASSERT_CUDA_OK(cuGraphAddNode_v2(&first, graph, nullptr, nullptr, 0, &params));
  CUgraphExec exec = nullptr;
  CUDA_GRAPH_INSTANTIATE_PARAMS how{};
  how.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
  how.hUploadStream = stream_;
  ASSERT_CUDA_OK(cuGraphInstantiateWithParams(&exec, graph, &how));
  cuuint64_t flags = 0, again = 0;
  ASSERT_CUDA_OK(cuGraphExecGetFlags(exec, &flags));
  PauseAndResume();
  ASSERT_CUDA_OK(cuGraphExecGetFlags(exec, &again));
  EXPECT_EQ(flags, again);
  value = 6;
  ASSERT_CUDA_OK(cuGraphExecNodeSetParams(exec, first, &params));
  value = 7;
  ASSERT_CUDA_OK(cuGraphNodeSetParams(first, &params));
  where = At(2);
  ASSERT_CUDA_OK(cuGraphAddNode(&second, graph, &first, 1, &params));
  PauseAndResume();
  EXPECT_EQ(Run(exec)[1], 6u);
  const CUgraphExec fresh = Instantiate(graph);
  EXPECT_EQ(Run(fresh)[1], 7u);
  EXPECT_EQ(ReadWord(2), 7u);
  EXPECT_EQ(DependenciesOf(second), Nodes{first});
  EXPECT_CUDA_OK(cuGraphExecDestroy(exec));
  EXPECT_CUDA_OK(cuGraphExecDestroy(fresh));
  EXPECT_CUDA_OK(cuGraphDestroy(graph));
}

TEST_F(ReplayGraphTest, KernelAttributes) {
  const CUgraph graph = NewGraph();
  const CUgraphNode node = AddStore(graph, {}, 1, 1);
  CUlaunchAttributeValue value{}, asked{};
  value.cooperative = 1;
  ASSERT_CUDA_OK(cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value));
  PauseAndResume();
  ASSERT_CUDA_OK(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &asked));
  EXPECT_EQ(asked.cooperative, 1);
  EXPECT_CUDA_OK(cuGraphDestroy(graph));
}

TEST_F(ReplayGraphTest, ClonesKnowTheirOriginals) {
  const CUgraph graph = NewGraph();
  const CUgraphNode node = AddStore(graph, {}, 1, 1);
  CUgraph clone = nullptr;
  CUgraphNode twin = nullptr, again = nullptr;
  ASSERT_CUDA_OK(cuGraphClone(&clone, graph));
  ASSERT_CUDA_OK(cuGraphNodeFindInClone(&twin, node, clone));
  PauseAndResume();
  ASSERT_CUDA_OK(cuGraphNodeFindInClone(&again, node, clone));
  EXPECT_EQ(again, twin);
  EXPECT_EQ(NodesOf(clone), Nodes{twin});
  PauseAndResume();
  ASSERT_CUDA_OK(cuGraphNodeFindInClone(&again, node, clone));
  EXPECT_EQ(again, twin);
  ASSERT_CUDA_OK(cuGraphDestroyNode(twin));
  EXPECT_EQ(cuGraphNodeFindInClone(&again, node, clone), CUDA_ERROR_INVALID_VALUE);
  EXPECT_CUDA_OK(cuGraphDestroy(clone));
  EXPECT_CUDA_OK(cuGraphDestroy(graph));
}

// Shape, order and meaning of random graphs, and what is built on them by both drivers.
TEST_F(ReplayGraphTest, RandomGraphs) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 8; ++round) {
    const CUgraph graph = NewGraph();
    Nodes nodes;
    const size_t count = 5 + random() % 40;
    for (size_t i = 0; i < count; ++i) {
      CUdeviceptr out = At(i + 1), inputs[3] = {At(0), At(0), At(0)};
      Nodes before;
      for (size_t k = 0; k < 3 && i > 0; ++k) {
        const size_t other = random() % i;
        inputs[k] = At(other + 1);
        if (std::find(before.begin(), before.end(), nodes[other]) == before.end())
          before.push_back(nodes[other]);
      }
      void* arguments[] = {&out, &inputs[0], &inputs[1], &inputs[2]};
      const CUDA_KERNEL_NODE_PARAMS params = Kernel(sum_, arguments);
      CUgraphNode node = nullptr;
      if (random() % 2 == 0) {
        ASSERT_CUDA_OK(cuGraphAddKernelNode_v2(&node, graph, before.data(), before.size(), &params));
      } else {
        ASSERT_CUDA_OK(cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &params));
        const Nodes to(before.size(), node);
        ASSERT_CUDA_OK(cuGraphAddDependencies_v2(graph, before.data(), to.data(), nullptr, before.size()));
      }
      nodes.push_back(node);
      if (random() % 8 == 0 && i > 2) {
        // Takes an edge away that orders nothing: to a node that only waits.
        CUgraphNode idle = nullptr;
        ASSERT_CUDA_OK(cuGraphAddEmptyNode(&idle, graph, &nodes[i - 1], 1));
        ASSERT_CUDA_OK(cuGraphAddDependencies(graph, &nodes[0], &idle, 1));
        ASSERT_CUDA_OK(cuGraphRemoveDependencies(graph, &nodes[i - 1], &idle, 1));
      }
    }
    const CUgraphExec exec = Instantiate(graph);
    const Words undisturbed = Run(exec);
    const Nodes listed = NodesOf(graph);
    const auto edges = EdgesOf(graph);
    std::vector<Nodes> dependencies;
    for (CUgraphNode node : listed) dependencies.push_back(DependenciesOf(node));
    PauseAndResume();
    EXPECT_EQ(NodesOf(graph), listed);
    EXPECT_EQ(EdgesOf(graph), edges);
    for (size_t i = 0; i < listed.size(); ++i) EXPECT_EQ(DependenciesOf(listed[i]), dependencies[i]);
    EXPECT_EQ(Run(exec), undisturbed);
    CUgraphExecUpdateResultInfo info{};
    EXPECT_CUDA_OK(cuGraphExecUpdate_v2(exec, graph, &info));
    EXPECT_EQ(Run(exec), undisturbed);
    EXPECT_CUDA_OK(cuGraphExecDestroy(exec));
    EXPECT_CUDA_OK(cuGraphDestroy(graph));
  }
}

TEST_F(ReplayGraphTest, WhatIsNotCarriedIsRefusedByName) {
  const CUgraph graph = NewGraph();
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  params.bytesize = 1 << 20;
  CUgraphNode alloc = nullptr, release = nullptr;
  ASSERT_CUDA_OK(cuGraphAddMemAllocNode(&alloc, graph, nullptr, 0, &params));
  ASSERT_CUDA_OK(cuGraphAddMemFreeNode(&release, graph, &alloc, 1, params.dptr));
  EXPECT_THAT(Refusal(), HasSubstr("cuGraphAddMemAllocNode"));
  CUgraphExec exec = Instantiate(graph);
  // The allocation alone, so that its memory is in use; then only the free.
  ASSERT_CUDA_OK(cuGraphNodeSetEnabled(exec, release, 0));
  Run(exec);
  EXPECT_THAT(Refusal(), HasSubstr("1048576 bytes allocated by a graph's allocation node are in use"));
  ASSERT_CUDA_OK(cuGraphNodeSetEnabled(exec, release, 1));
  ASSERT_CUDA_OK(cuGraphNodeSetEnabled(exec, alloc, 0));
  Run(exec);
  ASSERT_CUDA_OK(cuGraphDestroy(graph));
  EXPECT_THAT(Refusal(), HasSubstr("executable graph"));
  EXPECT_THAT(Refusal(), HasSubstr("cuGraphAddMemAllocNode"));
  ASSERT_CUDA_OK(cuGraphExecDestroy(exec));
  EXPECT_EQ(Refusal(), "");

  const CUgraph recorded = NewGraph();
  CUevent event = nullptr;
  CUgraphNode node = nullptr;
  ASSERT_CUDA_OK(cuEventCreate(&event, 0));
  ASSERT_CUDA_OK(cuGraphAddEventRecordNode(&node, recorded, nullptr, 0, event));
  EXPECT_EQ(Refusal(), "");
  ASSERT_CUDA_OK(cuEventDestroy_v2(event));
  EXPECT_THAT(Refusal(), HasSubstr("event was destroyed"));
  ASSERT_CUDA_OK(cuGraphDestroyNode(node));
  EXPECT_EQ(Refusal(), "");
  EXPECT_CUDA_OK(cuGraphDestroy(recorded));
  PauseAndResume();
}

TEST_F(ReplayGraphTest, WithoutCopiesOfGraphsARebuildIsRefused) {
  const CUgraph graph = NewGraph();
  const CUgraphNode node = AddStore(graph, {}, 1, 1);
  replay::KeepGraphSnapshots(false);
  const CUgraphExec exec = Instantiate(graph);
  SetStore(exec, node, 1, 2);
  EXPECT_EQ(Run(exec)[1], 2u);
  EXPECT_THAT(Refusal(), HasSubstr("only driver-checkpoint was to be used"));
  EXPECT_CUDA_OK(cuGraphExecDestroy(exec));
  EXPECT_EQ(Refusal(), "");
  EXPECT_CUDA_OK(cuGraphDestroy(graph));
}

TEST_F(ReplayGraphTest, UserObjectsAreDestroyedOnceAndNotEarly) {
  int destroyed = 0, kept = 0;
  CUuserObject object = nullptr, own = nullptr;
  CUgraph graph = NewGraph(), clone = nullptr;
  ASSERT_CUDA_OK(cuUserObjectCreate(&object, &destroyed, Count, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  ASSERT_CUDA_OK(cuUserObjectCreate(&own, &kept, Count, 2, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  ASSERT_CUDA_OK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  const CUgraphExec exec = Instantiate(graph);
  ASSERT_CUDA_OK(cuGraphClone(&clone, graph));
  PauseAndResume();
  EXPECT_EQ(destroyed, 0);
  ASSERT_CUDA_OK(cuGraphDestroy(graph));
  ASSERT_CUDA_OK(cuGraphDestroy(clone));
  EXPECT_EQ(destroyed, 0) << "the executable graph holds it";
  PauseAndResume();
  EXPECT_EQ(destroyed, 0);
  ASSERT_CUDA_OK(cuGraphExecDestroy(exec));
  EXPECT_EQ(destroyed, 1);
  EXPECT_CUDA_OK(cuUserObjectRelease(own, 1));
  PauseAndResume();
  EXPECT_EQ(kept, 0);
  EXPECT_CUDA_OK(cuUserObjectRetain(own, 2));
  EXPECT_CUDA_OK(cuUserObjectRelease(own, 3));
  EXPECT_EQ(kept, 1);
  EXPECT_EQ(cuUserObjectRelease(own, 1), CUDA_ERROR_INVALID_VALUE);
  PauseAndResume();
  EXPECT_EQ(kept, 1);
  EXPECT_EQ(destroyed, 1);
}

TEST_F(ReplayGraphTest, AUserObjectOfAChildGraphIsRefused) {
  int destroyed = 0;
  CUuserObject object = nullptr;
  CUgraphNode node = nullptr;
  const CUgraph graph = NewGraph(), child = NewGraph();
  ASSERT_CUDA_OK(cuUserObjectCreate(&object, &destroyed, Count, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  ASSERT_CUDA_OK(cuGraphRetainUserObject(child, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
  EXPECT_EQ(Refusal(), "");
  ASSERT_CUDA_OK(cuGraphAddChildGraphNode(&node, graph, nullptr, 0, child));
  EXPECT_THAT(Refusal(), HasSubstr("cuGraphRetainUserObject"));
  EXPECT_CUDA_OK(cuGraphDestroy(graph));
  EXPECT_EQ(Refusal(), "");
  EXPECT_CUDA_OK(cuGraphDestroy(child));
  EXPECT_EQ(destroyed, 1);
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

TEST_F(ReplayGraphTest, WhatIsDestroyedLeavesNoRecord) {
  for (int round = 0; round < 2; ++round) {
    size_t before = 0;
    for (int i = 0; i < 3000; ++i) {
      const CUgraph graph = NewGraph(), outer = NewGraph();
      const CUgraphNode node = AddStore(graph, {}, 1, 1);
      CUgraphNode child = nullptr;
      ASSERT_CUDA_OK(cuGraphAddChildGraphNode(&child, outer, nullptr, 0, graph));
      const CUgraphExec exec = Instantiate(outer), plain = Instantiate(graph);
      SetStore(plain, node, 2, 2);
      CUgraphExecUpdateResultInfo info{};
      ASSERT_CUDA_OK(cuGraphExecUpdate_v2(exec, outer, &info));
      ASSERT_CUDA_OK(cuGraphExecDestroy(exec));
      ASSERT_CUDA_OK(cuGraphDestroyNode(node));
      ASSERT_CUDA_OK(cuGraphDestroy(outer));
      ASSERT_CUDA_OK(cuGraphDestroy(graph));
      ASSERT_CUDA_OK(cuGraphExecDestroy(plain));
      if (i == 0) before = replay::ObjectTable::Get().size();
    }
    EXPECT_EQ(replay::ObjectTable::Get().size(), before);
    PauseAndResume();
  }
}

TEST_F(ReplayGraphTest, AFailedRebuildIsTriedAgain) {
  const CUgraph graph = NewGraph();
  const CUgraphNode node = AddStore(graph, {}, 1, 11);
  const CUgraphExec exec = Instantiate(graph);
  SetStore(exec, node, 1, 12);
  std::thread control([] {
    EXPECT_STATUS_OK(replay::Stop());
    EXPECT_STATUS_OK(LetGo());
    for (int i = 0; i < 2; ++i) {
      EXPECT_STATUS_OK(ComeBack());
      (void)vmm::Release(TaskStrategy::kReconstruct);
      EXPECT_STATUS_OK(replay::Save());
      EXPECT_STATUS_OK(replay::Teardown());
      CloseDriver();
    }
    EXPECT_STATUS_OK(ComeBack());
    replay::GoOn();
  });
  control.join();
  EXPECT_EQ(Run(exec)[1], 12u);
  EXPECT_CUDA_OK(cuGraphExecDestroy(exec));
  EXPECT_CUDA_OK(cuGraphDestroy(graph));
}

TEST_F(ReplayGraphTest, ExecutableGraphsDieWithTheirContext) {
  CUcontext made = nullptr;
  ASSERT_CUDA_OK(cuCtxCreate_v2(&made, 0, 1));
  const CUgraph graph = NewGraph();
  CUgraphNode node = nullptr;
  ASSERT_CUDA_OK(cuGraphAddEmptyNode(&node, graph, nullptr, 0));
  const CUgraphExec exec = Instantiate(graph);
  ASSERT_NE(exec, nullptr);
  const size_t before = replay::ObjectTable::Get().size();
  ASSERT_CUDA_OK(cuCtxDestroy_v2(made));
  ASSERT_CUDA_OK(cuCtxSetCurrent(context_));
  EXPECT_EQ(replay::ObjectTable::Get().size(), before - 2);
  PauseAndResume();
  EXPECT_EQ(NodesOf(graph), Nodes{node});
  EXPECT_CUDA_OK(cuGraphDestroy(graph));
}

TEST(OrderEdges, KeepsTheOrdersOfBothEnds) {
  // 3 waits for 1 and 0 in this order; 0 is waited for by 3 and 2 in this order.
  const std::vector<std::vector<size_t>> dependencies = {{}, {}, {0}, {1, 0}};
  const std::vector<std::vector<size_t>> dependents = {{3, 2}, {3}, {}, {}};
  std::vector<std::vector<size_t>> seen_dependencies(4), seen_dependents(4);
  for (const auto& [from, to] : replay::OrderEdges(dependencies, dependents)) {
    seen_dependencies[to].push_back(from);
    seen_dependents[from].push_back(to);
  }
  EXPECT_EQ(seen_dependencies, dependencies);
  EXPECT_EQ(seen_dependents, dependents);
}

}  // namespace
}  // namespace stasis

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const stasis::vmm::TestNode node({"--gpus", "2", "--memory", "256MiB"});
  setenv("STASIS_DRIVER", LIBCUDA_PATH, 1);
  return RUN_ALL_TESTS();
}
