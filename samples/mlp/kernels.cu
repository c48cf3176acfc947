#include "../common/cuda_check.h"
#include "kernels.h"

namespace mlp {
namespace {

using sample::Matrix;

constexpr int kThreads = 256;

int Blocks(int count) { return (count + kThreads - 1) / kThreads; }

int Count(const Matrix& matrix) { return matrix.rows * matrix.columns; }

// Each thread converts four neighbouring pixels.
__global__ void GatherImagesKernel(const uint8_t* images, const int* indices, Matrix out) {
  const int quads = out.columns / 4;
  const int index = blockIdx.x * blockDim.x + threadIdx.x;
  const int row = index / quads;
  if (row >= out.rows) return;
  const int column = index % quads * 4;
  const size_t from = static_cast<size_t>(indices[row]) * out.columns + column;
  const uchar4 pixels = *reinterpret_cast<const uchar4*>(images + from);
  const float scale = 1.0f / 255.0f;
  *reinterpret_cast<float4*>(out.data + static_cast<size_t>(row) * out.columns + column) =
      make_float4(pixels.x * scale, pixels.y * scale, pixels.z * scale, pixels.w * scale);
}

__global__ void GatherLabelsKernel(const uint8_t* labels, const int* indices, int rows, int* out) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < rows) out[row] = labels[indices[row]];
}

__global__ void AddBiasRectifyKernel(Matrix values, const float* bias) {
  const int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= values.rows * values.columns) return;
  values.data[index] = fmaxf(values.data[index] + bias[index % values.columns], 0.0f);
}

__global__ void MaskSlopeKernel(Matrix values, Matrix slope) {
  const int index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= values.rows * values.columns) return;
  if (values.data[index] <= 0) slope.data[index] = 0;
}

// One thread a row: there are few classes.
__global__ void SoftmaxLossKernel(Matrix logits, const int* labels, float* losses) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= logits.rows) return;
  float* values = logits.data + row * logits.columns;
  float top = values[0];
  for (int j = 1; j < logits.columns; ++j) top = fmaxf(top, values[j]);
  float sum = 0;
  for (int j = 0; j < logits.columns; ++j) sum += expf(values[j] - top);
  const int label = labels[row];
  losses[row] = logf(sum) + top - values[label];
  for (int j = 0; j < logits.columns; ++j) {
    const float probability = expf(values[j] - top) / sum;
    values[j] = (probability - (j == label ? 1.0f : 0.0f)) / logits.rows;
  }
}

// Integer atomics: the order in which rows are counted does not matter.
__global__ void CountCorrectKernel(Matrix logits, const uint8_t* labels, int* correct) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= logits.rows) return;
  const float* values = logits.data + row * logits.columns;
  int best = 0;
  for (int j = 1; j < logits.columns; ++j) {
    if (values[j] > values[best]) best = j;
  }
  if (best == labels[row]) atomicAdd(correct, 1);
}

}  // namespace

void GatherImages(const uint8_t* images, const int* indices, Matrix out, cudaStream_t stream) {
  GatherImagesKernel<<<Blocks(Count(out) / 4), kThreads, 0, stream>>>(images, indices, out);
  CUDA_CHECK_LAUNCH();
}

void GatherLabels(const uint8_t* labels, const int* indices, int rows, int* out, cudaStream_t stream) {
  GatherLabelsKernel<<<Blocks(rows), kThreads, 0, stream>>>(labels, indices, rows, out);
  CUDA_CHECK_LAUNCH();
}

void AddBiasRectify(Matrix values, const float* bias, cudaStream_t stream) {
  AddBiasRectifyKernel<<<Blocks(Count(values)), kThreads, 0, stream>>>(values, bias);
  CUDA_CHECK_LAUNCH();
}

void MaskSlope(Matrix values, Matrix slope, cudaStream_t stream) {
  MaskSlopeKernel<<<Blocks(Count(values)), kThreads, 0, stream>>>(values, slope);
  CUDA_CHECK_LAUNCH();
}

void SoftmaxLoss(Matrix logits, const int* labels, float* losses, cudaStream_t stream) {
  constexpr int kRowThreads = 64;
  const int blocks = (logits.rows + kRowThreads - 1) / kRowThreads;
  SoftmaxLossKernel<<<blocks, kRowThreads, 0, stream>>>(logits, labels, losses);
  CUDA_CHECK_LAUNCH();
}

void CountCorrect(Matrix logits, const uint8_t* labels, int* correct, cudaStream_t stream) {
  CountCorrectKernel<<<Blocks(logits.rows), kThreads, 0, stream>>>(logits, labels, correct);
  CUDA_CHECK_LAUNCH();
}

}  // namespace mlp
