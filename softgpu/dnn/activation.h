// Activations and softmax.
#ifndef SOFTGPU_DNN_ACTIVATION_H_
#define SOFTGPU_DNN_ACTIVATION_H_

#include "softgpu/dnn/values.h"

namespace softgpu::dnn {

// What an activation descriptor says. Part of kernel arguments.
struct ActivationParams {
  int32_t mode = CUDNN_ACTIVATION_RELU;
  int32_t propagate_nan = 0;
  double coefficient = 0;  // ceiling of the clipped ReLU, alpha of ELU
  double swish_beta = 1;
};

// values[i] = f(values[i])
template <typename T>
void Activate(const ActivationParams& params, size_t count, const T* x, T* y);

// dx[i] = dy[i] * f'(x[i]), where y[i] = f(x[i])
template <typename T>
void ActivateSlope(const ActivationParams& params, size_t count, const T* x, const T* y, const T* dy, T* dx);

void ActivationForward(const ActivationParams& params, const Blend& blend, const Source& x, const Target& y,
                       Arena* arena);
void ActivationBackward(const ActivationParams& params, const Blend& blend, const Source& y, const Source& dy,
                        const Source& x, const Target& dx, Arena* arena);

// Part of kernel arguments.
struct SoftmaxParams {
  int32_t algorithm = CUDNN_SOFTMAX_ACCURATE;
  int32_t mode = CUDNN_SOFTMAX_MODE_CHANNEL;
};

void SoftmaxForward(const SoftmaxParams& params, const Blend& blend, const Source& x, const Target& y,
                    Arena* arena);
void SoftmaxBackward(const SoftmaxParams& params, const Blend& blend, const Source& y, const Source& dy,
                     const Target& dx, Arena* arena);

}  // namespace softgpu::dnn

#endif  // SOFTGPU_DNN_ACTIVATION_H_
