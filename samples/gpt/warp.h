// Reductions over the 32 lanes of a warp; every lane gets the result. To be included by device code only.
#pragma once

namespace gpt {

constexpr int kLanes = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

__device__ inline float WarpSum(float value) {
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, distance);
  }
  return value;
}

__device__ inline float WarpMax(float value) {
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}

// The number of this thread's warp in a grid of one dimension, and its lane.
__device__ inline int WarpIndex() {
  return static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / kLanes);
}
__device__ inline int Lane() { return static_cast<int>(threadIdx.x % kLanes); }

// Blocks of `threads` for so many warps or threads.
inline int BlocksForWarps(int warps, int threads) {
  const int per_block = threads / kLanes;
  return (warps + per_block - 1) / per_block;
}
inline int BlocksForThreads(int count, int threads) { return (count + threads - 1) / threads; }

}  // namespace gpt
