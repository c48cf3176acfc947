#include "softgpu/dnn/activation.h"

#include <cmath>
#include <type_traits>

namespace softgpu::dnn {
namespace {

template <typename T>
T Sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

// y[i] = f(x[i]): one loop a function, so that the mode is looked at once.
template <typename T, typename F>
void Map(size_t count, const T* x, T* y, F f) {
  for (size_t i = 0; i < count; ++i) y[i] = f(x[i]);
}

template <typename T>
void ActivateRelu(const ActivationParams& params, size_t count, const T* x, T* y) {
  const bool clipped = params.mode == CUDNN_ACTIVATION_CLIPPED_RELU;
  const T ceiling = static_cast<T>(params.coefficient);
  // Comparisons with a NaN are false: which branch comes last says whether it stays.
  if (params.propagate_nan) {
    Map(count, x, y, [](T v) { return v < 0 ? T(0) : v; });
  } else {
    Map(count, x, y, [](T v) { return v > 0 ? v : T(0); });
  }
  if (clipped) Map(count, y, y, [ceiling](T v) { return v > ceiling ? ceiling : v; });
}

template <typename T, typename F>
void MapSlope(size_t count, const T* x, const T* y, const T* dy, T* dx, F f) {
  for (size_t i = 0; i < count; ++i) dx[i] = dy[i] * f(x[i], y[i]);
}

template <typename T>
T SwishSlope(T x, T beta) {
  const T s = Sigmoid(beta * x);
  return s + beta * x * s * (T(1) - s);
}

}  // namespace

template <typename T>
void Activate(const ActivationParams& params, size_t count, const T* x, T* y) {
  const T coefficient = static_cast<T>(params.coefficient);
  const T beta = static_cast<T>(params.swish_beta);
  switch (params.mode) {
    case CUDNN_ACTIVATION_SIGMOID:
      return Map(count, x, y, [](T v) { return Sigmoid(v); });
    case CUDNN_ACTIVATION_TANH:
      return Map(count, x, y, [](T v) { return std::tanh(v); });
    case CUDNN_ACTIVATION_ELU:
      return Map(count, x, y, [=](T v) { return v > 0 ? v : coefficient * std::expm1(v); });
    case CUDNN_ACTIVATION_SWISH:
      return Map(count, x, y, [=](T v) { return v * Sigmoid(beta * v); });
    case CUDNN_ACTIVATION_IDENTITY:
      return Map(count, x, y, [](T v) { return v; });
    default:
      return ActivateRelu(params, count, x, y);
  }
}

template <typename T>
void ActivateSlope(const ActivationParams& params, size_t count, const T* x, const T* y, const T* dy, T* dx) {
  const T coefficient = static_cast<T>(params.coefficient);
  const T beta = static_cast<T>(params.swish_beta);
  switch (params.mode) {
    case CUDNN_ACTIVATION_SIGMOID:
      return MapSlope(count, x, y, dy, dx, [](T, T out) { return out * (T(1) - out); });
    case CUDNN_ACTIVATION_TANH:
      return MapSlope(count, x, y, dy, dx, [](T, T out) { return T(1) - out * out; });
    case CUDNN_ACTIVATION_ELU:
      return MapSlope(count, x, y, dy, dx, [=](T in, T out) { return in > 0 ? T(1) : out + coefficient; });
    case CUDNN_ACTIVATION_SWISH:
      return MapSlope(count, x, y, dy, dx, [=](T in, T) { return SwishSlope(in, beta); });
    case CUDNN_ACTIVATION_IDENTITY:
      return MapSlope(count, x, y, dy, dx, [](T, T) { return T(1); });
    case CUDNN_ACTIVATION_CLIPPED_RELU:
      for (size_t i = 0; i < count; ++i) dx[i] = x[i] > 0 && x[i] <= coefficient ? dy[i] : T(0);
      return;
    default:
      for (size_t i = 0; i < count; ++i) dx[i] = x[i] > 0 ? dy[i] : T(0);
  }
}

template void Activate(const ActivationParams&, size_t, const float*, float*);
template void Activate(const ActivationParams&, size_t, const double*, double*);
template void ActivateSlope(const ActivationParams&, size_t, const float*, const float*, const float*,
                            float*);
template void ActivateSlope(const ActivationParams&, size_t, const double*, const double*, const double*,
                            double*);

void ActivationForward(const ActivationParams& params, const Blend& blend, const Source& x, const Target& y,
                       Arena* arena) {
  WithCompute(x.shape.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const Results<T> out(y, blend, arena);
    Activate(params, x.shape.Count(), Values<T>(x, arena), out.data());
    out.Commit();
  });
}

void ActivationBackward(const ActivationParams& params, const Blend& blend, const Source& y, const Source& dy,
                        const Source& x, const Target& dx, Arena* arena) {
  WithCompute(x.shape.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const Results<T> out(dx, blend, arena);
    ActivateSlope(params, x.shape.Count(), Values<T>(x, arena), Values<T>(y, arena), Values<T>(dy, arena),
                  out.data());
    out.Commit();
  });
}

}  // namespace softgpu::dnn
