// Tensors as the library's bodies see them: a shape and where its elements lie.
#ifndef SOFTGPU_DNN_TENSOR_H_
#define SOFTGPU_DNN_TENSOR_H_

#include <cstddef>
#include <cstdint>

#include "softgpu/dnn/element.h"

namespace softgpu::dnn {

// Dimensions from the outermost (batch, channel, then space), strides in elements. Part of kernel arguments.
struct Shape {
  int32_t type = 0;  // cudnnDataType_t
  int32_t rank = 0;  // 0: no tensor
  int32_t dim[CUDNN_DIM_MAX] = {};
  int32_t stride[CUDNN_DIM_MAX] = {};

  size_t Count() const {
    size_t count = rank > 0 ? 1 : 0;
    for (int i = 0; i < rank; ++i) count *= static_cast<size_t>(dim[i]);
    return count;
  }

  // Elements from the first to the last one, that included.
  size_t Span() const {
    size_t last = 0;
    for (int i = 0; i < rank; ++i) last += static_cast<size_t>(dim[i] - 1) * static_cast<size_t>(stride[i]);
    return rank > 0 ? last + 1 : 0;
  }
  size_t Bytes() const { return Span() * SizeOf(type); }

  // Elements in order of the dimensions, without gaps.
  bool Packed() const {
    size_t expected = 1;
    for (int i = rank - 1; i >= 0; --i) {
      if (dim[i] != 1 && static_cast<size_t>(stride[i]) != expected) return false;
      expected *= static_cast<size_t>(dim[i]);
    }
    return rank > 0;
  }

  // Elements of one channel of one image.
  size_t Space() const {
    size_t count = 1;
    for (int i = 2; i < rank; ++i) count *= static_cast<size_t>(dim[i]);
    return count;
  }
};

inline bool SameDims(const Shape& a, const Shape& b) {
  if (a.rank != b.rank) return false;
  for (int i = 0; i < a.rank; ++i) {
    if (a.dim[i] != b.dim[i]) return false;
  }
  return true;
}

// Gives `shape` the strides of packed elements, the channel innermost if so told.
inline void SetPackedStrides(bool channels_last, Shape* shape) {
  int32_t stride = 1;
  if (channels_last && shape->rank > 1) {
    shape->stride[1] = 1;
    stride = shape->dim[1];
  }
  for (int i = shape->rank - 1; i >= 0; --i) {
    if (channels_last && i == 1) continue;
    shape->stride[i] = stride;
    stride *= shape->dim[i];
  }
}

struct Source {
  Shape shape;
  const void* data = nullptr;

  explicit operator bool() const { return data != nullptr; }
};

struct Target {
  Shape shape;
  void* data = nullptr;

  explicit operator bool() const { return data != nullptr; }
  Source AsSource() const { return {shape, data}; }
};

// target = alpha * result + beta * target; with beta 0 the target is not read.
struct Blend {
  double alpha = 1;
  double beta = 0;
};

}  // namespace softgpu::dnn

#endif  // SOFTGPU_DNN_TENSOR_H_
