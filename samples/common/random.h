// A small random generator whose sequence depends on the seed alone, never on a library or a platform.
#pragma once

#include <stdint.h>

#include <utility>
#include <vector>

namespace sample {

// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    state_ += 0x9E3779B97F4A7C15u;
    uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBu;
    return mixed ^ (mixed >> 31);
  }

  // In [0, bound). The bias of the remainder is below 2^-32 for the bounds used here.
  uint32_t Below(uint32_t bound) { return static_cast<uint32_t>(Next() % bound); }

  // In [-limit, limit), exactly representable steps of limit / 2^23.
  float Symmetric(float limit) {
    const int32_t step = static_cast<int32_t>(Next() >> 40) - (1 << 23);
    return static_cast<float>(step) / static_cast<float>(1 << 23) * limit;
  }

 private:
  uint64_t state_;
};

// The numbers 0 .. count-1 in random order.
inline std::vector<int> Permutation(int count, Random* random) {
  std::vector<int> order(count);
  for (int i = 0; i < count; ++i) order[i] = i;
  for (int i = count - 1; i > 0; --i) std::swap(order[i], order[random->Below(i + 1)]);
  return order;
}

}  // namespace sample
