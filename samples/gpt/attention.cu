#include "../common/cuda_check.h"
#include "kernels.h"
#include "warp.h"

namespace gpt {
namespace {

constexpr int kThreads = 128;

enum Part { kQuery, kKey, kValue };

// The place of a warp's work: one position of one head of one sequence.
struct Place {
  int sequence;
  int head;
  int position;
};

__device__ Place PlaceOf(const AttentionShape& shape, int index) {
  const int head = index / shape.context;
  return {head / shape.heads, head % shape.heads, index % shape.context};
}

// Where the queries, keys or values of a head at some position begin.
__device__ size_t PartOffset(const AttentionShape& shape, Part part, int sequence, int head, int position) {
  const size_t row = static_cast<size_t>(sequence) * shape.context + position;
  return (row * 3 + part) * shape.Width() + head * shape.head_width;
}

__device__ size_t OutOffset(const AttentionShape& shape, const Place& place) {
  const size_t row = static_cast<size_t>(place.sequence) * shape.context + place.position;
  return row * shape.Width() + place.head * shape.head_width;
}

__device__ float Dot(const float* a, const float* b, int count) {
  float sum = 0;
  for (int i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

__device__ float ScoreScale(const AttentionShape& shape) {
  return 1 / sqrtf(static_cast<float>(shape.head_width));
}

// The softmax of a position's scores against all positions up to its own; zero for the later ones.
__device__ void ComputeWeights(const AttentionShape& shape, const Place& place, const float* qkv,
                               float* weights) {
  const float* query = qkv + PartOffset(shape, kQuery, place.sequence, place.head, place.position);
  const float scale = ScoreScale(shape);
  float top = -INFINITY;
  for (int s = Lane(); s <= place.position; s += kLanes) {
    const float* key = qkv + PartOffset(shape, kKey, place.sequence, place.head, s);
    weights[s] = Dot(query, key, shape.head_width) * scale;
    top = fmaxf(top, weights[s]);
  }
  top = WarpMax(top);
  float sum = 0;
  for (int s = Lane(); s <= place.position; s += kLanes) {
    weights[s] = expf(weights[s] - top);
    sum += weights[s];
  }
  sum = WarpSum(sum);
  for (int s = Lane(); s < shape.context; s += kLanes)
    weights[s] = s <= place.position ? weights[s] / sum : 0;
}

// One warp a place.
__global__ void AttendKernel(AttentionShape shape, const float* qkv, float* all_weights, float* out) {
  const int index = WarpIndex();
  if (index >= shape.Rows() * shape.heads) return;
  const Place place = PlaceOf(shape, index);
  float* weights = all_weights + static_cast<size_t>(index) * shape.context;
  ComputeWeights(shape, place, qkv, weights);
  __syncwarp();  // each lane now reads what all lanes have written
  for (int j = Lane(); j < shape.head_width; j += kLanes) {
    float sum = 0;
    for (int s = 0; s <= place.position; ++s) {
      sum += weights[s] * qkv[PartOffset(shape, kValue, place.sequence, place.head, s) + j];
    }
    out[OutOffset(shape, place) + j] = sum;
  }
}

// The slope of the scores before the softmax and before their scaling; one warp a place.
__global__ void ScoreSlopeKernel(AttentionShape shape, const float* qkv, const float* all_weights,
                                 const float* out_slope, float* score_slope) {
  const int index = WarpIndex();
  if (index >= shape.Rows() * shape.heads) return;
  const Place place = PlaceOf(shape, index);
  const float* weights = all_weights + static_cast<size_t>(index) * shape.context;
  float* slope = score_slope + static_cast<size_t>(index) * shape.context;
  const float* dy = out_slope + OutOffset(shape, place);
  float sum = 0;
  for (int s = Lane(); s <= place.position; s += kLanes) {
    const float* value = qkv + PartOffset(shape, kValue, place.sequence, place.head, s);
    slope[s] = Dot(dy, value, shape.head_width);
    sum += slope[s] * weights[s];
  }
  sum = WarpSum(sum);
  const float scale = ScoreScale(shape);
  for (int s = Lane(); s <= place.position; s += kLanes) slope[s] = weights[s] * (slope[s] - sum) * scale;
}

// One thread an element of query, key and value each.
__global__ void QueryKeyValueSlopeKernel(AttentionShape shape, const float* qkv, const float* weights,
                                         const float* out_slope, const float* score_slope, float* qkv_slope) {
  const int index = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (index >= shape.Rows() * shape.Width()) return;
  const int row = index / shape.Width();
  const int head = index % shape.Width() / shape.head_width;
  const int j = index % shape.head_width;
  const int sequence = row / shape.context;
  const int here = row % shape.context;
  const size_t first = (static_cast<size_t>(sequence) * shape.heads + head) * shape.context;
  float query = 0;
  float key = 0;
  float value = 0;
  for (int s = 0; s <= here; ++s) {
    query +=
        score_slope[(first + here) * shape.context + s] * qkv[PartOffset(shape, kKey, sequence, head, s) + j];
  }
  for (int t = here; t < shape.context; ++t) {
    const size_t pair = (first + t) * shape.context + here;
    key += score_slope[pair] * qkv[PartOffset(shape, kQuery, sequence, head, t) + j];
    value += weights[pair] * out_slope[OutOffset(shape, {sequence, head, t}) + j];
  }
  qkv_slope[PartOffset(shape, kQuery, sequence, head, here) + j] = query;
  qkv_slope[PartOffset(shape, kKey, sequence, head, here) + j] = key;
  qkv_slope[PartOffset(shape, kValue, sequence, head, here) + j] = value;
}

}  // namespace

void Attend(AttentionShape shape, const float* query_key_value, float* weights, float* out,
            cudaStream_t stream) {
  const int blocks = BlocksForWarps(shape.Rows() * shape.heads, kThreads);
  AttendKernel<<<blocks, kThreads, 0, stream>>>(shape, query_key_value, weights, out);
  CUDA_CHECK_LAUNCH();
}

void AttendSlope(AttentionShape shape, const float* query_key_value, const float* weights,
                 const float* out_slope, float* score_slope, float* query_key_value_slope,
                 cudaStream_t stream) {
  const int blocks = BlocksForWarps(shape.Rows() * shape.heads, kThreads);
  ScoreSlopeKernel<<<blocks, kThreads, 0, stream>>>(shape, query_key_value, weights, out_slope, score_slope);
  CUDA_CHECK_LAUNCH();
  const int element_blocks = BlocksForThreads(shape.Rows() * shape.Width(), kThreads);
  QueryKeyValueSlopeKernel<<<element_blocks, kThreads, 0, stream>>>(
      shape, query_key_value, weights, out_slope, score_slope, query_key_value_slope);
  CUDA_CHECK_LAUNCH();
}

}  // namespace gpt
