// Conditional nodes over rebuilds: kernels set the values under their old numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "replay/graph_testing.h"

namespace stasis {
namespace {

using replay::PauseAndResume;
using replay::Refusal;
using testing::HasSubstr;

// count(cells, handle): cells[1] += 1, cells[0] -= 1, and the condition is cells[0].
const char kCounter[] = R"(
.version 8.0
.target sm_75
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);
.visible .entry count(.param .u64 cells, .param .u64 handle)
{
  .reg .b64 %rd<3>;
  .reg .b32 %r<3>;
  ld.param.u64 %rd1, [cells];
  ld.param.u64 %rd2, [handle];
  ld.global.u32 %r1, [%rd1+4];
  add.u32 %r1, %r1, 1;
  st.global.u32 [%rd1+4], %r1;
  ld.global.u32 %r2, [%rd1];
  sub.u32 %r2, %r2, 1;
  st.global.u32 [%rd1], %r2;
  {
    .param .b64 a;
    .param .b32 b;
    st.param.b64 [a], %rd2;
    st.param.b32 [b], %r2;
    call.uni cudaGraphSetConditional, (a, b);
  }
  ret;
}
)";

class ReplayConditionalTest : public ReplayGraphTest {
 protected:
  void SetUp() override {
    ReplayGraphTest::SetUp();
    ASSERT_CUDA_OK(cuModuleLoadData(&counter_, kCounter));
    ASSERT_CUDA_OK(cuModuleGetFunction(&count_, counter_, "count"));
  }
  void TearDown() override {
    EXPECT_CUDA_OK(cuModuleUnload(counter_));
    // One record, of all conditional handles, stays with the first one.
    records_ += 1;
    ReplayGraphTest::TearDown();
  }
  CUgraphConditionalHandle NewHandle(CUgraph graph) {
    CUgraphConditionalHandle handle = 0;
    EXPECT_CUDA_OK(cuGraphConditionalHandleCreate(&handle, graph, context_, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
    return handle;
  }
  CUgraph* AddConditional(CUgraph graph, CUgraphConditionalHandle handle, CUgraphConditionalNodeType type,
                          unsigned size, CUgraphNode* node) {
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = size;
    params.conditional.ctx = context_;
    EXPECT_CUDA_OK(cuGraphAddNode_v2(node, graph, nullptr, nullptr, 0, &params));
    return params.conditional.phGraph_out;
  }
  CUgraphNode AddCount(CUgraph graph, CUgraphConditionalHandle handle) {
    uint64_t number = handle;
    void* arguments[] = {&words_, &number};
    const CUDA_KERNEL_NODE_PARAMS params = Kernel(count_, arguments);
    CUgraphNode node = nullptr;
    EXPECT_CUDA_OK(cuGraphAddKernelNode_v2(&node, graph, nullptr, 0, &params));
    return node;
  }
  struct Loop {
    CUgraph graph, body;
    CUgraphNode node, count;
    CUgraphConditionalHandle handle;
    CUgraph* bodies;
  };
  Loop NewLoop() {
    Loop loop{};
    loop.graph = NewGraph();
    loop.handle = NewHandle(loop.graph);
    loop.bodies = AddConditional(loop.graph, loop.handle, CU_GRAPH_COND_TYPE_WHILE, 1, &loop.node);
    loop.body = loop.bodies[0];
    loop.count = AddCount(loop.body, loop.handle);
    return loop;
  }
  // How often the body runs.
  uint32_t Rounds(CUgraphExec exec, uint32_t wanted) {
    const uint32_t cells[] = {wanted, 0};
    EXPECT_CUDA_OK(cuMemcpyHtoD_v2(words_, cells, sizeof cells));
    EXPECT_CUDA_OK(cuGraphLaunch(exec, stream_));
    EXPECT_CUDA_OK(cuStreamSynchronize(stream_));
    return ReadWord(1);
  }

  CUmodule counter_ = nullptr;
  CUfunction count_ = nullptr;
};

TEST_F(ReplayConditionalTest, LoopsGoOnUnderTheirNumbers) {
  const Loop first = NewLoop(), gone = NewLoop(), last = NewLoop();
  const CUgraphExec one = Instantiate(first.graph), two = Instantiate(last.graph);
  EXPECT_CUDA_OK(cuGraphDestroy(gone.graph));  // leaves a gap
  for (int pause = 0; pause < 3; ++pause) {
    PauseAndResume();
    EXPECT_EQ(Rounds(one, 3), 3u);
    EXPECT_EQ(Rounds(two, 8), 8u);
    EXPECT_EQ(first.bodies[0], first.body) << "the program may have kept the list";
    EXPECT_EQ(NodesOf(first.graph), Nodes{first.node});
    EXPECT_EQ(NodesOf(first.body), Nodes{first.count});
  }
  // The gap is free, and only it.
  const Loop fresh = NewLoop();
  EXPECT_EQ(fresh.handle, gone.handle);
  const CUgraphExec three = Instantiate(fresh.graph);
  PauseAndResume();
  EXPECT_EQ(Rounds(three, 5), 5u);
  for (CUgraphExec exec : {one, two, three}) EXPECT_CUDA_OK(cuGraphExecDestroy(exec));
  for (const Loop& loop : {first, last, fresh}) EXPECT_CUDA_OK(cuGraphDestroy(loop.graph));
  PauseAndResume();
}

TEST_F(ReplayConditionalTest, AnExecutableGraphOutlivesItsGraph) {
  const Loop loop = NewLoop();
  const CUgraphExec exec = Instantiate(loop.graph);
  EXPECT_CUDA_OK(cuGraphDestroy(loop.graph));
  PauseAndResume();
  EXPECT_EQ(Rounds(exec, 4), 4u);
  const Loop other = NewLoop();
  EXPECT_NE(other.handle, loop.handle);
  PauseAndResume();
  EXPECT_EQ(Rounds(exec, 6), 6u);
  EXPECT_CUDA_OK(cuGraphExecDestroy(exec));
  EXPECT_CUDA_OK(cuGraphDestroy(other.graph));
}

TEST_F(ReplayConditionalTest, BranchesSwitchesAndBodiesWithin) {
  const CUgraph graph = NewGraph();
  const CUgraphConditionalHandle loop = NewHandle(graph), choice = NewHandle(graph);
  CUgraphNode node = nullptr, inner = nullptr;
  const CUgraph body = AddConditional(graph, loop, CU_GRAPH_COND_TYPE_WHILE, 1, &node)[0];
  AddCount(body, loop);
  CUgraph* choices = AddConditional(body, choice, CU_GRAPH_COND_TYPE_SWITCH, 3, &inner);
  for (uint32_t i = 0; i < 3; ++i) AddStore(choices[i], {}, 10 + i, 7 + i);
  const CUgraphExec exec = Instantiate(graph);
  for (int pause = 0; pause < 2; ++pause) {
    Clear();
    EXPECT_EQ(Rounds(exec, 2), 2u);
    EXPECT_EQ(ReadWord(10), 0u);
    EXPECT_EQ(ReadWord(11), 8u) << "the default chooses the second body";
    EXPECT_EQ(ReadWord(12), 0u);
    PauseAndResume();
  }
  EXPECT_CUDA_OK(cuGraphExecDestroy(exec));
  EXPECT_CUDA_OK(cuGraphDestroy(graph));
}

TEST_F(ReplayConditionalTest, WhatDiffersFromItsGraphIsRefusedByName) {
  const Loop loop = NewLoop();
  CUgraphExec exec = Instantiate(loop.graph);
  EXPECT_EQ(Refusal(), "");
  SetStore(nullptr, AddStore(loop.body, {loop.count}, 20, 1), 20, 2);
  EXPECT_THAT(Refusal(), HasSubstr("its graph has changed since, and has conditional nodes"));
  EXPECT_EQ(Rounds(exec, 3), 3u);
  EXPECT_CUDA_OK(cuGraphExecDestroy(exec));
  exec = Instantiate(loop.graph);
  EXPECT_EQ(Refusal(), "");
  // An update brings it in line with the graph; other changes of its own do not.
  CUgraphExecUpdateResultInfo info{};
  SetStore(nullptr, NodesOf(loop.body)[1], 20, 3);
  EXPECT_CUDA_OK(cuGraphExecUpdate_v2(exec, loop.graph, &info));
  EXPECT_EQ(Refusal(), "");
  PauseAndResume();
  EXPECT_EQ(Rounds(exec, 3), 3u);
  EXPECT_EQ(ReadWord(20), 3u);
  SetStore(exec, NodesOf(loop.body)[1], 20, 4);
  EXPECT_THAT(Refusal(), HasSubstr("cuGraphExecKernelNodeSetParams_v2 has changed it"));
  EXPECT_CUDA_OK(cuGraphExecDestroy(exec));
  EXPECT_EQ(Refusal(), "");
  EXPECT_CUDA_OK(cuGraphDestroy(loop.graph));
}

TEST_F(ReplayConditionalTest, NothingIsLeft) {
  size_t records = 0;
  for (int i = 0; i < 50; ++i) {
    const Loop loop = NewLoop();
    const CUgraphExec exec = Instantiate(loop.graph);
    PauseAndResume();
    EXPECT_EQ(Rounds(exec, 2), 2u);
    EXPECT_EQ(loop.handle, 1u);
    EXPECT_CUDA_OK(cuGraphExecDestroy(exec));
    EXPECT_CUDA_OK(cuGraphDestroy(loop.graph));
    if (i == 0) records = replay::ObjectTable::Get().size();
  }
  EXPECT_EQ(replay::ObjectTable::Get().size(), records);
}

}  // namespace
}  // namespace stasis

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const stasis::vmm::TestNode node({"--gpus", "2", "--memory", "256MiB"});
  setenv("STASIS_DRIVER", LIBCUDA_PATH, 1);
  return RUN_ALL_TESTS();
}
