#include <algorithm>
#include <cmath>
#include <type_traits>

#include "softgpu/dnn/norm.h"

namespace softgpu::dnn {
namespace {

struct Geometry {
  Geometry(const LrnParams& params, const Shape& shape)
      : images(static_cast<size_t>(shape.dim[0])),
        channels(static_cast<size_t>(shape.dim[1])),
        space(shape.Space()),
        behind((params.window - 1) / 2),
        ahead(params.window - behind - 1) {}

  size_t Begin(size_t channel) const { return channel > behind ? channel - behind : 0; }
  size_t End(size_t channel) const { return std::min(channel + ahead + 1, channels); }
  // The channels whose windows cover this one.
  size_t CoverBegin(size_t channel) const { return channel > ahead ? channel - ahead : 0; }
  size_t CoverEnd(size_t channel) const { return std::min(channel + behind + 1, channels); }

  size_t images;
  size_t channels;
  size_t space;
  size_t behind;
  size_t ahead;
};

// What x[channel] is divided by, before it is raised to the power of beta. `x` is a column of one image.
template <typename T>
T Base(const LrnParams& params, const Geometry& g, const T* x, size_t channel) {
  T sum = 0;
  for (size_t c = g.Begin(channel); c < g.End(channel); ++c) sum += x[c * g.space] * x[c * g.space];
  return static_cast<T>(params.k) + static_cast<T>(params.alpha / params.window) * sum;
}

template <typename T, typename Body>
void ForEachColumn(const Geometry& g, Body&& body) {
  for (size_t image = 0; image < g.images; ++image) {
    for (size_t at = 0; at < g.space; ++at) body(image * g.channels * g.space + at);
  }
}

template <typename T>
void SlopeColumn(const LrnParams& params, const Geometry& g, const T* x, const T* y, const T* dy, T* base,
                 T* dx) {
  const T beta = static_cast<T>(params.beta);
  const T factor = static_cast<T>(2 * params.alpha * params.beta / params.window);
  for (size_t c = 0; c < g.channels; ++c) base[c] = Base(params, g, x, c);
  for (size_t c = 0; c < g.channels; ++c) {
    T sum = 0;
    for (size_t o = g.CoverBegin(c); o < g.CoverEnd(c); ++o)
      sum += dy[o * g.space] * y[o * g.space] / base[o];
    dx[c * g.space] = dy[c * g.space] * std::pow(base[c], -beta) - factor * x[c * g.space] * sum;
  }
}

}  // namespace

void LrnForward(const LrnParams& params, const Blend& blend, const Source& x, const Target& y, Arena* arena) {
  const Geometry g(params, x.shape);
  WithCompute(x.shape.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* in = Values<T>(x, arena);
    T* out = arena->Take<T>(x.shape.Count());
    ForEachColumn<T>(g, [&](size_t first) {
      for (size_t c = 0; c < g.channels; ++c) {
        const T base = Base(params, g, in + first, c);
        out[first + c * g.space] = in[first + c * g.space] * std::pow(base, static_cast<T>(-params.beta));
      }
    });
    Scatter(out, blend, y);
  });
}

void LrnBackward(const LrnParams& params, const Blend& blend, const Source& y, const Source& dy,
                 const Source& x, const Target& dx, Arena* arena) {
  const Geometry g(params, x.shape);
  WithCompute(x.shape.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* in = Values<T>(x, arena);
    const T* value = Values<T>(y, arena);
    const T* slope = Values<T>(dy, arena);
    T* base = arena->Take<T>(g.channels);
    T* out = arena->Take<T>(x.shape.Count());
    ForEachColumn<T>(g, [&](size_t first) {
      SlopeColumn(params, g, in + first, value + first, slope + first, base, out + first);
    });
    Scatter(out, blend, dx);
  });
}

}  // namespace softgpu::dnn
