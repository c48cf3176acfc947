// Graphs of every origin, one step for each line of standard input. A step changes or runs what earlier steps
// made, and prints the numbers that result, so that a test can disturb the program between any two of them.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

constexpr int kCells = 64;

__global__ void Add(int* cells, int index, int amount) { atomicAdd(cells + index, amount); }
__global__ void Scale(int* cells, int factor) {
  cells[threadIdx.x] = cells[threadIdx.x] * factor + threadIdx.x;
}

static void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", what, cudaGetErrorName(error));
  std::fflush(stdout);
  std::exit(1);
}
#define CHECK(call) Check(call, #call)

static int* cells;
static int host_calls = 0, host_cells[kCells];
static cudaStream_t stream, side;
static cudaEvent_t fork_event, join_event, mark;
static cudaGraph_t built, captured, parent, clone_of_built;
static cudaGraphExec_t built_exec, captured_exec, parent_exec;
static cudaGraphNode_t add_node, scale_node, host_node, inner_node;

static void CUDART_CB CountCall(void* data) { ++*static_cast<int*>(data); }

static void Show(const char* step) {
  CHECK(cudaStreamSynchronize(stream));
  int now[kCells];
  CHECK(cudaMemcpy(now, cells, sizeof now, cudaMemcpyDeviceToHost));
  unsigned hash = 2166136261u;
  for (int cell : now) hash = (hash ^ static_cast<unsigned>(cell)) * 16777619u;
  std::printf("%s %d %d %d %08x calls %d host %d\n", step, now[0], now[1], now[2], hash, host_calls,
              host_cells[1]);
  std::fflush(stdout);
}

static cudaKernelNodeParams KernelParams(void* function, int threads, void** arguments) {
  cudaKernelNodeParams params{};
  params.func = function;
  params.gridDim = dim3(1);
  params.blockDim = dim3(threads);
  params.kernelParams = arguments;
  return params;
}

static void Explicit() {
  int index = 1, amount = 5, factor = 3;
  void* add[] = {&cells, &index, &amount};
  void* scale[] = {&cells, &factor};
  CHECK(cudaGraphCreate(&built, 0));
  cudaKernelNodeParams params = KernelParams(reinterpret_cast<void*>(Add), 1, add);
  CHECK(cudaGraphAddKernelNode(&add_node, built, nullptr, 0, &params));
  params = KernelParams(reinterpret_cast<void*>(Scale), kCells, scale);
  CHECK(cudaGraphAddKernelNode(&scale_node, built, &add_node, 1, &params));
  cudaGraphNode_t copy;
  CHECK(cudaGraphAddMemcpyNode1D(&copy, built, &scale_node, 1, host_cells, cells, sizeof host_cells,
                                 cudaMemcpyDeviceToHost));
  cudaHostNodeParams host{CountCall, &host_calls};
  CHECK(cudaGraphAddHostNode(&host_node, built, &copy, 1, &host));
  CHECK(cudaGraphInstantiate(&built_exec, built, 0));
}

static void Launch(cudaGraphExec_t exec) { CHECK(cudaGraphLaunch(exec, stream)); }

// A graph by capture of two streams.
static cudaGraph_t Capture(int amount) {
  cudaGraph_t graph;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  Add<<<1, 1, 0, stream>>>(cells, 0, amount);
  CHECK(cudaEventRecord(fork_event, stream));
  CHECK(cudaStreamWaitEvent(side, fork_event, 0));
  Add<<<1, 2, 0, side>>>(cells, 2, amount);
  CHECK(cudaMemsetAsync(cells + 8, amount, 16, stream));
  CHECK(cudaEventRecord(join_event, side));
  CHECK(cudaStreamWaitEvent(stream, join_event, 0));
  Scale<<<1, kCells, 0, stream>>>(cells, 2);
  CHECK(cudaLaunchHostFunc(stream, CountCall, &host_calls));
  CHECK(cudaStreamEndCapture(stream, &graph));
  return graph;
}

static void SetAdd(int amount) {
  int index = 1;
  void* add[] = {&cells, &index, &amount};
  cudaKernelNodeParams params = KernelParams(reinterpret_cast<void*>(Add), 1, add);
  CHECK(cudaGraphExecKernelNodeSetParams(built_exec, add_node, &params));
}

static void ChangeBuilt() {
  int factor = 7;
  void* scale[] = {&cells, &factor};
  cudaKernelNodeParams params = KernelParams(reinterpret_cast<void*>(Scale), kCells, scale);
  CHECK(cudaGraphKernelNodeSetParams(scale_node, &params));
}

static void UpdateBuilt() {
  cudaGraphExecUpdateResultInfo info;
  CHECK(cudaGraphExecUpdate(built_exec, built, &info));
}

static void UpdateCaptured(int amount) {
  cudaGraphExecUpdateResultInfo info;
  cudaGraph_t fresh = Capture(amount);
  CHECK(cudaGraphExecUpdate(captured_exec, fresh, &info));
  CHECK(cudaGraphDestroy(fresh));
}

