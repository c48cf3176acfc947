#include <math.h>

#include "cuda_check.h"
#include "layers.h"

namespace sample {
namespace {

constexpr int kThreads = 256;

unsigned Blocks(size_t count, int threads) { return static_cast<unsigned>((count + threads - 1) / threads); }

__global__ void AddBiasKernel(Matrix values, const float* bias) {
  const int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= values.rows * values.columns) return;
  values.data[index] += bias[index % values.columns];
}

__global__ void SumRowsKernel(Matrix values, float* out) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column >= values.columns) return;
  float sum = 0;
  for (int row = 0; row < values.rows; ++row) sum += values.data[row * values.columns + column];
  out[column] = sum;
}

// One block: each thread takes every kThreads-th value, then the partial sums are added pairwise.
__global__ void MeanKernel(const float* values, int count, float* out) {
  __shared__ float partial[kThreads];
  float sum = 0;
  for (int i = threadIdx.x; i < count; i += kThreads) sum += values[i];
  partial[threadIdx.x] = sum;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) *out = partial[0] / count;
}

__global__ void AdamKernel(AdamStep step, const float* gradient, float* values, float* mean, float* variance,
                           size_t count) {
  const size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float g = gradient[i];
  const float m = step.beta1 * mean[i] + step.beta1_rest * g;
  const float v = step.beta2 * variance[i] + step.beta2_rest * g * g;
  mean[i] = m;
  variance[i] = v;
  values[i] -= step.rate * m / (sqrtf(v) + step.epsilon) + step.decay * values[i];
}

}  // namespace

void AddBias(Matrix values, const float* bias, cudaStream_t stream) {
  const size_t count = static_cast<size_t>(values.rows) * values.columns;
  AddBiasKernel<<<Blocks(count, kThreads), kThreads, 0, stream>>>(values, bias);
  CUDA_CHECK_LAUNCH();
}

void SumRows(Matrix values, float* out, cudaStream_t stream) {
  constexpr int kColumnThreads = 32;
  SumRowsKernel<<<Blocks(values.columns, kColumnThreads), kColumnThreads, 0, stream>>>(values, out);
  CUDA_CHECK_LAUNCH();
}

void Mean(const float* values, int count, float* out, cudaStream_t stream) {
  MeanKernel<<<1, kThreads, 0, stream>>>(values, count, out);
  CUDA_CHECK_LAUNCH();
}

AdamStep MakeAdamStep(double learning_rate, double weight_decay, int step) {
  const double correction1 = 1 - pow(kAdamBeta1, step);
  const double correction2 = 1 - pow(kAdamBeta2, step);
  AdamStep result;
  result.rate = static_cast<float>(learning_rate * sqrt(correction2) / correction1);
  result.beta1 = static_cast<float>(kAdamBeta1);
  result.beta1_rest = static_cast<float>(1 - kAdamBeta1);
  result.beta2 = static_cast<float>(kAdamBeta2);
  result.beta2_rest = static_cast<float>(1 - kAdamBeta2);
  result.epsilon = static_cast<float>(kAdamEpsilon);
  result.decay = static_cast<float>(learning_rate * weight_decay);
  return result;
}

void ApplyAdam(const AdamStep& step, const float* gradient, float* values, float* mean, float* variance,
               size_t count, cudaStream_t stream) {
  AdamKernel<<<Blocks(count, kThreads), kThreads, 0, stream>>>(step, gradient, values, mean, variance, count);
  CUDA_CHECK_LAUNCH();
}

}  // namespace sample
