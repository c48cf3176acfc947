// The network's layers on cuDNN. Each owns the values that it computes and the slope of the loss in what it
// read; all work goes to one stream.
#pragma once

#include <memory>
#include <vector>

#include "../common/layers.h"
#include "cudnn_objects.h"

namespace cnn {

// A trained array with its gradient and Adam state.
struct Parameter {
  Parameter(const std::vector<float>& initial, cudaStream_t stream);

  void Update(const sample::AdamStep& step, cudaStream_t stream);

  OnDevice<float> value;
  OnDevice<float> gradient;
  OnDevice<float> mean;
  OnDevice<float> variance;
};

// What all layers work with. `trains`: backward passes are wanted.
struct Setting {
  cudnnHandle_t handle;
  cudaStream_t stream;
  bool trains;
};

class Layer {
 public:
  Layer(const Setting& setting, const Shape& in, const Shape& out);
  Layer(const Layer&) = delete;
  Layer& operator=(const Layer&) = delete;
  virtual ~Layer() = default;

  const Shape& out() const { return out_; }
  float* y() const { return y_.data(); }
  float* dx() const { return dx_.data(); }

  // From x to y().
  virtual void Forward(const float* x) = 0;
  // From what Forward() read and the slope in y() to dx() and the gradients of the parameters.
  virtual void Backward(const float* x, const float* dy) = 0;
  // What it keeps from one step to the next, except its parameters.
  virtual void ExchangeOwn(sample::SavedState*) {}

 protected:
  const Setting setting_;
  const Shape in_;
  const Shape out_;
  TensorDescriptor x_desc_;
  TensorDescriptor y_desc_;

 private:
  OnDevice<float> y_;
  OnDevice<float> dx_;
};

// A window of `window` x `window` with `pad` zeros around the input; `bias` may be null.
std::unique_ptr<Layer> MakeConvolution(const Setting& setting, const Shape& in, int filters, int window,
                                       int pad, Parameter* weights, Parameter* bias);

// Running statistics of a batch normalisation, kept for when it does not train.
struct Statistics {
  OnDevice<float> mean;
  OnDevice<float> variance;
};

std::unique_ptr<Layer> MakeNorm(const Setting& setting, const Shape& in, Parameter* scale, Parameter* shift,
                                Statistics* running);

std::unique_ptr<Layer> MakeRelu(const Setting& setting, const Shape& in);

// The maximum of each 2 x 2 values.
std::unique_ptr<Layer> MakePool(const Setting& setting, const Shape& in);

// Drops nothing when it does not train.
std::unique_ptr<Layer> MakeDropout(const Setting& setting, const Shape& in, double share, uint64_t seed);

}  // namespace cnn