// A child graph between two event nodes.
static void Parent() {
  cudaGraphNode_t record, child, wait;
  cudaGraph_t inner;
  CHECK(cudaGraphCreate(&parent, 0));
  CHECK(cudaGraphAddEventRecordNode(&record, parent, nullptr, 0, mark));
  CHECK(cudaGraphAddChildGraphNode(&child, parent, &record, 1, built));
  CHECK(cudaGraphAddEventWaitNode(&wait, parent, &child, 1, mark));
  CHECK(cudaGraphChildGraphNodeGetGraph(child, &inner));
  size_t count = 1;
  CHECK(cudaGraphGetNodes(inner, &inner_node, &count));
  CHECK(cudaGraphInstantiate(&parent_exec, parent, 0));
}

static void SetInner(int amount) {
  int index = 1;
  void* add[] = {&cells, &index, &amount};
  cudaKernelNodeParams params = KernelParams(reinterpret_cast<void*>(Add), 1, add);
  CHECK(cudaGraphExecKernelNodeSetParams(parent_exec, inner_node, &params));
}

static void Shape() {
  size_t nodes = 0, edges = 0;
  CHECK(cudaGraphGetNodes(built, nullptr, &nodes));
  CHECK(cudaGraphGetEdges(built, nullptr, nullptr, nullptr, &edges));
  std::vector<cudaGraphNode_t> list(nodes);
  CHECK(cudaGraphGetNodes(built, list.data(), &nodes));
  cudaKernelNodeParams params{};
  CHECK(cudaGraphKernelNodeGetParams(scale_node, &params));
  std::printf("nodes %zu edges %zu first %d factor %d function %d\n", nodes, edges, list[0] == add_node,
              *static_cast<int*>(params.kernelParams[1]), params.func == reinterpret_cast<void*>(Scale));
}

static void FindClone() {
  cudaGraphNode_t twin;
  CHECK(cudaGraphNodeFindInClone(&twin, scale_node, clone_of_built));
  int factor = 9;
  void* scale[] = {&cells, &factor};
  cudaKernelNodeParams params = KernelParams(reinterpret_cast<void*>(Scale), kCells, scale);
  CHECK(cudaGraphKernelNodeSetParams(twin, &params));
  cudaGraphExec_t exec;
  CHECK(cudaGraphInstantiate(&exec, clone_of_built, 0));
  Launch(exec);
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaGraphExecDestroy(exec));
}

static void Begin() {
  CHECK(cudaMalloc(&cells, kCells * sizeof(int)));
  CHECK(cudaMemset(cells, 0, kCells * sizeof(int)));
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
  CHECK(cudaEventCreateWithFlags(&fork_event, cudaEventDisableTiming));
  CHECK(cudaEventCreateWithFlags(&join_event, cudaEventDisableTiming));
  CHECK(cudaEventCreate(&mark));
  CHECK(cudaDeviceSynchronize());
}

int main() {
  Begin();
  const std::map<std::string, std::function<void()>> steps = {
      {"explicit", Explicit},
      {"launch-explicit", [] { Launch(built_exec); }},
      {"capture",
       [] {
         captured = Capture(4);
         CHECK(cudaGraphInstantiate(&captured_exec, captured, 0));
       }},
      {"launch-captured", [] { Launch(captured_exec); }},
      {"set-add", [] { SetAdd(50); }},
      {"set-add-again", [] { SetAdd(60); }},
      {"disable-host",
       [] {
         // Only kernels, copies and fills can be disabled.
         CHECK(cudaGraphNodeSetEnabled(built_exec, scale_node, 0));
       }},
      {"enable", [] { CHECK(cudaGraphNodeSetEnabled(built_exec, scale_node, 1)); }},
      {"change-graph", ChangeBuilt},
      {"update-explicit", UpdateBuilt},
      {"update-captured", [] { UpdateCaptured(6); }},
      {"update-captured-again", [] { UpdateCaptured(8); }},
      {"parent", Parent},
      {"launch-parent", [] { Launch(parent_exec); }},
      {"set-inner", [] { SetInner(500); }},
      {"clone", [] { CHECK(cudaGraphClone(&clone_of_built, built)); }},
      {"find-clone", FindClone},
      {"shape", Shape},
      {"begin-capture",
       [] {
         CHECK(cudaStreamBeginCapture(side, cudaStreamCaptureModeRelaxed));
         Add<<<1, 1, 0, side>>>(cells, 1, 1000);
       }},
      {"end-capture",
       [] {
         CHECK(cudaStreamEndCapture(side, &captured));
         CHECK(cudaGraphInstantiate(&captured_exec, captured, 0));
       }},
      {"destroy-sources",
       [] {
         for (cudaGraph_t graph : {captured, parent, clone_of_built}) CHECK(cudaGraphDestroy(graph));
       }},
      {"destroy",
       [] {
         for (cudaGraphExec_t exec : {built_exec, captured_exec, parent_exec})
           CHECK(cudaGraphExecDestroy(exec));
         CHECK(cudaGraphDestroy(built));
       }},
  };
  std::printf("ready\n");
  std::fflush(stdout);
  for (std::string step; std::getline(std::cin, step);) {
    const auto found = steps.find(step);
    if (found == steps.end()) {
      std::printf("no step %s\n", step.c_str());
      return 1;
    }
    found->second();
    Show(step.c_str());
  }
  return 0;
}
