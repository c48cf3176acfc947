#include "../common/cuda_check.h"
#include "config.h"
#include "kernels.h"
#include "warp.h"

namespace gpt {
namespace {

using sample::Matrix;

constexpr int kThreads = 128;

// One warp a row.
__global__ void NormaliseKernel(Matrix in, const float* scale, const float* shift, NormStatistics statistics,
                                Matrix out) {
  const int row = WarpIndex();
  if (row >= in.rows) return;
  const float* x = in.data + static_cast<size_t>(row) * in.columns;
  float* y = out.data + static_cast<size_t>(row) * in.columns;
  float sum = 0;
  for (int j = Lane(); j < in.columns; j += kLanes) sum += x[j];
  const float mean = WarpSum(sum) / in.columns;
  float squares = 0;
  for (int j = Lane(); j < in.columns; j += kLanes) squares += (x[j] - mean) * (x[j] - mean);
  const float inverse = 1 / sqrtf(WarpSum(squares) / in.columns + static_cast<float>(kNormEpsilon));
  for (int j = Lane(); j < in.columns; j += kLanes) y[j] = (x[j] - mean) * inverse * scale[j] + shift[j];
  if (Lane() == 0) {
    statistics.mean[row] = mean;
    statistics.inverse_deviation[row] = inverse;
  }
}

// One warp a row.
__global__ void InputSlopeKernel(Matrix in, const float* scale, NormStatistics statistics, Matrix out_slope,
                                 Matrix in_slope) {
  const int row = WarpIndex();
  if (row >= in.rows) return;
  const size_t start = static_cast<size_t>(row) * in.columns;
  const float* x = in.data + start;
  const float* dy = out_slope.data + start;
  const float mean = statistics.mean[row];
  const float inverse = statistics.inverse_deviation[row];
  float sum = 0;
  float product = 0;
  for (int j = Lane(); j < in.columns; j += kLanes) {
    const float scaled = dy[j] * scale[j];
    sum += scaled;
    product += scaled * (x[j] - mean) * inverse;
  }
  sum = WarpSum(sum) / in.columns;
  product = WarpSum(product) / in.columns;
  for (int j = Lane(); j < in.columns; j += kLanes) {
    const float normal = (x[j] - mean) * inverse;
    in_slope.data[start + j] += inverse * (dy[j] * scale[j] - sum - normal * product);
  }
}

// One thread a column.
__global__ void ParameterSlopeKernel(Matrix in, NormStatistics statistics, Matrix out_slope,
                                     float* scale_slope, float* shift_slope) {
  const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (column >= in.columns) return;
  float scale = 0;
  float shift = 0;
  for (int row = 0; row < in.rows; ++row) {
    const float dy = out_slope.data[row * in.columns + column];
    const float normal =
        (in.data[row * in.columns + column] - statistics.mean[row]) * statistics.inverse_deviation[row];
    scale += dy * normal;
    shift += dy;
  }
  scale_slope[column] = scale;
  shift_slope[column] = shift;
}

}  // namespace

void Normalise(Matrix in, const float* scale, const float* shift, NormStatistics statistics, Matrix out,
               cudaStream_t stream) {
  NormaliseKernel<<<BlocksForWarps(in.rows, kThreads), kThreads, 0, stream>>>(in, scale, shift, statistics,
                                                                              out);
  CUDA_CHECK_LAUNCH();
}

void NormaliseSlope(Matrix in, const float* scale, NormStatistics statistics, Matrix out_slope,
                    Matrix in_slope, float* scale_slope, float* shift_slope, cudaStream_t stream) {
  InputSlopeKernel<<<BlocksForWarps(in.rows, kThreads), kThreads, 0, stream>>>(in, scale, statistics,
                                                                               out_slope, in_slope);
  CUDA_CHECK_LAUNCH();
  ParameterSlopeKernel<<<BlocksForThreads(in.columns, kLanes), kLanes, 0, stream>>>(in, statistics, out_slope,
                                                                                    scale_slope, shift_slope);
  CUDA_CHECK_LAUNCH();
}

}  // namespace gpt
