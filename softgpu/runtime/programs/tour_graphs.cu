// Graphs: built by hand and by capture, changed, cloned, launched.
#include <vector>

#include "check.h"

__device__ int symbol[4];

__global__ void Add(int* data, int amount) { data[threadIdx.x] += amount; }

static int host_calls = 0;
static void CUDART_CB OnHost(void* data) { host_calls += *static_cast<int*>(data); }

static cudaKernelNodeParams KernelParams(void** args) {
  cudaKernelNodeParams params{};
  params.func = reinterpret_cast<void*>(&Add);
  params.gridDim = 1;
  params.blockDim = 4;
  params.kernelParams = args;
  return params;
}

static void ByHand() {
  int* data = nullptr;
  OK(cudaMalloc(&data, 4 * sizeof(int)));
  int host[4] = {};
  int amount = 5;
  void* args[] = {&data, &amount};
  cudaGraph_t graph = nullptr;
  OK(cudaGraphCreate(&graph, 0));

  cudaMemsetParams fill{};
  fill.dst = data;
  fill.value = 1;
  fill.elementSize = 4;
  fill.width = 4;
  fill.height = 1;
  cudaGraphNode_t fill_node = nullptr;
  OK(cudaGraphAddMemsetNode(&fill_node, graph, nullptr, 0, &fill));
  cudaKernelNodeParams kernel = KernelParams(args);
  cudaGraphNode_t kernel_node = nullptr;
  OK(cudaGraphAddKernelNode(&kernel_node, graph, &fill_node, 1, &kernel));
  cudaGraphNode_t copy_node = nullptr;
  OK(cudaGraphAddMemcpyNode1D(&copy_node, graph, &kernel_node, 1, host, data, sizeof host,
                              cudaMemcpyDeviceToHost));
  cudaGraphNode_t symbol_node = nullptr;
  OK(cudaGraphAddMemcpyNodeToSymbol(&symbol_node, graph, &kernel_node, 1, symbol, data, sizeof host, 0,
                                    cudaMemcpyDeviceToDevice));
  int ten = 10;
  cudaHostNodeParams call{OnHost, &ten};
  cudaGraphNode_t host_node = nullptr;
  OK(cudaGraphAddHostNode(&host_node, graph, &copy_node, 1, &call));
  cudaGraphNode_t empty_node = nullptr;
  OK(cudaGraphAddEmptyNode(&empty_node, graph, &host_node, 1));

  size_t nodes = 0;
  size_t edges = 0;
  size_t roots = 0;
  OK(cudaGraphGetNodes(graph, nullptr, &nodes));
  OK(cudaGraphGetRootNodes(graph, nullptr, &roots));
  OK(cudaGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
  EXPECT(nodes == 6 && roots == 1 && edges == 5);
  cudaGraphNodeType type{};
  OK(cudaGraphNodeGetType(kernel_node, &type));
  EXPECT(type == cudaGraphNodeTypeKernel);
  cudaKernelNodeParams back{};
  OK(cudaGraphKernelNodeGetParams(kernel_node, &back));
  EXPECT(back.func == reinterpret_cast<void*>(&Add) && back.blockDim.x == 4);
  cudaMemsetParams fill_back{};
  OK(cudaGraphMemsetNodeGetParams(fill_node, &fill_back));
  EXPECT(fill_back.dst == data && fill_back.width == 4);
  cudaMemcpy3DParms copy_back{};
  OK(cudaGraphMemcpyNodeGetParams(copy_node, &copy_back));
  EXPECT(copy_back.extent.width == sizeof host && copy_back.dstPtr.ptr == host);

  cudaGraphExec_t exec = nullptr;
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaGraphLaunch(exec, nullptr));
  OK(cudaDeviceSynchronize());
  EXPECT(host[0] == 6 && host[3] == 6 && host_calls == 10);
  int from_symbol[4] = {};
  OK(cudaMemcpyFromSymbol(from_symbol, symbol, sizeof from_symbol));
  EXPECT(from_symbol[2] == 6);

  amount = 7;
  OK(cudaGraphExecKernelNodeSetParams(exec, kernel_node, &kernel));
  OK(cudaGraphLaunch(exec, nullptr));
  OK(cudaDeviceSynchronize());
  EXPECT(host[1] == 8);

  cudaGraph_t clone = nullptr;
  OK(cudaGraphClone(&clone, graph));
  cudaGraphNode_t cloned = nullptr;
  OK(cudaGraphNodeFindInClone(&cloned, kernel_node, clone));
  amount = 9;
  OK(cudaGraphKernelNodeSetParams(cloned, &kernel));
  cudaGraphExecUpdateResultInfo info{};
  OK(cudaGraphExecUpdate(exec, clone, &info));
  EXPECT(info.result == cudaGraphExecUpdateSuccess);
  OK(cudaGraphLaunch(exec, nullptr));
  OK(cudaDeviceSynchronize());
  EXPECT(host[2] == 10);

  cudaGraph_t parent = nullptr;
  cudaGraphNode_t child = nullptr;
  OK(cudaGraphCreate(&parent, 0));
  OK(cudaGraphAddChildGraphNode(&child, parent, nullptr, 0, clone));
  cudaGraphExec_t parent_exec = nullptr;
  OK(cudaGraphInstantiateWithFlags(&parent_exec, parent, 0));
  OK(cudaGraphLaunch(parent_exec, nullptr));
  OK(cudaDeviceSynchronize());
  EXPECT(host_calls == 40);

  OK(cudaGraphExecDestroy(parent_exec));
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(parent));
  OK(cudaGraphDestroy(clone));
  OK(cudaGraphDestroy(graph));
  OK(cudaFree(data));
}

