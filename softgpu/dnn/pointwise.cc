#include "softgpu/dnn/pointwise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace softgpu::dnn {
namespace {

// Goes over the elements of `whole` in order and says where the element of a packed `part` is that belongs to
// each.
class BroadcastIndex {
 public:
  BroadcastIndex(const Shape& part, const Shape& whole) : rank_(whole.rank) {
    size_t stride = 1;
    for (int i = rank_ - 1; i >= 0; --i) {
      dim_[i] = whole.dim[i];
      stride_[i] = part.dim[i] == 1 ? 0 : stride;
      stride *= static_cast<size_t>(part.dim[i]);
    }
  }

  size_t at() const { return at_; }

  void Next() {
    for (int i = rank_ - 1; i >= 0; --i) {
      at_ += stride_[i];
      if (++place_[i] < dim_[i]) return;
      at_ -= stride_[i] * static_cast<size_t>(dim_[i]);
      place_[i] = 0;
    }
  }

 private:
  int rank_;
  int32_t dim_[CUDNN_DIM_MAX] = {};
  int32_t place_[CUDNN_DIM_MAX] = {};
  size_t stride_[CUDNN_DIM_MAX] = {};
  size_t at_ = 0;
};

// The values of `part` as if it had the shape of `whole`.
template <typename T>
const T* Repeated(const Source& part, const Shape& whole, Arena* arena) {
  const T* values = Values<T>(part, arena);
  if (part.shape.Count() == whole.Count()) return values;
  T* repeated = arena->Take<T>(whole.Count());
  BroadcastIndex index(part.shape, whole);
  for (size_t i = 0; i < whole.Count(); ++i, index.Next()) repeated[i] = values[index.at()];
  return repeated;
}

template <typename T>
T Smaller(T a, T b, bool propagate_nan) {
  if (a != a) return propagate_nan ? a : b;
  if (b != b) return propagate_nan ? b : a;
  return b < a ? b : a;
}

template <typename T>
T Larger(T a, T b, bool propagate_nan) {
  if (a != a) return propagate_nan ? a : b;
  if (b != b) return propagate_nan ? b : a;
  return b > a ? b : a;
}

template <typename T>
T Apply(const OpParams& params, T a, T b) {
  switch (params.op) {
    case CUDNN_OP_TENSOR_ADD:
      return a + b;
    case CUDNN_OP_TENSOR_MUL:
      return a * b;
    case CUDNN_OP_TENSOR_MIN:
      return Smaller(a, b, params.propagate_nan != 0);
    case CUDNN_OP_TENSOR_MAX:
      return Larger(a, b, params.propagate_nan != 0);
    case CUDNN_OP_TENSOR_SQRT:
      return std::sqrt(a);
    default:
      return T(1) - a;
  }
}

// What is known of one reduction so far.
template <typename T>
struct Reduction {
  T value = 0;
  size_t seen = 0;
  uint32_t index = 0;
};

// The next element of an extremum: `wins` says whether it takes the place of the present one.
template <typename T>
void TakeExtremum(T element, bool propagate_nan, bool largest, Reduction<T>* reduction) {
  const T held = reduction->value;
  bool wins = largest ? element > held : element < held;
  if (element != element) wins = propagate_nan && held == held;
  if (held != held && element == element) wins = !propagate_nan;
  if (reduction->seen > 0 && !wins) return;
  reduction->value = element;
  reduction->index = static_cast<uint32_t>(reduction->seen);
}

template <typename T>
void Take(const ReduceParams& params, T element, Reduction<T>* reduction) {
  const bool propagate_nan = params.propagate_nan != 0;
  T& value = reduction->value;
  switch (params.op) {
    case CUDNN_REDUCE_TENSOR_MUL:
      value = reduction->seen > 0 ? value * element : element;
      break;
    case CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS:
      value = (reduction->seen > 0 ? value : T(1)) * (element == 0 ? T(1) : element);
      break;
    case CUDNN_REDUCE_TENSOR_MIN:
      TakeExtremum(element, propagate_nan, false, reduction);
      break;
    case CUDNN_REDUCE_TENSOR_MAX:
      TakeExtremum(element, propagate_nan, true, reduction);
      break;
    case CUDNN_REDUCE_TENSOR_AMAX:
      TakeExtremum(std::abs(element), propagate_nan, true, reduction);
      break;
    case CUDNN_REDUCE_TENSOR_NORM1:
      value += std::abs(element);
      break;
    case CUDNN_REDUCE_TENSOR_NORM2:
      value += element * element;
      break;
    default:
      value += element;
  }
  ++reduction->seen;
}

template <typename T>
T Finished(const ReduceParams& params, const Reduction<T>& reduction) {
  if (params.op == CUDNN_REDUCE_TENSOR_AVG) return reduction.value / static_cast<T>(reduction.seen);
  if (params.op == CUDNN_REDUCE_TENSOR_NORM2) return std::sqrt(reduction.value);
  return reduction.value;
}

}  // namespace

