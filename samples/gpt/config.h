// Size and schedule of a training run; the same for the device and for the host reference.
#pragma once

#include <stdint.h>

#include <string>

#include "../common/saved_state.h"

namespace gpt {

struct Config {
  int steps = 60;
  int batch = 4;     // sequences a step
  int context = 64;  // characters of a sequence
  int layers = 2;
  int width = 64;  // of a character's vector
  int heads = 4;
  double learning_rate = 0.003;
  double weight_decay = 0.1;
  uint64_t seed = 1;
  int device = 0;
  int log_every = 1;
  int pace_ms = 0;
  bool reference = false;
  sample::Saving saving;
  bool blas = false;  // cuBLAS multiplies the matrices
  std::string text;

  int Rows() const { return batch * context; }
  int HeadWidth() const { return width / heads; }
};

constexpr int kExpansion = 4;  // of the hidden part of each block
constexpr double kNormEpsilon = 1e-5;

}  // namespace gpt
