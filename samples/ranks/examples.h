// What the networks learn: rows of random features and, for each, targets that follow from them.
#pragma once

#include <stdint.h>

#ifdef __CUDACC__
#define RANKS_BOTH __host__ __device__
#else
#define RANKS_BOTH
#endif

namespace ranks {

// Two steps of SplitMix64 over three numbers.
RANKS_BOTH inline uint64_t Hash(uint64_t seed, uint64_t a, uint64_t b) {
  uint64_t mixed = seed * 0x9E3779B97F4A7C15u + a * 0xD1B54A32D192ED03u + b * 0x8CB92BA72F3D8DD7u;
  for (int i = 0; i < 2; ++i) {
    mixed += 0x9E3779B97F4A7C15u;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
    mixed ^= mixed >> 31;
  }
  return mixed;
}

// In [-1, 1), in steps of 2^-23.
RANKS_BOTH inline float Feature(uint64_t seed, uint64_t row, uint64_t column) {
  return static_cast<float>(static_cast<int32_t>(Hash(seed, row, column) >> 40) - (1 << 23)) / (1 << 23);
}

// The row of the example with number `index` of a step.
RANKS_BOTH inline int RowOf(uint64_t seed, int step, int index, int rows) {
  return static_cast<int>(Hash(seed + 1, static_cast<uint64_t>(step), static_cast<uint64_t>(index)) %
                          static_cast<uint64_t>(rows));
}

// The target that follows from two features next to each other.
RANKS_BOTH inline float Target(float first, float second) {
  const float sum = first + second;
  return sum < 0 ? -sum : sum;
}

}  // namespace ranks
