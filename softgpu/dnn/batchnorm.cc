#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "softgpu/dnn/norm.h"

namespace softgpu::dnn {
namespace {

// Data as images of features of neighbouring elements that share their statistics.
struct Layout {
  Layout(bool per_channel, const Shape& x) {
    images = static_cast<size_t>(x.dim[0]);
    inner = per_channel ? x.Space() : 1;
    features = static_cast<size_t>(x.dim[1]) * (per_channel ? 1 : x.Space());
  }

  size_t Offset(size_t image, size_t feature) const { return (image * features + feature) * inner; }
  size_t Samples() const { return images * inner; }

  size_t images;
  size_t features;
  size_t inner;
};

// A sum in double, in a fixed number of parts so that it takes vector instructions.
class Sum {
 public:
  template <typename F>
  void Add(size_t count, F&& term) {
    size_t i = 0;
    for (; i + kParts <= count; i += kParts) {
      for (size_t part = 0; part < kParts; ++part) parts_[part] += term(i + part);
    }
    for (size_t part = 0; i < count; ++i, ++part) parts_[part] += term(i);
  }

  double Total() const {
    double total = 0;
    for (const double part : parts_) total += part;
    return total;
  }

 private:
  static constexpr size_t kParts = 8;
  double parts_[kParts] = {};
};

template <typename T>
double Mean(const Layout& layout, const T* x, size_t feature) {
  Sum sum;
  for (size_t image = 0; image < layout.images; ++image) {
    const T* from = x + layout.Offset(image, feature);
    sum.Add(layout.inner, [=](size_t i) { return static_cast<double>(from[i]); });
  }
  return sum.Total() / static_cast<double>(layout.Samples());
}

// Of the samples, not the estimate.
template <typename T>
double Variance(const Layout& layout, const T* x, size_t feature, double mean) {
  Sum sum;
  for (size_t image = 0; image < layout.images; ++image) {
    const T* from = x + layout.Offset(image, feature);
    sum.Add(layout.inner, [=](size_t i) {
      const double distance = static_cast<double>(from[i]) - mean;
      return distance * distance;
    });
  }
  return sum.Total() / static_cast<double>(layout.Samples());
}

// The statistics of all features.
template <typename T>
struct Statistics {
  Statistics(const Layout& layout, Arena* arena)
      : mean(arena->Take<T>(layout.features)),
        variance(arena->Take<T>(layout.features)),
        inverse(arena->Take<T>(layout.features)) {}

  void Measure(const Layout& layout, const T* x, double epsilon) {
    for (size_t feature = 0; feature < layout.features; ++feature) {
      const double center = Mean(layout, x, feature);
      const double spread = Variance(layout, x, feature, center);
      mean[feature] = static_cast<T>(center);
      variance[feature] = static_cast<T>(spread);
      inverse[feature] = static_cast<T>(1 / std::sqrt(spread + epsilon));
    }
  }

