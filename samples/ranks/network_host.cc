#include <math.h>

#include "../common/random.h"
#include "examples.h"
#include "network.h"

namespace ranks {

std::vector<float> StartWeights(uint64_t seed, int layer, int inputs, int outputs) {
  sample::Random random(seed * 1000003 + static_cast<uint64_t>(layer));
  const float limit = static_cast<float>(sqrt(6.0 / inputs));
  std::vector<float> weights(static_cast<size_t>(inputs) * static_cast<size_t>(outputs));
  for (float& weight : weights) weight = random.Symmetric(limit);
  return weights;
}

namespace host {
namespace {

int64_t ToFixed(float value) { return llrint(static_cast<double>(value) * kFixed); }

float Dot(const float* a, const float* b, int count) {
  float sum = 0;
  for (int i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

float DotDown(const float* row, const float* matrix, int columns, int column, int count) {
  float sum = 0;
  for (int i = 0; i < count; ++i) sum += row[i] * matrix[i * columns + column];
  return sum;
}

}  // namespace

void Forward(const Shape& shape, const float* x, const float* w, bool rectify, float* y) {
  for (int row = 0; row < shape.batch; ++row) {
    for (int out = 0; out < shape.outputs; ++out) {
      const float value = Dot(x + row * shape.inputs, w + out * shape.inputs, shape.inputs);
      y[row * shape.outputs + out] = rectify && value < 0 ? 0 : value;
    }
  }
}

void ForwardFixed(const Shape& shape, const float* x, const float* w, int64_t* sum) {
  for (int row = 0; row < shape.batch; ++row) {
    for (int out = 0; out < shape.outputs; ++out)
      sum[row * shape.outputs + out] =
          ToFixed(Dot(x + row * shape.inputs, w + out * shape.inputs, shape.inputs));
  }
}

void BackwardInput(const Shape& shape, const float* dy, const float* w, const float* x, bool mask,
                   float* dx) {
  for (int row = 0; row < shape.batch; ++row) {
    for (int in = 0; in < shape.inputs; ++in) {
      const int at = row * shape.inputs + in;
      dx[at] = mask && x[at] <= 0 ? 0 : DotDown(dy + row * shape.outputs, w, shape.inputs, in, shape.outputs);
    }
  }
}

void BackwardInputFixed(const Shape& shape, const float* dy, const float* w, int64_t* sum) {
  for (int row = 0; row < shape.batch; ++row) {
    for (int in = 0; in < shape.inputs; ++in)
      sum[row * shape.inputs + in] =
          ToFixed(DotDown(dy + row * shape.outputs, w, shape.inputs, in, shape.outputs));
  }
}

void AddGradient(const Shape& shape, const float* dy, const float* x, int64_t* gradient) {
  for (int out = 0; out < shape.outputs; ++out) {
    for (int in = 0; in < shape.inputs; ++in) {
      float sum = 0;
      for (int row = 0; row < shape.batch; ++row)
        sum += dy[row * shape.outputs + out] * x[row * shape.inputs + in];
      gradient[out * shape.inputs + in] += ToFixed(sum);
    }
  }
}

void AddLoss(int batch, int outputs, const float* y, const float* targets, float* dy, int64_t* loss) {
  for (int row = 0; row < batch; ++row) {
    float sum = 0;
    for (int out = 0; out < outputs; ++out) {
      const int at = row * outputs + out;
      dy[at] = y[at] - targets[at];
      sum += dy[at] * dy[at];
    }
    *loss += ToFixed(0.5f * sum);
  }
}

void Update(const Step& step, const int64_t* gradient, float* w, float* velocity, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const float mean = static_cast<float>(static_cast<double>(gradient[i]) * step.scale);
    velocity[i] = velocity[i] * kMomentum + mean;
    w[i] = w[i] - step.rate * velocity[i];
  }
}

void AddFixed(const float* x, const int64_t* sum, float* y, size_t count) {
  for (size_t i = 0; i < count; ++i)
    y[i] = x[i] + static_cast<float>(static_cast<double>(sum[i]) * (1.0 / kFixed));
}

void MakeTable(uint64_t seed, int rows, int inputs, int outputs, float* table) {
  for (int row = 0; row < rows; ++row) {
    for (int column = 0; column < inputs; ++column) *table++ = Feature(seed, row, column);
    for (int out = 0; out < outputs; ++out)
      *table++ = Target(Feature(seed, row, out % inputs), Feature(seed, row, (out + 1) % inputs));
  }
}

void Take(const float* table, int rows, const Shape& shape, uint64_t seed, int step, int first, float* x,
          float* targets) {
  for (int i = 0; i < shape.batch; ++i) {
    const float* row =
        table + static_cast<size_t>(RowOf(seed, step, first + i, rows)) * (shape.inputs + shape.outputs);
    for (int column = 0; column < shape.inputs; ++column) *x++ = row[column];
    for (int out = 0; out < shape.outputs; ++out) *targets++ = row[shape.inputs + out];
  }
}

}  // namespace host
}  // namespace ranks
