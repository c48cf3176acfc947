// Batch normalisation, per activation or per channel, and local response normalisation across channels.
#ifndef SOFTGPU_DNN_NORM_H_
#define SOFTGPU_DNN_NORM_H_

#include "softgpu/dnn/activation.h"
#include "softgpu/dnn/values.h"

namespace softgpu::dnn {

// Part of kernel arguments.
struct BatchNormParams {
  int32_t per_channel = 1;
  int32_t activates = 0;  // relu or identity after it, before that z is added if there is one
  ActivationParams activation;
  double epsilon = 0;
  double factor = 0;  // of the new value in the running mean and variance; 1: the old one is not read
};

// The shape of scale, bias, mean and variance for data of shape `x`.
Shape NormShape(bool per_channel, const Shape& x);

// One bit an element: whether the activation let it pass.
size_t MaskBytes(const Shape& x);

struct BatchNormForward {
  BatchNormParams params;
  Blend blend;
  Source x, z;  // z may be absent
  Source scale, bias;
  Target y;
  // Each may be absent.
  Target running_mean, running_variance;
  Target saved_mean, saved_inverse;
  uint8_t* mask = nullptr;  // where it activates in training
};

void ForwardTraining(const BatchNormForward& norm, Arena* arena);
// The statistics are the given ones; `variance` is not inverted.
void ForwardInference(const BatchNormForward& norm, const Source& mean, const Source& variance, Arena* arena);

struct BatchNormBackward {
  BatchNormParams params;
  Blend data_blend, param_blend;
  Source x, dy;
  Source scale;
  Source saved_mean, saved_inverse;  // absent: computed again
  Target dx, dz;                     // dz may be absent
  Target dscale, dbias;
  const uint8_t* mask = nullptr;  // where it activates
};

void Backward(const BatchNormBackward& norm, Arena* arena);

// Part of kernel arguments.
struct LrnParams {
  uint32_t window = 5;
  double alpha = 1e-4;
  double beta = 0.75;
  double k = 2;
};

void LrnForward(const LrnParams& params, const Blend& blend, const Source& x, const Target& y, Arena* arena);
void LrnBackward(const LrnParams& params, const Blend& blend, const Source& y, const Source& dy,
                 const Source& x, const Target& dx, Arena* arena);

}  // namespace softgpu::dnn

#endif  // SOFTGPU_DNN_NORM_H_
