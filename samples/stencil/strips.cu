#include <algorithm>

#include "../common/cuda_check.h"
#include "strips.h"

namespace stencil {
namespace {

constexpr int kBlockWidth = 32;
constexpr int kBlockHeight = 8;
constexpr int kThreads = kBlockWidth * kBlockHeight;

// The bits of doubles that are not negative have the order of the doubles themselves, and a maximum does not
// depend on the order in which it is taken.
__device__ void MaximumOverBlock(double change, unsigned long long* residual) {
  __shared__ double changes[kThreads];
  const int thread = threadIdx.y * kBlockWidth + threadIdx.x;
  changes[thread] = change;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (thread < half) changes[thread] = fmax(changes[thread], changes[thread + half]);
    __syncthreads();
  }
  if (thread == 0) atomicMax(residual, static_cast<unsigned long long>(__double_as_longlong(changes[0])));
}

__global__ void IterateKernel(const double* from, double* to, int width, Strip strip,
                              unsigned long long* residual) {
  const int column = 1 + blockIdx.x * kBlockWidth + threadIdx.x;
  const int row = strip.first_row + blockIdx.y * kBlockHeight + threadIdx.y;
  double change = 0;
  if (column + 1 < width && row < strip.end_row) {
    const size_t at = static_cast<size_t>(row) * width + column;
    const double old = from[at];
    const double vertical = __dadd_rn(from[at - width], from[at + width]);
    const double horizontal = __dadd_rn(from[at - 1], from[at + 1]);
    const double excess = __dsub_rn(__dadd_rn(vertical, horizontal), __dmul_rn(4.0, old));
    change = __dmul_rn(kDiffusion, excess);
    to[at] = __dadd_rn(old, change);
  }
  MaximumOverBlock(fabs(change), residual);
}

dim3 BlockShape() { return dim3(kBlockWidth, kBlockHeight); }

dim3 GridShape(const Strip& strip, int width) {
  const int rows = strip.end_row - strip.first_row;
  return dim3((width - 2 + kBlockWidth - 1) / kBlockWidth, (rows + kBlockHeight - 1) / kBlockHeight);
}

// The kernel node of one strip in one iteration.
cudaGraphNode_t AddStrip(cudaGraph_t graph, const std::vector<cudaGraphNode_t>& after, const double* from,
                         double* to, const Buffers& buffers, Strip strip) {
  int width = buffers.width;
  unsigned long long* residual = buffers.residual;
  void* arguments[] = {&from, &to, &width, &strip, &residual};
  cudaKernelNodeParams parameters = {};
  parameters.func = reinterpret_cast<void*>(IterateKernel);
  parameters.gridDim = GridShape(strip, width);
  parameters.blockDim = BlockShape();
  parameters.kernelParams = arguments;
  cudaGraphNode_t node = nullptr;
  CUDA_CHECK(cudaGraphAddKernelNode(&node, graph, after.data(), after.size(), &parameters));
  return node;
}

cudaGraphNode_t AddClear(cudaGraph_t graph, const std::vector<cudaGraphNode_t>& after,
                         const Buffers& buffers) {
  cudaMemsetParams parameters = {};
  parameters.dst = buffers.residual;
  parameters.elementSize = 1;
  parameters.width = sizeof(*buffers.residual);
  parameters.height = 1;
  cudaGraphNode_t node = nullptr;
  CUDA_CHECK(cudaGraphAddMemsetNode(&node, graph, after.data(), after.size(), &parameters));
  return node;
}

// One iteration; returns the nodes that it ends with.
std::vector<cudaGraphNode_t> AddIteration(cudaGraph_t graph, const std::vector<cudaGraphNode_t>& after,
                                          const double* from, double* to, const Buffers& buffers,
                                          const std::vector<Strip>& strips) {
  const cudaGraphNode_t clear = AddClear(graph, after, buffers);
  std::vector<cudaGraphNode_t> nodes;
  for (const Strip& strip : strips) nodes.push_back(AddStrip(graph, {clear}, from, to, buffers, strip));
  return nodes;
}

}  // namespace

std::vector<Strip> CutStrips(const Config& config) {
  std::vector<Strip> strips;
  const int rows = config.height - 2;
  const int count = std::min(config.streams, rows);
  for (int i = 0; i < count; ++i) strips.push_back({1 + rows * i / count, 1 + rows * (i + 1) / count});
  return strips;
}

StripStreams::StripStreams(const std::vector<Strip>& strips)
    : strips_(strips), streams_(strips.size()), joins_(strips.size()) {
  CUDA_CHECK(cudaStreamCreateWithFlags(&main_, cudaStreamNonBlocking));
  CUDA_CHECK(cudaEventCreateWithFlags(&fork_, cudaEventDisableTiming));
  for (cudaStream_t& stream : streams_) CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  for (cudaEvent_t& join : joins_) CUDA_CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
}

StripStreams::~StripStreams() {
  for (const cudaEvent_t join : joins_) cudaEventDestroy(join);
  for (const cudaStream_t stream : streams_) cudaStreamDestroy(stream);
  cudaEventDestroy(fork_);
  cudaStreamDestroy(main_);
}

void StripStreams::EnqueueIteration(const double* from, double* to, const Buffers& buffers) {
  CUDA_CHECK(cudaMemsetAsync(buffers.residual, 0, sizeof(*buffers.residual), main_));
  CUDA_CHECK(cudaEventRecord(fork_, main_));
  for (size_t i = 0; i < strips_.size(); ++i) {
    CUDA_CHECK(cudaStreamWaitEvent(streams_[i], fork_, 0));
    IterateKernel<<<GridShape(strips_[i], buffers.width), BlockShape(), 0, streams_[i]>>>(
        from, to, buffers.width, strips_[i], buffers.residual);
    CUDA_CHECK_LAUNCH();
    CUDA_CHECK(cudaEventRecord(joins_[i], streams_[i]));
    CUDA_CHECK(cudaStreamWaitEvent(main_, joins_[i], 0));
  }
}

void StripStreams::EnqueuePair(const Buffers& buffers) {
  EnqueueIteration(buffers.now, buffers.next, buffers);
  EnqueueIteration(buffers.next, buffers.now, buffers);
  CUDA_CHECK(cudaMemcpyAsync(buffers.pinned_residual, buffers.residual, sizeof(*buffers.residual),
                             cudaMemcpyDeviceToHost, main_));
}

cudaGraph_t CaptureGraph(StripStreams* streams, const Buffers& buffers) {
  cudaGraph_t graph = nullptr;
  CUDA_CHECK(cudaStreamBeginCapture(streams->main(), cudaStreamCaptureModeThreadLocal));
  streams->EnqueuePair(buffers);
  CUDA_CHECK(cudaStreamEndCapture(streams->main(), &graph));
  return graph;
}

cudaGraph_t BuildGraph(const std::vector<Strip>& strips, const Buffers& buffers) {
  cudaGraph_t graph = nullptr;
  CUDA_CHECK(cudaGraphCreate(&graph, 0));
  const auto first = AddIteration(graph, {}, buffers.now, buffers.next, buffers, strips);
  const auto second = AddIteration(graph, first, buffers.next, buffers.now, buffers, strips);
  cudaGraphNode_t copy = nullptr;
  CUDA_CHECK(cudaGraphAddMemcpyNode1D(&copy, graph, second.data(), second.size(), buffers.pinned_residual,
                                      buffers.residual, sizeof(*buffers.residual), cudaMemcpyDeviceToHost));
  return graph;
}

}  // namespace stencil
