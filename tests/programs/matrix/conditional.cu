// Graphs that decide: a loop and a choice, by values that their kernels set.
#include "matrix.h"

namespace {

using matrix::Say;
using matrix::SayHash;

constexpr unsigned kCount = 64;
unsigned* cells;
cudaStream_t stream;
cudaGraph_t graph;
cudaGraphExec_t loop_exec, gone_exec;

// cells[0] counts down and cells[1] up.
__global__ void CountDown(unsigned* cells, cudaGraphConditionalHandle handle) {
  cells[1] += 1;
  cells[0] -= 1;
  cudaGraphSetConditional(handle, cells[0] != 0);
}

__global__ void Choose(const unsigned* cells, cudaGraphConditionalHandle handle) { cudaGraphSetConditional(handle, cells[1] % 4); }

__global__ void Add(unsigned* cells, unsigned amount) { cells[2 + threadIdx.x] += amount * (threadIdx.x + 1); }

cudaGraphNode_t AddKernel(cudaGraph_t to, const cudaGraphNode_t* after, void* function, unsigned threads, void** arguments) {
  cudaKernelNodeParams params{};
  params.func = function;
  params.gridDim = dim3(1);
  params.blockDim = dim3(threads);
  params.kernelParams = arguments;
  cudaGraphNode_t node = nullptr;
  CHECK(cudaGraphAddKernelNode(&node, to, after, after != nullptr, &params));
  return node;
}

cudaGraph_t* AddConditional(cudaGraph_t to, const cudaGraphNode_t* after, cudaGraphConditionalHandle handle,
                            cudaGraphConditionalNodeType type, unsigned size, cudaGraphNode_t* node) {
  cudaGraphNodeParams params{};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.handle = handle;
  params.conditional.type = type;
  params.conditional.size = size;
  CHECK(cudaGraphAddNode(node, to, after, nullptr, after != nullptr, &params));
  return params.conditional.phGraph_out;
}

// A loop that counts, then one of three bodies.
cudaGraph_t NewGraph(unsigned amount) {
  cudaGraph_t made = nullptr;
  cudaGraphConditionalHandle rounds, choice;
  cudaGraphNode_t loop, chosen;
  CHECK(cudaGraphCreate(&made, 0));
  CHECK(cudaGraphConditionalHandleCreate(&rounds, made, 1, cudaGraphCondAssignDefault));
  CHECK(cudaGraphConditionalHandleCreate(&choice, made, 0, cudaGraphCondAssignDefault));
  void* counted[] = {&cells, &rounds};
  AddKernel(AddConditional(made, nullptr, rounds, cudaGraphCondTypeWhile, 1, &loop)[0], nullptr,
            reinterpret_cast<void*>(CountDown), 1, counted);
  void* choosing[] = {&cells, &choice};
  const cudaGraphNode_t choose = AddKernel(made, &loop, reinterpret_cast<void*>(Choose), 1, choosing);
  cudaGraph_t* bodies = AddConditional(made, &choose, choice, cudaGraphCondTypeSwitch, 3, &chosen);
  for (unsigned i = 0; i < 3; ++i) {
    unsigned much = amount * (i + 1);
    void* added[] = {&cells, &much};
    AddKernel(bodies[i], nullptr, reinterpret_cast<void*>(Add), kCount - 2, added);
  }
  return made;
}

void MakeConditional() {
  cells = matrix::Cells(kCount, 3);
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaDeviceSynchronize());
  const cudaGraph_t gone = NewGraph(100);
  graph = NewGraph(1);
  CHECK(cudaGraphInstantiate(&gone_exec, gone, 0));
  CHECK(cudaGraphInstantiate(&loop_exec, graph, 0));
  CHECK(cudaGraphDestroy(gone));
}

void StepConditional(unsigned number) {
  const unsigned begin[] = {number + 1, number};
  for (cudaGraphExec_t exec : {loop_exec, gone_exec}) {
    CHECK(cudaMemcpyAsync(cells, begin, sizeof begin, cudaMemcpyHostToDevice, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaStreamSynchronize(stream));
    SayHash("cells", cells, kCount * sizeof(unsigned));
  }
  size_t nodes = 0;
  CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
  Say("nodes %zu", nodes);
}

void EndConditional() {
  CHECK(cudaGraphExecDestroy(loop_exec));
  CHECK(cudaGraphExecDestroy(gone_exec));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaFree(cells));
}
MATRIX_CASE(conditional, "conditional-nodes", "kConditional kGraph kGraphNode kGraphExec", MakeConditional, StepConditional,
            EndConditional);

}  // namespace
