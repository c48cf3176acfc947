#include <string.h>

#include "../common/cuda_check.h"
#include "strips.h"

namespace stencil {
namespace {

class DeviceSolver : public Solver {
 public:
  explicit DeviceSolver(const Config& config)
      : strips_(CutStrips(config)), field_(InitialField(config)), streams_(SelectDevice(config, strips_)) {
    CUDA_CHECK(cudaMalloc(&buffers_.now, bytes()));
    CUDA_CHECK(cudaMalloc(&buffers_.next, bytes()));
    CUDA_CHECK(cudaMalloc(&buffers_.residual, sizeof(*buffers_.residual)));
    CUDA_CHECK(cudaMallocHost(&buffers_.pinned_residual, sizeof(*buffers_.pinned_residual)));
    buffers_.width = config.width;
    // Both, because the edges are never written.
    Upload(buffers_.now);
    Upload(buffers_.next);
    if (config.graph != "none") InstantiateGraph(config.graph);
  }
  DeviceSolver(const DeviceSolver&) = delete;
  DeviceSolver& operator=(const DeviceSolver&) = delete;

  ~DeviceSolver() override {
    if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
    cudaFreeHost(buffers_.pinned_residual);
    cudaFree(buffers_.residual);
    cudaFree(buffers_.next);
    cudaFree(buffers_.now);
  }

  double Advance(int iterations) override {
    for (int i = 0; i < iterations; i += 2) {
      if (graph_ != nullptr) {
        CUDA_CHECK(cudaGraphLaunch(graph_, streams_.main()));
      } else {
        streams_.EnqueuePair(buffers_);
      }
    }
    CUDA_CHECK(cudaStreamSynchronize(streams_.main()));
    double residual;
    memcpy(&residual, buffers_.pinned_residual, sizeof(residual));
    return residual;
  }

  std::vector<double> Field() override {
    CUDA_CHECK(
        cudaMemcpyAsync(field_.data(), buffers_.now, bytes(), cudaMemcpyDeviceToHost, streams_.main()));
    CUDA_CHECK(cudaStreamSynchronize(streams_.main()));
    return field_;
  }

  void SetField(const std::vector<double>& field) override {
    field_ = field;
    Upload(buffers_.now);
  }

 private:
  // Streams belong to the device that is current when they are made.
  static const std::vector<Strip>& SelectDevice(const Config& config, const std::vector<Strip>& strips) {
    CUDA_CHECK(cudaSetDevice(config.device));
    return strips;
  }

  size_t bytes() const { return field_.size() * sizeof(double); }

  void Upload(double* to) {
    CUDA_CHECK(cudaMemcpyAsync(to, field_.data(), bytes(), cudaMemcpyHostToDevice, streams_.main()));
    CUDA_CHECK(cudaStreamSynchronize(streams_.main()));
  }

  void InstantiateGraph(const std::string& kind) {
    cudaGraph_t graph = kind == "capture" ? CaptureGraph(&streams_, buffers_) : BuildGraph(strips_, buffers_);
    CUDA_CHECK(cudaGraphInstantiate(&graph_, graph, 0));
    CUDA_CHECK(cudaGraphDestroy(graph));
  }

  const std::vector<Strip> strips_;
  std::vector<double> field_;
  StripStreams streams_;
  Buffers buffers_ = {};
  cudaGraphExec_t graph_ = nullptr;
};

}  // namespace

std::unique_ptr<Solver> MakeDeviceSolver(const Config& config) {
  return std::make_unique<DeviceSolver>(config);
}

}  // namespace stencil
