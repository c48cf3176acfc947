// Convolutions over one to three dimensions of space, in groups, of any layout.
#ifndef SOFTGPU_DNN_CONVOLUTION_H_
#define SOFTGPU_DNN_CONVOLUTION_H_

#include "softgpu/dnn/activation.h"
#include "softgpu/dnn/values.h"

namespace softgpu::dnn {

inline constexpr int kMaxSpace = 3;

// What a convolution descriptor says. Part of kernel arguments.
struct ConvolutionParams {
  int32_t space = 0;  // dimensions of space
  int32_t pad[kMaxSpace] = {};
  int32_t stride[kMaxSpace] = {1, 1, 1};
  int32_t dilation[kMaxSpace] = {1, 1, 1};
  int32_t groups = 1;
  int32_t mirrored = 0;  // the mathematical convolution, not the cross-correlation
};

// Sums are over the filter's elements in order of channel and position (backward in the data: over the output
// channels, then those positions), or over blocks of kPositions outputs that are then added in order
// (backward in the filter). `y` has the shape that ForwardShape() says.
inline constexpr size_t kPositions = 256;

// The output's dimensions for an input and a filter; false when they do not fit together.
bool ForwardShape(const ConvolutionParams& params, const Shape& x, const Shape& w, Shape* y);

void ConvolutionForward(const ConvolutionParams& params, const Blend& blend, const Source& x, const Source& w,
                        const Target& y, Arena* arena);

// y = activation(blend.alpha * convolution + blend.beta * z + bias); z is absent where beta is 0.
void ConvolutionFused(const ConvolutionParams& params, const Blend& blend, const ActivationParams& activation,
                      const Source& x, const Source& w, const Source& z, const Source& bias, const Target& y,
                      Arena* arena);

void ConvolutionBackwardData(const ConvolutionParams& params, const Blend& blend, const Source& w,
                             const Source& dy, const Target& dx, Arena* arena);

void ConvolutionBackwardFilter(const ConvolutionParams& params, const Blend& blend, const Source& x,
                               const Source& dy, const Target& dw, Arena* arena);

// db[channel] = sum of dy over images and space, each image's summed first.
void ConvolutionBackwardBias(const Blend& blend, const Source& dy, const Target& db, Arena* arena);

// Space for all intermediate values of one convolution whose tensors are packed floats: what an algorithm
// with a workspace asks for.
size_t ColumnBytes(const ConvolutionParams& params, const Shape& x, const Shape& w);

}  // namespace softgpu::dnn

#endif  // SOFTGPU_DNN_CONVOLUTION_H_
