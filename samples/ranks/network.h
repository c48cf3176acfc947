// Layers without bias and what trains them, in single precision on the device and on the host. Every sum has
// a fixed order and every product is rounded by itself, so both have the same bits.
//
// What ranks add up is in fixed point, 2^-32 in 64 bits: then the order in which they are added up does not
// matter, whatever the library's algorithm.
#pragma once

#include <stdint.h>

#include <vector>

namespace ranks {

inline constexpr float kMomentum = 0.9f;
inline constexpr double kFixed = 4294967296.0;

// A layer has `outputs` rows of `inputs` weights. Activations have a row for each of `batch` examples.
struct Shape {
  int batch = 0;
  int inputs = 0;
  int outputs = 0;
};

// Weights of a layer, uniform, as large as keeps activations the same size from layer to layer.
std::vector<float> StartWeights(uint64_t seed, int layer, int inputs, int outputs);

struct Step {
  float rate;    // learning rate
  double scale;  // from the fixed-point sum of all examples to the mean
};
inline Step MakeStep(double rate, int examples) {
  return {static_cast<float>(rate), 1.0 / kFixed / examples};
}

// The same functions on either side; Device's take their pointers and a stream.
namespace host {
// y = x w^T, and what is negative becomes 0 when `rectify`.
void Forward(const Shape& shape, const float* x, const float* w, bool rectify, float* y);
// The gradient of x, which is 0 where x was rectified when `mask`.
void BackwardInput(const Shape& shape, const float* dy, const float* w, const float* x, bool mask, float* dx);
// Adds the gradient of w.
void AddGradient(const Shape& shape, const float* dy, const float* x, int64_t* gradient);
// Half the squared distance of y from the targets is added to *loss; dy is its gradient.
void AddLoss(int batch, int outputs, const float* y, const float* targets, float* dy, int64_t* loss);
void Update(const Step& step, const int64_t* gradient, float* w, float* velocity, size_t count);
// sum = x w^T in fixed point, to be added to other ranks'.
void ForwardFixed(const Shape& shape, const float* x, const float* w, int64_t* sum);
// The gradient of x likewise.
void BackwardInputFixed(const Shape& shape, const float* dy, const float* w, int64_t* sum);
// y = x + sum
void AddFixed(const float* x, const int64_t* sum, float* y, size_t count);
// Features and targets of the rows of a table, whose columns are inputs and then outputs.
void MakeTable(uint64_t seed, int rows, int inputs, int outputs, float* table);
// The examples first, first + 1, ... of a step.
void Take(const float* table, int rows, const Shape& shape, uint64_t seed, int step, int first, float* x,
          float* targets);
}  // namespace host

}  // namespace ranks
