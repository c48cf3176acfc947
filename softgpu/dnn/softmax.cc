#include <algorithm>
#include <cmath>
#include <type_traits>

#include "softgpu/dnn/activation.h"

namespace softgpu::dnn {
namespace {

// The sets that a softmax goes over: `length` elements, `step` apart, for each of `count` sets.
struct Sets {
  Sets(const SoftmaxParams& params, const Shape& shape) {
    const bool channel = params.mode == CUDNN_SOFTMAX_MODE_CHANNEL;
    step = channel ? shape.Space() : 1;
    length = static_cast<size_t>(shape.dim[1]) * (channel ? 1 : shape.Space());
    count = shape.Count() / length;
  }

  size_t First(size_t set) const { return set / step * step * length + set % step; }

  size_t count;
  size_t length;
  size_t step;
};

template <typename T>
void SoftmaxOf(const SoftmaxParams& params, const Sets& sets, const T* x, T* y) {
  T top = 0;
  if (params.algorithm != CUDNN_SOFTMAX_FAST) {
    top = x[0];
    for (size_t i = 1; i < sets.length; ++i) top = std::max(top, x[i * sets.step]);
  }
  T sum = 0;
  for (size_t i = 0; i < sets.length; ++i) sum += std::exp(x[i * sets.step] - top);
  if (params.algorithm == CUDNN_SOFTMAX_LOG) {
    const T offset = top + std::log(sum);
    for (size_t i = 0; i < sets.length; ++i) y[i * sets.step] = x[i * sets.step] - offset;
  } else {
    for (size_t i = 0; i < sets.length; ++i) y[i * sets.step] = std::exp(x[i * sets.step] - top) / sum;
  }
}

template <typename T>
void SlopeOf(const SoftmaxParams& params, const Sets& sets, const T* y, const T* dy, T* dx) {
  const bool log = params.algorithm == CUDNN_SOFTMAX_LOG;
  T sum = 0;
  for (size_t i = 0; i < sets.length; ++i)
    sum += log ? dy[i * sets.step] : dy[i * sets.step] * y[i * sets.step];
  for (size_t i = 0; i < sets.length; ++i) {
    const size_t at = i * sets.step;
    dx[at] = log ? dy[at] - std::exp(y[at]) * sum : y[at] * (dy[at] - sum);
  }
}

}  // namespace

void SoftmaxForward(const SoftmaxParams& params, const Blend& blend, const Source& x, const Target& y,
                    Arena* arena) {
  const Sets sets(params, x.shape);
  WithCompute(x.shape.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* in = Values<T>(x, arena);
    const Results<T> out(y, blend, arena);
    for (size_t i = 0; i < sets.count; ++i) {
      SoftmaxOf(params, sets, in + sets.First(i), out.data() + sets.First(i));
    }
    out.Commit();
  });
}

void SoftmaxBackward(const SoftmaxParams& params, const Blend& blend, const Source& y, const Source& dy,
                     const Target& dx, Arena* arena) {
  const Sets sets(params, y.shape);
  WithCompute(y.shape.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* values = Values<T>(y, arena);
    const T* slope = Values<T>(dy, arena);
    const Results<T> out(dx, blend, arena);
    for (size_t i = 0; i < sets.count; ++i) {
      SlopeOf(params, sets, values + sets.First(i), slope + sets.First(i), out.data() + sets.First(i));
    }
    out.Commit();
  });
}

}  // namespace softgpu::dnn
