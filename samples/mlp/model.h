// The network's weights on the host: where they start and how they are fingerprinted.
#pragma once

#include <string>
#include <vector>

#include "config.h"

namespace mlp {

// A fully connected layer: out = in * weights + bias.
struct Layer {
  int inputs;
  int outputs;
  std::vector<float> weights;  // inputs x outputs, row-major
  std::vector<float> bias;     // outputs
};

using Model = std::vector<Layer>;

// Uniform weights with the variance of He et al. (2015), zero bias; depends on the sizes and the seed alone.
Model InitialModel(const std::vector<int>& sizes, uint64_t seed);

// SHA-256 over weights and bias of each layer in turn, as little-endian floats.
std::string Fingerprint(const Model& model);

}  // namespace mlp
