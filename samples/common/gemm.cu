#include "cuda_check.h"
#include "gemm.h"

namespace sample {
namespace {

// A block of 8 x 8 threads computes a 64 x 64 tile of the result; each thread holds 8 x 8 elements of it in
// registers, as four 4 x 4 quadrants, so that its operands come out of shared memory four at a time.
constexpr int kTile = 64;
constexpr int kDepth = 16;
constexpr int kThreadsPerSide = 8;
constexpr int kThreads = kThreadsPerSide * kThreadsPerSide;
constexpr int kHalf = kTile / 2;
constexpr int kPerThread = 8;
constexpr int kFetches = kTile * kDepth / 4 / kThreads;

// One operand's part of a step, indexed by depth and by position along the tile's side.
struct alignas(16) Panel {
  float at[kDepth][kTile];
};

// Four neighbouring elements of a row; those outside the matrix are zero.
__device__ float4 Fetch(const Matrix& matrix, int row, int column) {
  float4 value = make_float4(0, 0, 0, 0);
  if (row >= matrix.rows || column >= matrix.columns) return value;
  const float* from = matrix.data + static_cast<size_t>(row) * matrix.columns + column;
  if (matrix.columns % 4 == 0) return *reinterpret_cast<const float4*>(from);
  value.x = from[0];
  if (column + 1 < matrix.columns) value.y = from[1];
  if (column + 2 < matrix.columns) value.z = from[2];
  if (column + 3 < matrix.columns) value.w = from[3];
  return value;
}

// Fills a panel from a matrix whose rows run along the depth (kDepthIsRow) or along the tile's side.
template <bool kDepthIsRow>
__device__ void FillPanel(const Matrix& matrix, int side_start, int depth_start, Panel* panel) {
#pragma unroll
  for (int fetch = 0; fetch < kFetches; ++fetch) {
    const int index = fetch * kThreads + threadIdx.x;
    if (kDepthIsRow) {
      const int depth = index / (kTile / 4);
      const int side = index % (kTile / 4) * 4;
      *reinterpret_cast<float4*>(&panel->at[depth][side]) =
          Fetch(matrix, depth_start + depth, side_start + side);
    } else {
      const int side = index % kTile;
      const int depth = index / kTile * 4;
      const float4 value = Fetch(matrix, side_start + side, depth_start + depth);
      panel->at[depth][side] = value.x;
      panel->at[depth + 1][side] = value.y;
      panel->at[depth + 2][side] = value.z;
      panel->at[depth + 3][side] = value.w;
    }
  }
}

// The eight operands of a thread: four at `offset` and four half a tile further.
__device__ void ReadOperands(const float* row, int offset, float* out) {
  const float4 low = *reinterpret_cast<const float4*>(row + offset);
  const float4 high = *reinterpret_cast<const float4*>(row + kHalf + offset);
  out[0] = low.x, out[1] = low.y, out[2] = low.z, out[3] = low.w;
  out[4] = high.x, out[5] = high.y, out[6] = high.z, out[7] = high.w;
}

__device__ void MultiplyPanels(const Panel& left, const Panel& right, int row_offset, int column_offset,
                               float (*sums)[kPerThread]) {
#pragma unroll
  for (int depth = 0; depth < kDepth; ++depth) {
    float a[kPerThread];
    float b[kPerThread];
    ReadOperands(left.at[depth], row_offset, a);
    ReadOperands(right.at[depth], column_offset, b);
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
#pragma unroll
      for (int j = 0; j < kPerThread; ++j) sums[i][j] = fmaf(a[i], b[j], sums[i][j]);
    }
  }
}

// Stores four neighbouring elements of a row, as far as they lie inside the matrix.
__device__ void Store(const Matrix& matrix, int row, int column, const float* values) {
  if (row >= matrix.rows || column >= matrix.columns) return;
  float* to = matrix.data + static_cast<size_t>(row) * matrix.columns + column;
  if (matrix.columns % 4 == 0) {
    *reinterpret_cast<float4*>(to) = make_float4(values[0], values[1], values[2], values[3]);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (column + i < matrix.columns) to[i] = values[i];
  }
}

template <bool kLeftTransposed, bool kRightTransposed>
__global__ void __launch_bounds__(kThreads) GemmKernel(Matrix a, Matrix b, Matrix out, int depth) {
  __shared__ Panel left;
  __shared__ Panel right;
  const int row_start = blockIdx.y * kTile;
  const int column_start = blockIdx.x * kTile;
  const int row_offset = threadIdx.x / kThreadsPerSide * 4;
  const int column_offset = threadIdx.x % kThreadsPerSide * 4;
  float sums[kPerThread][kPerThread] = {};
  for (int start = 0; start < depth; start += kDepth) {
    FillPanel<kLeftTransposed>(a, row_start, start, &left);
    FillPanel<!kRightTransposed>(b, column_start, start, &right);
    __syncthreads();
    MultiplyPanels(left, right, row_offset, column_offset, sums);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int row = row_start + row_offset + (i < 4 ? i : kHalf + i - 4);
    Store(out, row, column_start + column_offset, &sums[i][0]);
    Store(out, row, column_start + column_offset + kHalf, &sums[i][4]);
  }
}

void CheckShapes(bool fit) {
  if (!fit) Fail(kExitFailure, "matrix product with shapes that do not fit");
}

template <bool kLeftTransposed, bool kRightTransposed>
void Launch(Matrix a, Matrix b, Matrix out, int depth, cudaStream_t stream) {
  const dim3 grid((out.columns + kTile - 1) / kTile, (out.rows + kTile - 1) / kTile);
  GemmKernel<kLeftTransposed, kRightTransposed><<<grid, kThreads, 0, stream>>>(a, b, out, depth);
  CUDA_CHECK_LAUNCH();
}

}  // namespace

void Multiply(Matrix a, Matrix b, Matrix out, cudaStream_t stream) {
  CheckShapes(a.columns == b.rows && out.rows == a.rows && out.columns == b.columns);
  Launch<false, false>(a, b, out, a.columns, stream);
}

void MultiplyTransposedLeft(Matrix a, Matrix b, Matrix out, cudaStream_t stream) {
  CheckShapes(a.rows == b.rows && out.rows == a.columns && out.columns == b.columns);
  Launch<true, false>(a, b, out, a.rows, stream);
}

void MultiplyTransposedRight(Matrix a, Matrix b, Matrix out, cudaStream_t stream) {
  CheckShapes(a.columns == b.columns && out.rows == a.rows && out.columns == b.rows);
  Launch<false, true>(a, b, out, a.columns, stream);
}

}  // namespace sample
