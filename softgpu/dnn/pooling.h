// Pooling over two or three dimensions of space.
#ifndef SOFTGPU_DNN_POOLING_H_
#define SOFTGPU_DNN_POOLING_H_

#include "softgpu/dnn/values.h"

namespace softgpu::dnn {

inline constexpr int kMaxPoolingSpace = 3;

// What a pooling descriptor says. Part of kernel arguments.
struct PoolingParams {
  int32_t mode = CUDNN_POOLING_MAX;
  int32_t propagate_nan = 0;
  int32_t space = 0;  // dimensions of space
  int32_t window[kMaxPoolingSpace] = {1, 1, 1};
  int32_t pad[kMaxPoolingSpace] = {};
  int32_t stride[kMaxPoolingSpace] = {1, 1, 1};
};

// The output's dimensions; false when the window does not fit.
bool PooledShape(const PoolingParams& params, const Shape& x, Shape* y);

void PoolingForward(const PoolingParams& params, const Blend& blend, const Source& x, const Target& y,
                    Arena* arena);

// Of equal maxima, the first in the window gets the slope.
void PoolingBackward(const PoolingParams& params, const Blend& blend, const Source& dy, const Source& x,
                     const Target& dx, Arena* arena);

}  // namespace softgpu::dnn

#endif  // SOFTGPU_DNN_POOLING_H_
