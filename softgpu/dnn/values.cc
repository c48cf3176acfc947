#include "softgpu/dnn/values.h"

#include <cstdlib>
#include <new>
#include <type_traits>

namespace softgpu::dnn {
namespace {

constexpr size_t kAlignment = 64;

// Calls row(offset of the row's first element) for each row along the innermost dimension, in order.
template <typename Row>
void ForEachRow(const Shape& shape, Row&& row) {
  const int inner = shape.rank - 1;
  int32_t at[CUDNN_DIM_MAX] = {};
  size_t offset = 0;
  while (true) {
    row(offset);
    int axis = inner - 1;
    for (; axis >= 0; --axis) {
      offset += static_cast<size_t>(shape.stride[axis]);
      if (++at[axis] < shape.dim[axis]) break;
      offset -= static_cast<size_t>(shape.dim[axis]) * static_cast<size_t>(shape.stride[axis]);
      at[axis] = 0;
    }
    if (axis < 0) return;
  }
}

// The same elements in the same order with as few dimensions as can be: rows get long.
Shape Collapsed(const Shape& shape) {
  Shape out;
  out.type = shape.type;
  for (int i = 0; i < shape.rank; ++i) {
    if (shape.dim[i] == 1) continue;
    if (out.rank > 0) {
      const int last = out.rank - 1;
      const int64_t needed = static_cast<int64_t>(shape.dim[i]) * shape.stride[i];
      if (out.stride[last] == needed) {
        out.dim[last] *= shape.dim[i];
        out.stride[last] = shape.stride[i];
        continue;
      }
    }
    out.dim[out.rank] = shape.dim[i];
    out.stride[out.rank++] = shape.stride[i];
  }
  if (out.rank == 0) {
    out.rank = 1;
    out.dim[0] = out.stride[0] = 1;
  }
  return out;
}

template <typename Element, typename T>
void GatherAs(const Shape& shape, const Element* data, T* out) {
  const size_t length = static_cast<size_t>(shape.dim[shape.rank - 1]);
  const size_t stride = static_cast<size_t>(shape.stride[shape.rank - 1]);
  ForEachRow(shape, [&](size_t offset) {
    const Element* from = data + offset;
    if (stride == 1) {
      for (size_t i = 0; i < length; ++i) out[i] = Load<T>(from[i]);
    } else {
      for (size_t i = 0; i < length; ++i) out[i] = Load<T>(from[i * stride]);
    }
    out += length;
  });
}

template <typename Element, typename T>
void ScatterAs(const Shape& shape, const T* in, T alpha, T beta, Element* data) {
  const size_t length = static_cast<size_t>(shape.dim[shape.rank - 1]);
  const size_t stride = static_cast<size_t>(shape.stride[shape.rank - 1]);
  ForEachRow(shape, [&](size_t offset) {
    Element* to = data + offset;
    if (beta == 0) {
      for (size_t i = 0; i < length; ++i) Store(alpha * in[i], to + i * stride);
    } else {
      for (size_t i = 0; i < length; ++i) {
        Store(alpha * in[i] + beta * Load<T>(to[i * stride]), to + i * stride);
      }
    }
    in += length;
  });
}

}  // namespace

void Arena::Free::operator()(void* block) const { std::free(block); }

void* Arena::Take(size_t bytes) {
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment + (bytes == 0 ? kAlignment : 0);
  const size_t skip = (kAlignment - reinterpret_cast<uintptr_t>(next_) % kAlignment) % kAlignment;
  if (left_ >= skip && left_ - skip >= rounded) {
    void* block = next_ + skip;
    next_ += skip + rounded;
    left_ -= skip + rounded;
    return block;
  }
  void* block = std::aligned_alloc(kAlignment, rounded);
  if (block == nullptr) std::abort();
  heap_.emplace_back(block);
  return block;
}

template <typename T>
void Gather(const Source& source, T* out) {
  const Shape shape = Collapsed(source.shape);
  WithElement(shape.type, [&](auto* element) {
    using Element = std::remove_pointer_t<decltype(element)>;
    GatherAs(shape, static_cast<const Element*>(source.data), out);
  });
}

template <typename T>
void Scatter(const T* in, const Blend& blend, const Target& target) {
  const Shape shape = Collapsed(target.shape);
  WithElement(shape.type, [&](auto* element) {
    using Element = std::remove_pointer_t<decltype(element)>;
    ScatterAs(shape, in, static_cast<T>(blend.alpha), static_cast<T>(blend.beta),
              static_cast<Element*>(target.data));
  });
}

template void Gather(const Source&, float*);
template void Gather(const Source&, double*);
template void Scatter(const float*, const Blend&, const Target&);
template void Scatter(const double*, const Blend&, const Target&);

}  // namespace softgpu::dnn
