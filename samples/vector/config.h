// What a run of the vector sample does, and its two implementations.
#pragma once

#include <stdint.h>

#include <memory>
#include <vector>

namespace vector_sample {

struct Config {
  int elements = 1 << 20;
  int streams = 4;
  int rounds = 10;
  uint64_t seed = 1;
  int device = 0;
  int pace_ms = 0;
  bool reference = false;
};

constexpr float kScale = 0.75f;

struct RoundResult {
  uint64_t checksum;   // of all elements
  float milliseconds;  // on the device; 0 on the host
};

// Keeps y, zero at the start. A round computes y = kScale * y + x, each operation rounded on its own, and the
// checksum of y: the sum, modulo 2^64, of each element's bits mixed with its position.
class Vector {
 public:
  virtual ~Vector() = default;
  virtual RoundResult Round(const std::vector<float>& x) = 0;
  virtual std::vector<float> Values() = 0;
};

std::unique_ptr<Vector> MakeDeviceVector(const Config& config);
std::unique_ptr<Vector> MakeHostVector(const Config& config);

}  // namespace vector_sample
