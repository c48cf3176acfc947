// The network's weights on the host: where they start and how they are fingerprinted.
#pragma once

#include <string>
#include <vector>

#include "config.h"

namespace cnn {

using Values = std::vector<float>;

// convolution 3x3 -> batch normalisation -> ReLU -> maximum of 2x2
struct BlockModel {
  int inputs;     // channels
  int outputs;    // channels
  Values filter;  // outputs x inputs x 3 x 3
  Values scale;
  Values shift;
  Values mean;  // running, as is the variance
  Values variance;
};

// A fully connected layer, as a convolution whose window covers its input.
struct DenseModel {
  int inputs;
  int outputs;
  Values weights;  // outputs x inputs
  Values bias;
};

struct Model {
  BlockModel blocks[2];
  DenseModel hidden;
  DenseModel classes;
};

// Uniform weights with the variance of He et al. (2015), zero bias, unit scale; depends on the sizes and the
// seed alone.
Model InitialModel(const Config& config);

// SHA-256 over all of the model's values in the order of its members, as little-endian floats.
std::string Fingerprint(const Model& model);

}  // namespace cnn
