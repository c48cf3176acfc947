#include "../common/cuda_check.h"
#include "kernels.h"

namespace cnn {
namespace {

constexpr int kThreads = 128;

int Blocks(int count) { return (count + kThreads - 1) / kThreads; }

__global__ void GatherKernel(DeviceImages images, const int* indices, int rows, float* values, int* labels) {
  const int index = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = index / images.size;
  if (row >= rows) return;
  const int pixel = index % images.size;
  values[index] = images.pixels[static_cast<size_t>(indices[row]) * images.size + pixel] * (1.0f / 255.0f);
  if (pixel == 0) labels[row] = images.labels[indices[row]];
}

__global__ void LossSlopeKernel(float* probabilities, const int* labels, int rows, int classes,
                                float* losses) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float* values = probabilities + row * classes;
  const int label = labels[row];
  losses[row] = -logf(values[label]);
  for (int j = 0; j < classes; ++j) values[j] = (values[j] - (j == label ? 1.0f : 0.0f)) / rows;
}

// Integer atomics: the order in which rows are counted does not matter.
__global__ void CountCorrectKernel(const float* values, const int* labels, int rows, int classes,
                                   int* correct) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  values += row * classes;
  int best = 0;
  for (int j = 1; j < classes; ++j) {
    if (values[j] > values[best]) best = j;
  }
  if (best == labels[row]) atomicAdd(correct, 1);
}

}  // namespace

void Gather(DeviceImages images, const int* indices, int rows, float* values, int* labels,
            cudaStream_t stream) {
  GatherKernel<<<Blocks(rows * images.size), kThreads, 0, stream>>>(images, indices, rows, values, labels);
  CUDA_CHECK_LAUNCH();
}

void LossSlope(float* probabilities, const int* labels, int rows, int classes, float* losses,
               cudaStream_t stream) {
  LossSlopeKernel<<<Blocks(rows), kThreads, 0, stream>>>(probabilities, labels, rows, classes, losses);
  CUDA_CHECK_LAUNCH();
}

void CountCorrect(const float* values, const int* labels, int rows, int classes, int* correct,
                  cudaStream_t stream) {
  CountCorrectKernel<<<Blocks(rows), kThreads, 0, stream>>>(values, labels, rows, classes, correct);
  CUDA_CHECK_LAUNCH();
}

}  // namespace cnn
