#include "softgpu/dnn/pooling.h"

#include <algorithm>
#include <type_traits>

namespace softgpu::dnn {
namespace {

// Sizes with three dimensions of space, missing ones being 1.
struct Geometry {
  Geometry(const PoolingParams& params, const Shape& x, const Shape& y)
      : planes(static_cast<size_t>(x.dim[0]) * static_cast<size_t>(x.dim[1])) {
    for (int i = 0; i < params.space; ++i) {
      const int to = kMaxPoolingSpace - params.space + i;
      in[to] = x.dim[2 + i];
      out[to] = y.dim[2 + i];
      window[to] = params.window[i];
      pad[to] = params.pad[i];
      stride[to] = params.stride[i];
    }
  }

  size_t InSpace() const { return static_cast<size_t>(in[0]) * in[1] * in[2]; }
  size_t OutSpace() const { return static_cast<size_t>(out[0]) * out[1] * out[2]; }
  size_t Window() const { return static_cast<size_t>(window[0]) * window[1] * window[2]; }

  size_t planes;
  int in[kMaxPoolingSpace] = {1, 1, 1};
  int out[kMaxPoolingSpace] = {1, 1, 1};
  int window[kMaxPoolingSpace] = {1, 1, 1};
  int pad[kMaxPoolingSpace] = {};
  int stride[kMaxPoolingSpace] = {1, 1, 1};
};

// The part of an output's window that lies in the plane: [begin, end) in each dimension.
struct Box {
  int begin[kMaxPoolingSpace];
  int end[kMaxPoolingSpace];

  size_t Size() const {
    size_t size = 1;
    for (int i = 0; i < kMaxPoolingSpace; ++i) size *= static_cast<size_t>(std::max(end[i] - begin[i], 0));
    return size;
  }
};

// Calls body(offset in the plane) for each element of the box in order.
template <typename Body>
void ForEachInside(const Geometry& g, const Box& box, Body&& body) {
  for (int d = box.begin[0]; d < box.end[0]; ++d) {
    for (int h = box.begin[1]; h < box.end[1]; ++h) {
      const size_t row = (static_cast<size_t>(d) * g.in[1] + h) * g.in[2];
      for (int w = box.begin[2]; w < box.end[2]; ++w) body(row + w);
    }
  }
}

void Bound(const Geometry& g, int axis, int at, Box* box) {
  const int begin = at * g.stride[axis] - g.pad[axis];
  box->begin[axis] = std::max(begin, 0);
  box->end[axis] = std::min(begin + g.window[axis], g.in[axis]);
}

// Calls body(box) for each output of a plane in order.
template <typename Body>
void ForEachOutput(const Geometry& g, Body&& body) {
  Box box;
  for (int d = 0; d < g.out[0]; ++d) {
    Bound(g, 0, d, &box);
    for (int h = 0; h < g.out[1]; ++h) {
      Bound(g, 1, h, &box);
      for (int w = 0; w < g.out[2]; ++w) {
        Bound(g, 2, w, &box);
        body(box);
      }
    }
  }
}

bool IsMax(const PoolingParams& params) {
  return params.mode == CUDNN_POOLING_MAX || params.mode == CUDNN_POOLING_MAX_DETERMINISTIC;
}

// Where the maximum of the box is; the box is not empty. A NaN is larger than all where they are propagated,
// else smaller.
template <typename T>
size_t FindMax(const Geometry& g, const Box& box, bool propagate_nan, const T* plane) {
  const size_t none = g.InSpace();
  size_t best = none;
  ForEachInside(g, box, [&](size_t at) {
    if (best == none) {
      best = at;
    } else if (propagate_nan
                   ? plane[at] > plane[best] || (plane[at] != plane[at] && plane[best] == plane[best])
                   : plane[at] > plane[best] || plane[best] != plane[best]) {
      best = at;
    }
  });
  return best;
}

size_t Divisor(const PoolingParams& params, const Geometry& g, const Box& box) {
  return params.mode == CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING ? g.Window() : box.Size();
}

template <typename T>
T Pool(const PoolingParams& params, const Geometry& g, const Box& box, const T* plane) {
  if (box.Size() == 0) return T(0);
  if (IsMax(params)) return plane[FindMax(g, box, params.propagate_nan != 0, plane)];
  T sum = 0;
  ForEachInside(g, box, [&](size_t at) { sum += plane[at]; });
  return sum / static_cast<T>(Divisor(params, g, box));
}

template <typename T>
void Spread(const PoolingParams& params, const Geometry& g, const Box& box, const T* x, T dy, T* dx) {
  if (box.Size() == 0) return;
  if (IsMax(params)) {
    dx[FindMax(g, box, params.propagate_nan != 0, x)] += dy;
    return;
  }
  const T share = dy / static_cast<T>(Divisor(params, g, box));
  ForEachInside(g, box, [&](size_t at) { dx[at] += share; });
}

template <typename T>
void Forward(const PoolingParams& params, const Geometry& g, const Blend& blend, const Source& x,
             const Target& y, Arena* arena) {
  const T* in = Values<T>(x, arena);
  const Results<T> out(y, blend, arena);
  T* to = out.data();
  for (size_t plane = 0; plane < g.planes; ++plane, in += g.InSpace()) {
    ForEachOutput(g, [&](const Box& box) { *to++ = Pool(params, g, box, in); });
  }
  out.Commit();
}

template <typename T>
void Backward(const PoolingParams& params, const Geometry& g, const Blend& blend, const Source& dy,
              const Source& x, const Target& dx, Arena* arena) {
  const T* in = Values<T>(x, arena);
  const T* slope = Values<T>(dy, arena);
  const Results<T> out(dx, blend, arena);
  std::fill_n(out.data(), dx.shape.Count(), T(0));
  for (size_t plane = 0; plane < g.planes; ++plane) {
    const size_t offset = plane * g.InSpace();
    ForEachOutput(
        g, [&](const Box& box) { Spread(params, g, box, in + offset, *slope++, out.data() + offset); });
  }
  out.Commit();
}

}  // namespace

bool PooledShape(const PoolingParams& params, const Shape& x, Shape* y) {
  if (params.space < 1 || x.rank != params.space + 2) return false;
  *y = x;
  for (int i = 0; i < params.space; ++i) {
    const int64_t room = x.dim[2 + i] + 2 * static_cast<int64_t>(params.pad[i]) - params.window[i];
    if (room < 0) return false;
    y->dim[2 + i] = static_cast<int32_t>(1 + room / params.stride[i]);
  }
  SetPackedStrides(false, y);
  return true;
}

void PoolingForward(const PoolingParams& params, const Blend& blend, const Source& x, const Target& y,
                    Arena* arena) {
  const Geometry geometry(params, x.shape, y.shape);
  WithCompute(x.shape.type, [&](auto* type) {
    Forward<std::remove_pointer_t<decltype(type)>>(params, geometry, blend, x, y, arena);
  });
}

void PoolingBackward(const PoolingParams& params, const Blend& blend, const Source& dy, const Source& x,
                     const Target& dx, Arena* arena) {
  const Geometry geometry(params, dx.shape, dy.shape);
  WithCompute(dy.shape.type, [&](auto* type) {
    Backward<std::remove_pointer_t<decltype(type)>>(params, geometry, blend, dy, x, dx, arena);
  });
}

}  // namespace softgpu::dnn
