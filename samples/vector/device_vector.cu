// The vector is cut into one chunk a stream. Each stream copies its part of x in, computes, and copies its
// part of y out, while the others do the same; a further stream waits for all of them and adds up the
// checksums.
#include <string.h>

#include <algorithm>

#include "../common/cuda_check.h"
#include "config.h"

namespace vector_sample {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxBlocks = 64;  // of one chunk; each thread takes several elements of a large one

__device__ unsigned long long Mix(float value, unsigned long long index) {
  const unsigned bits = __float_as_uint(value);
  return (bits + index * 0x9E3779B97F4A7C15ull) * (bits | 1u);
}

__global__ void UpdateKernel(const float* x, float* y, int first, int end, unsigned long long* block_sums) {
  __shared__ unsigned long long sums[kThreads];
  unsigned long long sum = 0;
  for (int i = first + blockIdx.x * blockDim.x + threadIdx.x; i < end; i += gridDim.x * blockDim.x) {
    y[i] = __fadd_rn(__fmul_rn(kScale, y[i]), x[i]);
    sum += Mix(y[i], i);
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) block_sums[blockIdx.x] = sums[0];
}

__global__ void AddKernel(const unsigned long long* values, int count, unsigned long long* total) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) atomicAdd(total, values[i]);
}

struct Chunk {
  int first;
  int end;
  cudaStream_t stream;
  cudaEvent_t done;
};

class DeviceVector : public Vector {
 public:
  explicit DeviceVector(const Config& config)
      : elements_(config.elements), sums_(config.streams * kMaxBlocks) {
    CUDA_CHECK(cudaSetDevice(config.device));
    CUDA_CHECK(cudaMalloc(&x_, bytes()));
    CUDA_CHECK(cudaMalloc(&y_, bytes()));
    CUDA_CHECK(cudaMalloc(&block_sums_, sums_ * sizeof(*block_sums_)));
    CUDA_CHECK(cudaMalloc(&total_, sizeof(*total_)));
    CUDA_CHECK(cudaMallocHost(&pinned_x_, bytes()));
    CUDA_CHECK(cudaMallocHost(&pinned_y_, bytes()));
    CUDA_CHECK(cudaMallocHost(&pinned_total_, sizeof(*pinned_total_)));
    CUDA_CHECK(cudaStreamCreateWithFlags(&join_, cudaStreamNonBlocking));
    CUDA_CHECK(cudaEventCreate(&start_));
    CUDA_CHECK(cudaEventCreate(&stop_));
    CUDA_CHECK(cudaMemsetAsync(y_, 0, bytes(), join_));
    CUDA_CHECK(cudaMemsetAsync(block_sums_, 0, sums_ * sizeof(*block_sums_), join_));
    CUDA_CHECK(cudaStreamSynchronize(join_));
    MakeChunks(config.streams);
  }
  DeviceVector(const DeviceVector&) = delete;
  DeviceVector& operator=(const DeviceVector&) = delete;

  ~DeviceVector() override {
    for (const Chunk& chunk : chunks_) {
      cudaEventDestroy(chunk.done);
      cudaStreamDestroy(chunk.stream);
    }
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
    cudaStreamDestroy(join_);
    cudaFreeHost(pinned_total_);
    cudaFreeHost(pinned_y_);
    cudaFreeHost(pinned_x_);
    cudaFree(total_);
    cudaFree(block_sums_);
    cudaFree(y_);
    cudaFree(x_);
  }

  RoundResult Round(const std::vector<float>& x) override {
    memcpy(pinned_x_, x.data(), bytes());
    CUDA_CHECK(cudaEventRecord(start_, join_));
    for (size_t i = 0; i < chunks_.size(); ++i) Enqueue(chunks_[i], block_sums_ + i * kMaxBlocks);
    for (const Chunk& chunk : chunks_) CUDA_CHECK(cudaStreamWaitEvent(join_, chunk.done, 0));
    CUDA_CHECK(cudaMemsetAsync(total_, 0, sizeof(*total_), join_));
    AddKernel<<<(sums_ + kThreads - 1) / kThreads, kThreads, 0, join_>>>(block_sums_, sums_, total_);
    CUDA_CHECK_LAUNCH();
    CUDA_CHECK(cudaMemcpyAsync(pinned_total_, total_, sizeof(*total_), cudaMemcpyDeviceToHost, join_));
    CUDA_CHECK(cudaEventRecord(stop_, join_));
    CUDA_CHECK(cudaEventSynchronize(stop_));
    RoundResult result = {*pinned_total_, 0};
    CUDA_CHECK(cudaEventElapsedTime(&result.milliseconds, start_, stop_));
    return result;
  }

  std::vector<float> Values() override { return std::vector<float>(pinned_y_, pinned_y_ + elements_); }

 private:
  size_t bytes() const { return elements_ * sizeof(float); }

  void MakeChunks(int count) {
    for (int i = 0; i < count; ++i) {
      Chunk chunk = {};
      chunk.first = static_cast<int>(int64_t{elements_} * i / count);
      chunk.end = static_cast<int>(int64_t{elements_} * (i + 1) / count);
      CUDA_CHECK(cudaStreamCreateWithFlags(&chunk.stream, cudaStreamNonBlocking));
      CUDA_CHECK(cudaEventCreateWithFlags(&chunk.done, cudaEventDisableTiming));
      chunks_.push_back(chunk);
    }
  }

  // One chunk's share of a round, begun after start_.
  void Enqueue(const Chunk& chunk, unsigned long long* block_sums) {
    const int count = chunk.end - chunk.first;
    const size_t size = count * sizeof(float);
    CUDA_CHECK(cudaStreamWaitEvent(chunk.stream, start_, 0));
    CUDA_CHECK(cudaMemcpyAsync(x_ + chunk.first, pinned_x_ + chunk.first, size, cudaMemcpyHostToDevice,
                               chunk.stream));
    const int blocks = std::min((count + kThreads - 1) / kThreads, kMaxBlocks);
    UpdateKernel<<<blocks, kThreads, 0, chunk.stream>>>(x_, y_, chunk.first, chunk.end, block_sums);
    CUDA_CHECK_LAUNCH();
    CUDA_CHECK(cudaMemcpyAsync(pinned_y_ + chunk.first, y_ + chunk.first, size, cudaMemcpyDeviceToHost,
                               chunk.stream));
    CUDA_CHECK(cudaEventRecord(chunk.done, chunk.stream));
  }

  const int elements_;
  const int sums_;
  float* x_ = nullptr;
  float* y_ = nullptr;
  unsigned long long* block_sums_ = nullptr;
  unsigned long long* total_ = nullptr;
  float* pinned_x_ = nullptr;
  float* pinned_y_ = nullptr;
  unsigned long long* pinned_total_ = nullptr;
  cudaStream_t join_ = nullptr;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;
  std::vector<Chunk> chunks_;
};

}  // namespace

std::unique_ptr<Vector> MakeDeviceVector(const Config& config) {
  return std::make_unique<DeviceVector>(config);
}

}  // namespace vector_sample
