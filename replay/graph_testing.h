// For tests of graphs: a program with a stream, two kernels and some words of device memory, and what it does
// with graphs.
#ifndef REPLAY_GRAPH_TESTING_H_
#define REPLAY_GRAPH_TESTING_H_

#include <cuda.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "intercept/captures.h"
#include "replay/graph_records.h"
#include "replay/object_table.h"
#include "replay/testing.h"
#include "vmm/testing.h"

namespace stasis {

// store(out, value): *out = value.   sum(out, a, b, c): *out = *a + *b + *c + 1.
inline constexpr char kCode[] = R"(
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
inline constexpr size_t kWords = 256;
using Words = std::vector<uint32_t>;

inline void Count(void* data) { __atomic_add_fetch(static_cast<int*>(data), 1, __ATOMIC_RELAXED); }

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

inline Nodes NodesOf(CUgraph graph) {
  size_t count = 0;
  EXPECT_CUDA_OK(cuGraphGetNodes(graph, nullptr, &count));
  Nodes nodes(count);
  if (count != 0) {
    EXPECT_CUDA_OK(cuGraphGetNodes(graph, nodes.data(), &count));
  }
  return nodes;
}

inline std::vector<std::pair<CUgraphNode, CUgraphNode>> EdgesOf(CUgraph graph) {
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

inline Nodes DependenciesOf(CUgraphNode node) {
  size_t count = 0;
  EXPECT_CUDA_OK(cuGraphNodeGetDependencies_v2(node, nullptr, nullptr, &count));
  Nodes nodes(count);
  std::vector<CUgraphEdgeData> data(count);
  if (count != 0) {
    EXPECT_CUDA_OK(cuGraphNodeGetDependencies_v2(node, nodes.data(), data.data(), &count));
  }
  return nodes;
}

}  // namespace stasis

#endif  // REPLAY_GRAPH_TESTING_H_
