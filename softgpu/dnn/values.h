// Elements of a tensor in order and without gaps, in the type that is computed with.
#ifndef SOFTGPU_DNN_VALUES_H_
#define SOFTGPU_DNN_VALUES_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "softgpu/dnn/tensor.h"

namespace softgpu::dnn {

// Space for intermediate values: a given region first, the heap when that is used up. Results never depend on
// which it is. Everything is freed with the arena.
class Arena {
 public:
  Arena() = default;
  Arena(void* region, size_t bytes)
      : next_(static_cast<char*>(region)), left_(region != nullptr ? bytes : 0) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Aligned to 64 bytes, content unspecified.
  void* Take(size_t bytes);

  template <typename T>
  T* Take(size_t count) {
    return static_cast<T*>(Take(count * sizeof(T)));
  }

 private:
  struct Free {
    void operator()(void* block) const;
  };

  char* next_ = nullptr;
  size_t left_ = 0;
  std::vector<std::unique_ptr<void, Free>> heap_;
};

// out[i] = the i-th element.
template <typename T>
void Gather(const Source& source, T* out);

// The i-th element = alpha * in[i] + beta * it.
template <typename T>
void Scatter(const T* in, const Blend& blend, const Target& target);

// The values of a tensor: its own memory where that is possible.
template <typename T>
const T* Values(const Source& source, Arena* arena) {
  if (!source) return nullptr;
  if (source.shape.type == kTypeOf<T> && source.shape.Packed()) return static_cast<const T*>(source.data);
  T* copy = arena->Take<T>(source.shape.Count());
  Gather(source, copy);
  return copy;
}

// Where results are to be put before Commit() blends them into the target: the target's own memory where that
// is possible. Whatever the operation reads must not be needed after the result in the same place was put.
template <typename T>
class Results {
 public:
  Results(const Target& target, const Blend& blend, Arena* arena)
      : target_(target), blend_(blend), direct_(Direct(target, blend)) {
    data_ = direct_ ? static_cast<T*>(target.data) : arena->Take<T>(target.shape.Count());
  }

  T* data() const { return data_; }

  void Commit() const {
    if (!direct_) Scatter(data_, blend_, target_);
  }

 private:
  static bool Direct(const Target& target, const Blend& blend) {
    return blend.alpha == 1 && blend.beta == 0 && target.shape.type == kTypeOf<T> && target.shape.Packed();
  }

  const Target target_;
  const Blend blend_;
  const bool direct_;
  T* data_;
};

// Calls `body` with a null pointer to the type that elements of `type` are computed with.
template <typename Body>
void WithCompute(int type, Body&& body) {
  if (type == CUDNN_DATA_DOUBLE) return body(static_cast<double*>(nullptr));
  return body(static_cast<float*>(nullptr));
}

}  // namespace softgpu::dnn

#endif  // SOFTGPU_DNN_VALUES_H_
