// Executable graphs over rebuilds: what they were made from, and what was changed in them since.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "replay/graph_testing.h"
#include "replay/pause.h"
#include "vmm/pause.h"

namespace stasis {
namespace {

using replay::ComeBack;
using replay::LetGo;
using replay::PauseAndResume;
using replay::Refusal;
using testing::HasSubstr;

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

}  // namespace
}  // namespace stasis

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const stasis::vmm::TestNode node({"--gpus", "2", "--memory", "256MiB"});
  setenv("STASIS_DRIVER", LIBCUDA_PATH, 1);
  return RUN_ALL_TESTS();
}