  T* mean;
  T* variance;
  T* inverse;
};

template <typename T>
void MoveRunning(double factor, const Layout& layout, const T* fresh, double correction,
                 const Target& running) {
  if (!running) return;
  Arena arena;
  T* scaled = arena.Take<T>(layout.features);
  for (size_t i = 0; i < layout.features; ++i) scaled[i] = fresh[i] * static_cast<T>(correction);
  Scatter(scaled, {factor, 1 - factor}, running);
}

template <typename T>
void Save(const T* values, const Target& target) {
  if (target) Scatter(values, {}, target);
}

// y = scale * (x - mean) * inverse + bias
template <typename T>
void Normalise(const Layout& layout, const Statistics<T>& statistics, const T* x, const T* scale,
               const T* bias, T* y) {
  for (size_t image = 0; image < layout.images; ++image) {
    for (size_t feature = 0; feature < layout.features; ++feature) {
      const size_t offset = layout.Offset(image, feature);
      const T mean = statistics.mean[feature];
      const T slope = scale[feature] * statistics.inverse[feature];
      const T shift = bias[feature];
      for (size_t i = offset; i < offset + layout.inner; ++i) y[i] = slope * (x[i] - mean) + shift;
    }
  }
}

template <typename T>
void WriteMask(size_t count, const T* y, uint8_t* mask) {
  std::memset(mask, 0, (count + 7) / 8);
  for (size_t i = 0; i < count; ++i) mask[i / 8] |= static_cast<uint8_t>((y[i] > 0 ? 1 : 0) << (i % 8));
}

template <typename T>
void Finish(const BatchNormForward& norm, const Layout& layout, const Statistics<T>& statistics, const T* x,
            Arena* arena) {
  const size_t count = norm.x.shape.Count();
  const T* scale = Values<T>(norm.scale, arena);
  const T* bias = Values<T>(norm.bias, arena);
  const T* z = Values<T>(norm.z, arena);
  const Results<T> out(norm.y, norm.blend, arena);
  Normalise(layout, statistics, x, scale, bias, out.data());
  if (z != nullptr) {
    for (size_t i = 0; i < count; ++i) out.data()[i] += z[i];
  }
  if (norm.params.activates) {
    if (norm.mask != nullptr) WriteMask(count, out.data(), norm.mask);
    Activate(norm.params.activation, count, out.data(), out.data());
  }
  out.Commit();
}

// dy where the activation passed it on, as a copy if that is not dy itself.
template <typename T>
const T* MaskedSlope(const BatchNormBackward& norm, size_t count, Arena* arena) {
  const T* dy = Values<T>(norm.dy, arena);
  if (!norm.params.activates || norm.params.activation.mode == CUDNN_ACTIVATION_IDENTITY) return dy;
  T* masked = arena->Take<T>(count);
  for (size_t i = 0; i < count; ++i) masked[i] = (norm.mask[i / 8] >> (i % 8)) & 1 ? dy[i] : T(0);
  return masked;
}

struct Slopes {
  double scale = 0;
  double bias = 0;
};

template <typename T>
Slopes ParameterSlopes(const Layout& layout, const Statistics<T>& statistics, const T* x, const T* dy,
                       size_t feature) {
  Sum scale;
  Sum bias;
  const double mean = static_cast<double>(statistics.mean[feature]);
  for (size_t image = 0; image < layout.images; ++image) {
    const size_t offset = layout.Offset(image, feature);
    bias.Add(layout.inner, [=](size_t i) { return static_cast<double>(dy[offset + i]); });
    scale.Add(layout.inner, [=](size_t i) {
      return static_cast<double>(dy[offset + i]) * (static_cast<double>(x[offset + i]) - mean);
    });
  }
  return {scale.Total() * static_cast<double>(statistics.inverse[feature]), bias.Total()};
}

// dx = scale * inverse * (dy - mean of dy - normalised x * mean of (dy * normalised x))
template <typename T>
void DataSlope(const Layout& layout, const Statistics<T>& statistics, const T* x, const T* dy, const T* scale,
               const Slopes& slopes, size_t feature, T* dx) {
  const double samples = static_cast<double>(layout.Samples());
  const T inverse = statistics.inverse[feature];
  const T mean = statistics.mean[feature];
  const T bias_part = static_cast<T>(slopes.bias / samples);
  const T scale_part = static_cast<T>(slopes.scale / samples) * inverse;
  const T factor = scale[feature] * inverse;
  for (size_t image = 0; image < layout.images; ++image) {
    const size_t offset = layout.Offset(image, feature);
    for (size_t i = offset; i < offset + layout.inner; ++i) {
      dx[i] = factor * (dy[i] - bias_part - (x[i] - mean) * scale_part);
    }
  }
}

template <typename T>
void BackwardAs(const BatchNormBackward& norm, Arena* arena) {
  const Layout layout(norm.params.per_channel != 0, norm.x.shape);
  const size_t count = norm.x.shape.Count();
  const T* x = Values<T>(norm.x, arena);
  const T* dy = MaskedSlope<T>(norm, count, arena);
  const T* scale = Values<T>(norm.scale, arena);
  Statistics<T> statistics(layout, arena);
  if (norm.saved_mean && norm.saved_inverse) {
    Gather(norm.saved_mean, statistics.mean);
    Gather(norm.saved_inverse, statistics.inverse);
  } else {
    statistics.Measure(layout, x, norm.params.epsilon);
  }
  T* dscale = arena->Take<T>(layout.features);
  T* dbias = arena->Take<T>(layout.features);
  const Results<T> dx(norm.dx, norm.data_blend, arena);
  // First, because dx may be where dy is.
  if (norm.dz) Scatter(dy, norm.data_blend, norm.dz);
  for (size_t feature = 0; feature < layout.features; ++feature) {
    const Slopes slopes = ParameterSlopes(layout, statistics, x, dy, feature);
    dscale[feature] = static_cast<T>(slopes.scale);
    dbias[feature] = static_cast<T>(slopes.bias);
    DataSlope(layout, statistics, x, dy, scale, slopes, feature, dx.data());
  }
  dx.Commit();
  Scatter(dscale, norm.param_blend, norm.dscale);
  Scatter(dbias, norm.param_blend, norm.dbias);
}

}  // namespace

Shape NormShape(bool per_channel, const Shape& x) {
  Shape shape = x;
  shape.type = x.type == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  shape.dim[0] = 1;
  for (int i = 2; per_channel && i < shape.rank; ++i) shape.dim[i] = 1;
  SetPackedStrides(false, &shape);
  return shape;
}

size_t MaskBytes(const Shape& x) { return (x.Count() + 63) / 64 * 8; }

void ForwardTraining(const BatchNormForward& norm, Arena* arena) {
  const Layout layout(norm.params.per_channel != 0, norm.x.shape);
  WithCompute(norm.x.shape.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* x = Values<T>(norm.x, arena);
    Statistics<T> statistics(layout, arena);
    statistics.Measure(layout, x, norm.params.epsilon);
    const double samples = static_cast<double>(layout.Samples());
    const double unbiased = samples > 1 ? samples / (samples - 1) : 1;
    MoveRunning(norm.params.factor, layout, statistics.mean, 1, norm.running_mean);
    MoveRunning(norm.params.factor, layout, statistics.variance, unbiased, norm.running_variance);
    Save(statistics.mean, norm.saved_mean);
    Save(statistics.inverse, norm.saved_inverse);
    Finish(norm, layout, statistics, x, arena);
  });
}

void ForwardInference(const BatchNormForward& norm, const Source& mean, const Source& variance,
                      Arena* arena) {
  const Layout layout(norm.params.per_channel != 0, norm.x.shape);
  WithCompute(norm.x.shape.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Statistics<T> statistics(layout, arena);
    Gather(mean, statistics.mean);
    Gather(variance, statistics.variance);
    for (size_t i = 0; i < layout.features; ++i) {
      statistics.inverse[i] =
          static_cast<T>(1 / std::sqrt(static_cast<double>(statistics.variance[i]) + norm.params.epsilon));
    }
    Finish(norm, layout, statistics, Values<T>(norm.x, arena), arena);
  });
}

void Backward(const BatchNormBackward& norm, Arena* arena) {
  WithCompute(norm.x.shape.type,
              [&](auto* type) { BackwardAs<std::remove_pointer_t<decltype(type)>>(norm, arena); });
}

}  // namespace softgpu::dnn
