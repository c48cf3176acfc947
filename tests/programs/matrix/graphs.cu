// Graphs: built and captured, changed after a pause, and what they hold.
#include "matrix.h"

namespace {

using matrix::LaunchMix;
using matrix::Say;
using matrix::SayHash;

constexpr unsigned kCount = 500;
unsigned* cells;
unsigned* copied;
cudaStream_t stream, side;
cudaEvent_t forked, joined;
cudaGraph_t graph;
cudaGraphExec_t exec;
int host_calls;

__device__ unsigned global_total = 17;
__global__ void AddToGlobal(unsigned amount) { global_total = global_total * 3 + amount; }

void CUDART_CB CountCall(void* data) { ++*static_cast<int*>(data); }

void MakeAll() {
  cells = matrix::Cells(kCount, 9);
  copied = matrix::Cells(kCount, 10);
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
  CHECK(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
  CHECK(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
  CHECK(cudaDeviceSynchronize());
}

void EndAll() {
  for (cudaEvent_t event : {forked, joined}) CHECK(cudaEventDestroy(event));
  for (cudaStream_t one : {stream, side}) CHECK(cudaStreamDestroy(one));
  for (unsigned* block : {cells, copied}) CHECK(cudaFree(block));
}

void SayCells() {
  CHECK(cudaStreamSynchronize(stream));
  SayHash("cells", cells, kCount * sizeof(unsigned));
  SayHash("copied", copied, kCount * sizeof(unsigned));
  Say("calls %d", host_calls);
}

void Launch() { CHECK(cudaGraphLaunch(exec, stream)); }

// A kernel node that mixes the cells.
cudaGraphNode_t AddMix(cudaGraph_t to, const cudaGraphNode_t* after, unsigned seed) {
  unsigned count = kCount;
  void* arguments[] = {&cells, &count, &seed};
  cudaKernelNodeParams params{};
  params.func = reinterpret_cast<void*>(matrix::Mix);
  params.gridDim = dim3((kCount + 63) / 64);
  params.blockDim = dim3(64);
  params.kernelParams = arguments;
  cudaGraphNode_t node = nullptr;
  CHECK(cudaGraphAddKernelNode(&node, to, after, after != nullptr, &params));
  return node;
}

void SetMix(cudaGraphNode_t node, unsigned seed) {
  unsigned count = kCount;
  void* arguments[] = {&cells, &count, &seed};
  cudaKernelNodeParams params{};
  params.func = reinterpret_cast<void*>(matrix::Mix);
  params.gridDim = dim3((kCount + 63) / 64);
  params.blockDim = dim3(64);
  params.kernelParams = arguments;
  CHECK(cudaGraphExecKernelNodeSetParams(exec, node, &params));
}

// ---- A graph with a node of each plain type.

cudaGraphNode_t mix_node;

void MakeBuilt() {
  MakeAll();
  CHECK(cudaGraphCreate(&graph, 0));
  mix_node = AddMix(graph, nullptr, 1);
  cudaGraphNode_t copy, set, host, empty, record, wait;
  CHECK(cudaGraphAddMemcpyNode1D(&copy, graph, &mix_node, 1, copied, cells, kCount / 2 * sizeof(unsigned), cudaMemcpyDeviceToDevice));
  cudaMemsetParams fill{};
  fill.dst = copied + kCount / 2;
  fill.value = 77;
  fill.elementSize = 4;
  fill.width = 20;
  fill.height = 1;
  CHECK(cudaGraphAddMemsetNode(&set, graph, &copy, 1, &fill));
  const cudaHostNodeParams called{CountCall, &host_calls};
  CHECK(cudaGraphAddHostNode(&host, graph, &set, 1, &called));
  CHECK(cudaGraphAddEmptyNode(&empty, graph, &host, 1));
  CHECK(cudaGraphAddEventRecordNode(&record, graph, &empty, 1, forked));
  CHECK(cudaGraphAddEventWaitNode(&wait, graph, &record, 1, joined));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
}

void StepBuilt(unsigned number) {
  size_t nodes = 0, edges = 0;
  cudaGraphNodeType type;
  Launch();
  SayCells();
  CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
  CHECK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
  CHECK(cudaGraphNodeGetType(mix_node, &type));
  Say("nodes %zu edges %zu type %d event %s", nodes, edges, type, cudaGetErrorName(cudaEventQuery(forked)));
  (void)number;
}

void EndGraph() {
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  EndAll();
}
MATRIX_CASE(built, "graph", "kGraph kGraphNode kGraphExec", MakeBuilt, StepBuilt, EndGraph);

// ---- Pair: an executable graph whose nodes are changed in the steps, which may follow a pause.

void StepChanged(unsigned number) {
  SetMix(mix_node, number * 13);
  Launch();
  SayCells();
  if (number % 2 == 0) {
    cudaGraph_t fresh = nullptr;
    CHECK(cudaGraphClone(&fresh, graph));
    cudaGraphExecUpdateResultInfo info{};
    CHECK(cudaGraphExecUpdate(exec, fresh, &info));
    CHECK(cudaGraphDestroy(fresh));
    Launch();
    SayCells();
  }
}
MATRIX_CASE(changed, "graph-updated", "kGraph kGraphNode kGraphExec", MakeBuilt, StepChanged, EndGraph);

// ---- Pair: a capture of two streams that events join, one kept and one made in every step.

cudaGraph_t Capture(unsigned seed) {
  cudaGraph_t made = nullptr;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  LaunchMix(cells, kCount, seed, stream);
  CHECK(cudaEventRecord(forked, stream));
  CHECK(cudaStreamWaitEvent(side, forked));
  CHECK(cudaMemcpyAsync(copied, cells, 100 * sizeof(unsigned), cudaMemcpyDeviceToDevice, side));
  CHECK(cudaLaunchHostFunc(side, CountCall, &host_calls));
  CHECK(cudaEventRecord(joined, side));
  CHECK(cudaStreamWaitEvent(stream, joined));
  LaunchMix(cells, kCount, seed + 1, stream);
  CHECK(cudaStreamEndCapture(stream, &made));
  return made;
}

void MakeCaptured() {
  MakeAll();
  graph = Capture(3);
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
}

void StepCaptured(unsigned number) {
  Launch();
  SayCells();
  cudaGraph_t fresh = Capture(number);
  cudaGraphExecUpdateResultInfo info{};
  CHECK(cudaGraphExecUpdate(exec, fresh, &info));
  CHECK(cudaGraphDestroy(fresh));
}
MATRIX_CASE(captured, "capture-with-events", "kGraph kGraphExec kEvent kStream", MakeCaptured, StepCaptured, EndGraph);

// ---- A graph within a graph.

cudaGraph_t inner;
cudaGraphNode_t child_node;

void MakeChild() {
  MakeAll();
  CHECK(cudaGraphCreate(&inner, 0));
  const cudaGraphNode_t first = AddMix(inner, nullptr, 4);
  AddMix(inner, &first, 5);
  CHECK(cudaGraphCreate(&graph, 0));
  const cudaGraphNode_t before = AddMix(graph, nullptr, 6);
  CHECK(cudaGraphAddChildGraphNode(&child_node, graph, &before, 1, inner));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
}

// The node on which no other depends.
cudaGraphNode_t LastOf(cudaGraph_t of) {
  cudaGraphNode_t nodes[40];
  size_t count = 40;
  CHECK(cudaGraphGetNodes(of, nodes, &count));
  for (size_t i = 0; i < count; ++i) {
    size_t dependents = 0;
    CHECK(cudaGraphNodeGetDependentNodes(nodes[i], nullptr, nullptr, &dependents));
    if (dependents == 0) return nodes[i];
  }
  return nullptr;
}

void StepChild(unsigned number) {
  Launch();
  SayCells();
  cudaGraph_t within = nullptr;
  size_t nodes = 0;
  CHECK(cudaGraphChildGraphNodeGetGraph(child_node, &within));
  CHECK(cudaGraphGetNodes(within, nullptr, &nodes));
  Say("inner nodes %zu", nodes);
  if (number % 2 != 0) return;
  // The graph has its own copy of the inner one; that copy grows at its end, and the next launch shows it.
  const cudaGraphNode_t last = LastOf(within);
  AddMix(within, &last, number);
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
}

void EndChild() {
  CHECK(cudaGraphDestroy(inner));
  EndGraph();
}
MATRIX_CASE(child, "child-graph", "kGraph kGraphNode kGraphExec", MakeChild, StepChild, EndChild);

// ---- Pair: a user object in a graph, let go by the program, by one graph, then by the executable one.

int destroyed;
void CUDART_CB Destroyed(void*) { ++destroyed; }

void MakeUserObject() {
  MakeAll();
  cudaUserObject_t object = nullptr;
  CHECK(cudaUserObjectCreate(&object, &destroyed, Destroyed, 2, cudaUserObjectNoDestructorSync));
  CHECK(cudaGraphCreate(&graph, 0));
  AddMix(graph, nullptr, 1);
  CHECK(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaUserObjectRelease(object, 1));
}

void StepUserObject(unsigned number) {
  cudaUserObject_t passing = nullptr;
  CHECK(cudaUserObjectCreate(&passing, &destroyed, Destroyed, 1, cudaUserObjectNoDestructorSync));
  CHECK(cudaGraphRetainUserObject(graph, passing, 1, cudaGraphUserObjectMove));
  Launch();
  SayCells();
  if (number % 2 == 0) CHECK(cudaGraphReleaseUserObject(graph, passing, 1));
}

void EndUserObject() {
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaGraphExecDestroy(exec));
  EndAll();
}
MATRIX_CASE(user_object, "user-object-in-graph", "kUserObject kGraph kGraphExec", MakeUserObject, StepUserObject, EndUserObject);

// ---- Pair: a graph whose kernel changes a global of its module.

void MakeGlobal() {
  MakeAll();
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  AddToGlobal<<<1, 1, 0, stream>>>(5);
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
}

void StepGlobal(unsigned number) {
  Launch();
  CHECK(cudaStreamSynchronize(stream));
  unsigned value = 0;
  CHECK(cudaMemcpyFromSymbol(&value, global_total, sizeof value));
  Say("global %u", value);
  value += number;
  CHECK(cudaMemcpyToSymbol(global_total, &value, sizeof value));
}
MATRIX_CASE(global, "global-in-graph", "kGraph kGraphExec kVariable", MakeGlobal, StepGlobal, EndGraph);

// ---- A graph that allocates and frees: its memory is the driver's own.

void MakeAllocating() {
  MakeAll();
  CHECK(cudaGraphCreate(&graph, 0));
  cudaMemAllocNodeParams allocation{};
  allocation.poolProps.allocType = cudaMemAllocationTypePinned;
  allocation.poolProps.location = {cudaMemLocationTypeDevice, 0};
  allocation.bytesize = kCount * sizeof(unsigned);
  cudaGraphNode_t allocate, fill, back, free;
  CHECK(cudaGraphAddMemAllocNode(&allocate, graph, nullptr, 0, &allocation));
  CHECK(cudaGraphAddMemcpyNode1D(&fill, graph, &allocate, 1, allocation.dptr, cells, kCount * sizeof(unsigned), cudaMemcpyDeviceToDevice));
  CHECK(cudaGraphAddMemcpyNode1D(&back, graph, &fill, 1, copied, allocation.dptr, kCount * sizeof(unsigned), cudaMemcpyDeviceToDevice));
  CHECK(cudaGraphAddMemFreeNode(&free, graph, &back, 1, allocation.dptr));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
}

void StepAllocating(unsigned number) {
  LaunchMix(cells, kCount, number, stream);
  Launch();
  SayCells();
}
MATRIX_CASE(allocating, "graph-with-memory-nodes", "kGraph kGraphNode kGraphExec", MakeAllocating, StepAllocating, EndGraph,
            "reconstruct cuGraphAddMemAllocNode");

}  // namespace
