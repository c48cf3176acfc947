// Conditional nodes of graphs on a real daemon: values that kernels set, bodies that run as they say.
#include <cstring>

#include "softgpu/driver/memory_testing.h"

namespace softgpu {

const std::vector<std::string> kDaemonOptions = {"--gpus", "1", "--memory", "512MiB"};

namespace {

#define OK(call) ASSERT_EQ(call, CUDA_SUCCESS)
#define EXPECT_OK(call) EXPECT_EQ(call, CUDA_SUCCESS)

// count(cells, handle): cells[0] = cells[0] - 1, cells[1] = cells[1] + 1, and the condition is cells[0].
// choose(cells, handle): the condition is cells[0].   add(cells, value): cells[1] = cells[1] + value.
const char kCode[] = R"(
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
.visible .entry choose(.param .u64 cells, .param .u64 handle)
{
  .reg .b64 %rd<3>;
  .reg .b32 %r<2>;
  ld.param.u64 %rd1, [cells];
  ld.param.u64 %rd2, [handle];
  ld.global.u32 %r1, [%rd1];
  {
    .param .b64 a;
    .param .b32 b;
    st.param.b64 [a], %rd2;
    st.param.b32 [b], %r1;
    call.uni cudaGraphSetConditional, (a, b);
  }
  ret;
}
.visible .entry add(.param .u64 cells, .param .u64 value)
{
  .reg .b64 %rd<3>;
  .reg .b32 %r<3>;
  ld.param.u64 %rd1, [cells];
  ld.param.u64 %rd2, [value];
  cvt.u32.u64 %r2, %rd2;
  ld.global.u32 %r1, [%rd1+4];
  add.u32 %r1, %r1, %r2;
  st.global.u32 [%rd1+4], %r1;
  ret;
}
)";

class ConditionalTest : public testing::Test {
 protected:
  void SetUp() override {
    UseDevice();
    OK(cuCtxGetCurrent(&context_));
    OK(cuMemAlloc(&cells_, 64));
    OK(cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
    OK(cuModuleLoadData(&module_, kCode));
    OK(cuModuleGetFunction(&count_, module_, "count"));
    OK(cuModuleGetFunction(&choose_, module_, "choose"));
    OK(cuModuleGetFunction(&add_, module_, "add"));
    OK(cuGraphCreate(&graph_, 0));
  }
  void TearDown() override {
    EXPECT_OK(cuGraphDestroy(graph_));
    EXPECT_OK(cuStreamDestroy(stream_));
    EXPECT_OK(cuModuleUnload(module_));
    EXPECT_OK(cuMemFree(cells_));
  }
  CUgraphNode AddKernel(CUgraph graph, CUfunction function, uint64_t argument, CUgraphNode after = nullptr) {
    void* arguments[] = {&cells_, &argument};
    const CUDA_KERNEL_NODE_PARAMS params = {function, 1, 1,         1,       1,       1,
                                            1,        0, arguments, nullptr, nullptr, nullptr};
    CUgraphNode node = nullptr;
    EXPECT_OK(cuGraphAddKernelNode(&node, graph, &after, after == nullptr ? 0 : 1, &params));
    return node;
  }
  // The bodies of a new node.
  std::vector<CUgraph> AddConditional(CUgraph graph, CUgraphConditionalHandle handle,
                                      CUgraphConditionalNodeType kind, unsigned size, CUgraphNode after,
                                      CUgraphNode* node) {
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = handle;
    params.conditional.type = kind;
    params.conditional.size = size;
    params.conditional.ctx = context_;
    EXPECT_OK(cuGraphAddNode(node, graph, &after, nullptr, after == nullptr ? 0 : 1, &params));
    CUgraph* bodies = params.conditional.phGraph_out;
    return {bodies, bodies + size};
  }
  CUgraphConditionalHandle NewHandle(unsigned initial, unsigned flags) {
    CUgraphConditionalHandle handle = 0;
    EXPECT_OK(cuGraphConditionalHandleCreate(&handle, graph_, context_, initial, flags));
    return handle;
  }
  void Put(uint32_t first, uint32_t second) {
    const uint32_t cells[] = {first, second};
    EXPECT_OK(cuMemcpyHtoD(cells_, cells, sizeof cells));
  }
  // The second cell after an execution that begins with these.
  uint32_t Run(CUgraphExec exec, uint32_t first, uint32_t second = 0) {
    Put(first, second);
    EXPECT_OK(cuGraphLaunch(exec, stream_));
    EXPECT_OK(cuStreamSynchronize(stream_));
    uint32_t cells[2] = {};
    EXPECT_OK(cuMemcpyDtoH(cells, cells_, sizeof cells));
    return cells[1];
  }
  CUgraphExec Instantiate() {
    CUgraphExec exec = nullptr;
    EXPECT_OK(cuGraphInstantiate(&exec, graph_, 0));
    return exec;
  }

  CUcontext context_ = nullptr;
  CUdeviceptr cells_ = 0;
  CUstream stream_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction count_ = nullptr, choose_ = nullptr, add_ = nullptr;
  CUgraph graph_ = nullptr;
};

TEST_F(ConditionalTest, ALoopRunsUntilAKernelEndsIt) {
  const CUgraphConditionalHandle handle = NewHandle(1, CU_GRAPH_COND_ASSIGN_DEFAULT);
  CUgraphNode loop = nullptr;
  const std::vector<CUgraph> bodies =
      AddConditional(graph_, handle, CU_GRAPH_COND_TYPE_WHILE, 1, nullptr, &loop);
  AddKernel(bodies[0], count_, handle);
  AddKernel(graph_, add_, 1000, loop);
  const CUgraphExec exec = Instantiate();
  for (uint32_t rounds : {1u, 5u, 20u}) EXPECT_EQ(Run(exec, rounds), 1000 + rounds);
  CUgraphNodeType type;
  EXPECT_OK(cuGraphNodeGetType(loop, &type));
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_CONDITIONAL);
  EXPECT_OK(cuGraphExecDestroy(exec));
}

TEST_F(ConditionalTest, WithoutADefaultTheValueStays) {
  const CUgraphConditionalHandle handle = NewHandle(1, 0);
  CUgraphNode loop = nullptr;
  AddKernel(AddConditional(graph_, handle, CU_GRAPH_COND_TYPE_WHILE, 1, nullptr, &loop)[0], count_, handle);
  const CUgraphExec exec = Instantiate();
  EXPECT_EQ(Run(exec, 3), 3u);
  EXPECT_EQ(Run(exec, 3), 0u) << "the last execution has left it at 0";
  EXPECT_OK(cuGraphExecDestroy(exec));
}

TEST_F(ConditionalTest, BranchesAndSwitchesChooseABody) {
  const CUgraphConditionalHandle branch = NewHandle(0, CU_GRAPH_COND_ASSIGN_DEFAULT);
  const CUgraphConditionalHandle choice = NewHandle(0, CU_GRAPH_COND_ASSIGN_DEFAULT);
  CUgraphNode node = nullptr;
  CUgraphNode last = AddKernel(graph_, choose_, branch);
  std::vector<CUgraph> bodies = AddConditional(graph_, branch, CU_GRAPH_COND_TYPE_IF, 2, last, &node);
  AddKernel(bodies[0], add_, 1);
  AddKernel(bodies[1], add_, 2);
  last = AddKernel(graph_, choose_, choice, node);
  bodies = AddConditional(graph_, choice, CU_GRAPH_COND_TYPE_SWITCH, 3, last, &node);
  for (size_t i = 0; i < 3; ++i) AddKernel(bodies[i], add_, 10 * (i + 1));
  const CUgraphExec exec = Instantiate();
  EXPECT_EQ(Run(exec, 0), 12u);
  EXPECT_EQ(Run(exec, 1), 21u);
  EXPECT_EQ(Run(exec, 2), 31u);
  EXPECT_EQ(Run(exec, 3), 1u) << "no body";
  EXPECT_OK(cuGraphExecDestroy(exec));
}

TEST_F(ConditionalTest, BodiesHaveConditionalNodesToo) {
  const CUgraphConditionalHandle outer = NewHandle(1, CU_GRAPH_COND_ASSIGN_DEFAULT);
  const CUgraphConditionalHandle inner = NewHandle(0, CU_GRAPH_COND_ASSIGN_DEFAULT);
  CUgraphNode loop = nullptr, branch = nullptr;
  const CUgraph body = AddConditional(graph_, outer, CU_GRAPH_COND_TYPE_WHILE, 1, nullptr, &loop)[0];
  const CUgraphNode counted = AddKernel(body, count_, outer);
  const CUgraphNode chosen = AddKernel(body, choose_, inner, counted);
  const CUgraph last = AddConditional(body, inner, CU_GRAPH_COND_TYPE_IF, 1, chosen, &branch)[0];
  const CUgraphNode add = AddKernel(last, add_, 100);
  const CUgraphExec exec = Instantiate();
  EXPECT_EQ(Run(exec, 4), 4u + 3 * 100u) << "not in the last round";
  // A node of a body is changed in the executable graph; an update brings the graph's own back.
  uint64_t argument = 1000;
  void* arguments[] = {&cells_, &argument};
  const CUDA_KERNEL_NODE_PARAMS params = {add_, 1, 1, 1, 1, 1, 1, 0, arguments, nullptr, nullptr, nullptr};
  EXPECT_OK(cuGraphExecKernelNodeSetParams(exec, add, &params));
  EXPECT_EQ(Run(exec, 4), 4u + 3 * 1000u);
  CUgraphExecUpdateResultInfo info{};
  EXPECT_OK(cuGraphExecUpdate(exec, graph_, &info));
  EXPECT_EQ(Run(exec, 4), 4u + 3 * 100u);
  AddKernel(last, add_, 5);
  EXPECT_EQ(cuGraphExecUpdate(exec, graph_, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  EXPECT_OK(cuGraphExecDestroy(exec));
}

TEST_F(ConditionalTest, WhatIsNotAllowedIsRefused) {
  CUgraphConditionalHandle handle = 0;
  EXPECT_EQ(cuGraphConditionalHandleCreate(&handle, graph_, context_, 0, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphConditionalHandleCreate(&handle, nullptr, context_, 0, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuGraphConditionalHandleCreate(&handle, graph_, nullptr, 0, 0), CUDA_ERROR_INVALID_CONTEXT);
  handle = NewHandle(1, CU_GRAPH_COND_ASSIGN_DEFAULT);
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  params.conditional = {handle, CU_GRAPH_COND_TYPE_WHILE, 2, nullptr, context_};
  CUgraphNode node = nullptr;
  EXPECT_EQ(cuGraphAddNode(&node, graph_, nullptr, nullptr, 0, &params), CUDA_ERROR_INVALID_VALUE)
      << "one body";
  params.conditional = {handle + 1000, CU_GRAPH_COND_TYPE_WHILE, 1, nullptr, context_};
  EXPECT_EQ(cuGraphAddNode(&node, graph_, nullptr, nullptr, 0, &params), CUDA_ERROR_INVALID_VALUE);
  const CUgraph body = AddConditional(graph_, handle, CU_GRAPH_COND_TYPE_IF, 1, nullptr, &node)[0];
  EXPECT_EQ(cuGraphDestroy(body), CUDA_ERROR_INVALID_VALUE) << "it belongs to the node";
  CUgraph clone = nullptr;
  EXPECT_EQ(cuGraphClone(&clone, graph_), CUDA_ERROR_NOT_SUPPORTED);
  CUDA_HOST_NODE_PARAMS host{[](void*) {}, nullptr};
  CUgraphNode call = nullptr, error = nullptr;
  EXPECT_OK(cuGraphAddHostNode(&call, body, nullptr, 0, &host));
  CUDA_GRAPH_INSTANTIATE_PARAMS instantiate{};
  CUgraphExec exec = nullptr;
  EXPECT_EQ(cuGraphInstantiateWithParams(&exec, graph_, &instantiate), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(instantiate.hErrNode_out, call);
  static_cast<void>(error);
  EXPECT_OK(cuGraphDestroyNode(node));
  size_t count = 0;
  EXPECT_EQ(cuGraphGetNodes(body, nullptr, &count), CUDA_ERROR_INVALID_HANDLE) << "gone with its node";
}

// The number comes back when nobody can use it any more.
TEST_F(ConditionalTest, HandlesLiveAsLongAsTheirGraph) {
  const CUgraphConditionalHandle handle = NewHandle(1, CU_GRAPH_COND_ASSIGN_DEFAULT);
  CUgraphNode loop = nullptr;
  AddKernel(AddConditional(graph_, handle, CU_GRAPH_COND_TYPE_WHILE, 1, nullptr, &loop)[0], count_, handle);
  const CUgraphExec exec = Instantiate();
  EXPECT_OK(cuGraphDestroy(graph_));
  OK(cuGraphCreate(&graph_, 0));
  EXPECT_NE(NewHandle(0, 0), handle);
  EXPECT_EQ(Run(exec, 3), 3u) << "the executable graph still has it";
  EXPECT_OK(cuGraphExecDestroy(exec));
  EXPECT_EQ(NewHandle(0, 0), handle);
}

// A body by capture, as the programming guide has it.
TEST_F(ConditionalTest, BodiesAreCapturedInto) {
  const CUgraphConditionalHandle handle = NewHandle(1, CU_GRAPH_COND_ASSIGN_DEFAULT);
  CUgraphNode loop = nullptr;
  const CUgraph body = AddConditional(graph_, handle, CU_GRAPH_COND_TYPE_WHILE, 1, nullptr, &loop)[0];
  OK(cuStreamBeginCaptureToGraph(stream_, body, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
  uint64_t argument = handle;
  void* arguments[] = {&cells_, &argument};
  OK(cuLaunchKernel(count_, 1, 1, 1, 1, 1, 1, 0, stream_, arguments, nullptr));
  CUgraph captured = nullptr;
  OK(cuStreamEndCapture(stream_, &captured));
  EXPECT_EQ(captured, body);
  const CUgraphExec exec = Instantiate();
  EXPECT_EQ(Run(exec, 7), 7u);
  EXPECT_OK(cuGraphExecDestroy(exec));
}

}  // namespace
}  // namespace softgpu
