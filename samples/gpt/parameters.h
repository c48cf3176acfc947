// The network's parameters: one flat array, in which every tensor has its place.
#pragma once

#include <stddef.h>

#include <vector>

#include "config.h"

namespace gpt {

// A matrix or, with one row, a vector.
struct Tensor {
  size_t offset;
  int rows;
  int columns;

  size_t count() const { return static_cast<size_t>(rows) * columns; }
  bool is_matrix() const { return rows > 1; }
};

struct NormTensors {
  Tensor scale;
  Tensor shift;
};

struct LinearTensors {
  Tensor weights;  // inputs x outputs
  Tensor bias;
};

struct BlockTensors {
  NormTensors attention_norm;
  LinearTensors query_key_value;  // width x (3 * width): queries, keys, values
  LinearTensors attention_out;
  NormTensors hidden_norm;
  LinearTensors hidden_in;
  LinearTensors hidden_out;
};

struct Parameters {
  Tensor characters;  // vocabulary x width
  Tensor positions;   // context x width
  std::vector<BlockTensors> blocks;
  NormTensors final_norm;
  Tensor head;  // width x vocabulary
  std::vector<Tensor> all;
  size_t count;
};

// Every tensor begins at a multiple of 64 elements; what lies between is zero and stays so.
Parameters LayOut(const Config& config, int vocabulary);

// Uniform matrices, scales of one, everything else zero; depends on the layout and the seed alone.
std::vector<float> InitialValues(const Config& config, const Parameters& parameters);

}  // namespace gpt
