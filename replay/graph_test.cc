// Graphs made through the interposer's own wrappers, and used again in a new driver under their old handles.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "replay/graph_edges.h"
#include "replay/graph_testing.h"

namespace stasis {
namespace {

using replay::PauseAndResume;
using replay::Refusal;
using testing::HasSubstr;

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

// Shape, order and meaning of random graphs, and what is built on them by both drivers.
// Handles inside of attributes, and copies of attributes from node to node.
TEST_F(ReplayGraphTest, KernelAttributesWithEvents) {
  CUevent event = nullptr;
  ASSERT_CUDA_OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  const CUgraph graph = NewGraph();
  const CUgraphNode one = AddStore(graph, {}, 1, 1), two = AddStore(graph, {one}, 2, 2);
  PauseAndResume();
  CUkernelNodeAttrValue value{}, got{};
  value.launchCompletionEvent.event = event;
  ASSERT_CUDA_OK(cuGraphKernelNodeSetAttribute(one, CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT, &value));
  ASSERT_CUDA_OK(cuGraphKernelNodeGetAttribute(one, CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT, &got));
  EXPECT_EQ(got.launchCompletionEvent.event, event);
  value = {};
  value.priority = 2;
  ASSERT_CUDA_OK(cuGraphKernelNodeSetAttribute(one, CU_LAUNCH_ATTRIBUTE_PRIORITY, &value));
  ASSERT_CUDA_OK(cuGraphKernelNodeCopyAttributes(two, one));
  PauseAndResume();
  for (CUgraphNode node : {one, two}) {
    got = {};
    EXPECT_CUDA_OK(cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, &got));
    EXPECT_EQ(got.priority, 2);
  }
  EXPECT_CUDA_OK(cuGraphDestroy(graph));
  EXPECT_CUDA_OK(cuEventDestroy_v2(event));
}

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