bool Broadcasts(const Shape& part, const Shape& whole) {
  if (part.rank != whole.rank) return false;
  for (int i = 0; i < part.rank; ++i) {
    if (part.dim[i] != whole.dim[i] && part.dim[i] != 1) return false;
  }
  return true;
}

void AddTensor(const Blend& blend, const Source& x, const Target& y, Arena* arena) {
  WithCompute(y.shape.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    Scatter(Repeated<T>(x, y.shape, arena), blend, y);
  });
}

void SetTensor(const Target& y, const void* value) {
  const size_t size = SizeOf(y.shape.type);
  Shape part = y.shape;
  // An element's place in the tensor is not that of packed ones.
  int32_t at[CUDNN_DIM_MAX] = {};
  size_t offset = 0;
  for (size_t i = part.Count(); i > 0; --i) {
    std::memcpy(static_cast<char*>(y.data) + offset * size, value, size);
    for (int axis = part.rank - 1; axis >= 0; --axis) {
      offset += static_cast<size_t>(part.stride[axis]);
      if (++at[axis] < part.dim[axis]) break;
      offset -= static_cast<size_t>(part.stride[axis]) * static_cast<size_t>(part.dim[axis]);
      at[axis] = 0;
    }
  }
}

void OpTensor(const OpParams& params, double beta, const Source& a, const Source& b, const Target& c,
              Arena* arena) {
  WithCompute(c.shape.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* left = Repeated<T>(a, c.shape, arena);
    const T* right = b ? Repeated<T>(b, c.shape, arena) : nullptr;
    const T alpha1 = static_cast<T>(params.alpha1);
    const T alpha2 = static_cast<T>(params.alpha2);
    const Results<T> out(c, {1, beta}, arena);
    for (size_t i = 0; i < c.shape.Count(); ++i) {
      out.data()[i] = Apply(params, alpha1 * left[i], right != nullptr ? alpha2 * right[i] : T(0));
    }
    out.Commit();
  });
}

void ReduceTensor(const ReduceParams& params, const Blend& blend, const Source& a, const Target& c,
                  uint32_t* indices, Arena* arena) {
  WithCompute(a.shape.type, [&](auto* type) {
    using T = std::remove_pointer_t<decltype(type)>;
    const T* values = Values<T>(a, arena);
    const size_t count = c.shape.Count();
    auto* reductions = arena->Take<Reduction<T>>(count);
    std::fill_n(reductions, count, Reduction<T>{});
    BroadcastIndex index(c.shape, a.shape);
    for (size_t i = 0; i < a.shape.Count(); ++i, index.Next())
      Take(params, values[i], &reductions[index.at()]);
    T* out = arena->Take<T>(count);
    for (size_t i = 0; i < count; ++i) {
      out[i] = Finished(params, reductions[i]);
      if (indices != nullptr) indices[i] = reductions[i].index;
    }
    Scatter(out, blend, c);
  });
}

}  // namespace softgpu::dnn
