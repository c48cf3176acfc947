#include "../common/cuda_check.h"
#include "kernels.h"
#include "warp.h"

namespace gpt {
namespace {

using sample::Matrix;

constexpr int kThreads = 256;
constexpr float kGeluScale = 0.7978845608f;  // sqrt(2 / pi)
constexpr float kGeluCubic = 0.044715f;

int Blocks(const Matrix& matrix) { return BlocksForThreads(matrix.rows * matrix.columns, kThreads); }

__device__ int Index() { return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); }

__global__ void EmbedKernel(const int* tokens, Matrix characters, Matrix positions, Matrix out) {
  const int index = Index();
  if (index >= out.rows * out.columns) return;
  const int row = index / out.columns;
  const int column = index % out.columns;
  out.data[index] = characters.data[tokens[row] * out.columns + column] +
                    positions.data[row % positions.rows * out.columns + column];
}

// Each thread looks through all rows for those of its character, so that their order is fixed.
__global__ void CharacterSlopeKernel(const int* tokens, Matrix slope, Matrix characters) {
  const int index = Index();
  if (index >= characters.rows * characters.columns) return;
  const int token = index / characters.columns;
  const int column = index % characters.columns;
  float sum = 0;
  for (int row = 0; row < slope.rows; ++row) {
    if (tokens[row] == token) sum += slope.data[row * slope.columns + column];
  }
  characters.data[index] = sum;
}

__global__ void PositionSlopeKernel(Matrix slope, Matrix positions) {
  const int index = Index();
  const int size = positions.rows * positions.columns;
  if (index >= size) return;
  float sum = 0;
  for (int from = index; from < slope.rows * slope.columns; from += size) sum += slope.data[from];
  positions.data[index] = sum;
}

__global__ void AddKernel(Matrix a, Matrix b, Matrix out) {
  const int index = Index();
  if (index < out.rows * out.columns) out.data[index] = a.data[index] + b.data[index];
}

__device__ float GeluTanh(float x) { return tanhf(kGeluScale * (x + kGeluCubic * x * x * x)); }

__global__ void GeluKernel(Matrix in, Matrix out) {
  const int index = Index();
  if (index >= out.rows * out.columns) return;
  const float x = in.data[index];
  out.data[index] = 0.5f * x * (1 + GeluTanh(x));
}

__global__ void GeluSlopeKernel(Matrix in, Matrix slope) {
  const int index = Index();
  if (index >= in.rows * in.columns) return;
  const float x = in.data[index];
  const float t = GeluTanh(x);
  const float inner = kGeluScale * (1 + 3 * kGeluCubic * x * x);
  slope.data[index] *= 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * inner;
}

// One warp a row.
__global__ void SoftmaxLossKernel(Matrix logits, const int* targets, float* losses) {
  const int row = WarpIndex();
  if (row >= logits.rows) return;
  float* values = logits.data + static_cast<size_t>(row) * logits.columns;
  float top = -INFINITY;
  for (int j = Lane(); j < logits.columns; j += kLanes) top = fmaxf(top, values[j]);
  top = WarpMax(top);
  float sum = 0;
  for (int j = Lane(); j < logits.columns; j += kLanes) sum += expf(values[j] - top);
  sum = WarpSum(sum);
  const int target = targets[row];
  if (Lane() == 0) losses[row] = logf(sum) + top - values[target];
  __syncwarp();  // the loss reads the target's logit, which another lane is about to replace
  for (int j = Lane(); j < logits.columns; j += kLanes) {
    const float probability = expf(values[j] - top) / sum;
    values[j] = (probability - (j == target ? 1.0f : 0.0f)) / logits.rows;
  }
}

}  // namespace

void Embed(const int* tokens, Matrix characters, Matrix positions, Matrix out, cudaStream_t stream) {
  EmbedKernel<<<Blocks(out), kThreads, 0, stream>>>(tokens, characters, positions, out);
  CUDA_CHECK_LAUNCH();
}

void EmbedSlope(const int* tokens, Matrix slope, Matrix characters, Matrix positions, cudaStream_t stream) {
  CharacterSlopeKernel<<<Blocks(characters), kThreads, 0, stream>>>(tokens, slope, characters);
  CUDA_CHECK_LAUNCH();
  PositionSlopeKernel<<<Blocks(positions), kThreads, 0, stream>>>(slope, positions);
  CUDA_CHECK_LAUNCH();
}

void Add(Matrix a, Matrix b, Matrix out, cudaStream_t stream) {
  AddKernel<<<Blocks(out), kThreads, 0, stream>>>(a, b, out);
  CUDA_CHECK_LAUNCH();
}

void Gelu(Matrix in, Matrix out, cudaStream_t stream) {
  GeluKernel<<<Blocks(out), kThreads, 0, stream>>>(in, out);
  CUDA_CHECK_LAUNCH();
}

void GeluSlope(Matrix in, Matrix slope, cudaStream_t stream) {
  GeluSlopeKernel<<<Blocks(in), kThreads, 0, stream>>>(in, slope);
  CUDA_CHECK_LAUNCH();
}

void SoftmaxLoss(Matrix logits, const int* targets, float* losses, cudaStream_t stream) {
  SoftmaxLossKernel<<<BlocksForWarps(logits.rows, kThreads), kThreads, 0, stream>>>(logits, targets, losses);
  CUDA_CHECK_LAUNCH();
}

}  // namespace gpt