static void Captured() {
  cudaStream_t a = nullptr;
  cudaStream_t b = nullptr;
  OK(cudaStreamCreate(&a));
  OK(cudaStreamCreate(&b));
  cudaEvent_t fork = nullptr;
  cudaEvent_t join = nullptr;
  OK(cudaEventCreate(&fork));
  OK(cudaEventCreate(&join));
  int* data = nullptr;
  OK(cudaMalloc(&data, 8 * sizeof(int)));
  int host[8] = {};
  OK(cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
  cudaStreamCaptureStatus status{};
  OK(cudaStreamIsCapturing(a, &status));
  EXPECT(status == cudaStreamCaptureStatusActive);
  OK(cudaMemsetAsync(data, 0, 8 * sizeof(int), a));
  OK(cudaEventRecord(fork, a));
  OK(cudaStreamWaitEvent(b, fork, 0));
  Add<<<1, 4, 0, a>>>(data, 1);
  Add<<<1, 4, 0, b>>>(data + 4, 2);
  OK(cudaEventRecord(join, b));
  OK(cudaStreamWaitEvent(a, join, 0));
  OK(cudaMemcpyAsync(host, data, sizeof host, cudaMemcpyDeviceToHost, a));
  cudaGraph_t graph = nullptr;
  OK(cudaStreamEndCapture(a, &graph));
  EXPECT(host[0] == 0);
  size_t nodes = 0;
  OK(cudaGraphGetNodes(graph, nullptr, &nodes));
  EXPECT(nodes == 4);
  std::vector<cudaGraphNode_t> list(nodes);
  OK(cudaGraphGetNodes(graph, list.data(), &nodes));
  for (cudaGraphNode_t node : list) {
    cudaGraphNodeType type{};
    OK(cudaGraphNodeGetType(node, &type));
    if (type != cudaGraphNodeTypeKernel) continue;
    cudaKernelNodeParams params{};
    OK(cudaGraphKernelNodeGetParams(node, &params));
    EXPECT(params.func == reinterpret_cast<void*>(&Add));
  }
  cudaGraphExec_t exec = nullptr;
  OK(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < 3; ++i) OK(cudaGraphLaunch(exec, a));
  OK(cudaStreamSynchronize(a));
  EXPECT(host[0] == 1 && host[7] == 2);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(graph));
  OK(cudaEventDestroy(fork));
  OK(cudaEventDestroy(join));
  OK(cudaStreamDestroy(a));
  OK(cudaStreamDestroy(b));
  OK(cudaFree(data));
}

static void Generic() {
  int* data = nullptr;
  OK(cudaMalloc(&data, 4 * sizeof(int)));
  cudaGraph_t graph = nullptr;
  OK(cudaGraphCreate(&graph, 0));
  cudaGraphNodeParams fill{};
  fill.type = cudaGraphNodeTypeMemset;
  fill.memset.dst = data;
  fill.memset.value = 4;
  fill.memset.elementSize = 4;
  fill.memset.width = 4;
  fill.memset.height = 1;
  cudaGraphNode_t fill_node = nullptr;
  OK(cudaGraphAddNode(&fill_node, graph, nullptr, nullptr, 0, &fill));
  int amount = 6;
  void* args[] = {&data, &amount};
  cudaGraphNodeParams kernel{};
  kernel.type = cudaGraphNodeTypeKernel;
  kernel.kernel.func = reinterpret_cast<void*>(&Add);
  kernel.kernel.gridDim = 1;
  kernel.kernel.blockDim = 4;
  kernel.kernel.kernelParams = args;
  cudaGraphNode_t kernel_node = nullptr;
  OK(cudaGraphAddNode(&kernel_node, graph, &fill_node, nullptr, 1, &kernel));
  cudaGraphExec_t exec = nullptr;
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaGraphLaunch(exec, nullptr));
  int host[4] = {};
  OK(cudaMemcpy(host, data, sizeof host, cudaMemcpyDeviceToHost));
  EXPECT(host[3] == 10);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(graph));
  OK(cudaFree(data));
}

int main() {
  ByHand();
  Captured();
  Generic();
  return Finish();
}
