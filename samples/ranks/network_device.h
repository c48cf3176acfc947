// The functions of network.h on a stream of the current device; all pointers are to its memory.
#pragma once

#include <cuda_runtime.h>

#include "../common/saved_state.h"
#include "network.h"

namespace ranks {
namespace device {

void Forward(const Shape& shape, const float* x, const float* w, bool rectify, float* y, cudaStream_t stream);
void BackwardInput(const Shape& shape, const float* dy, const float* w, const float* x, bool mask, float* dx,
                   cudaStream_t stream);
void AddGradient(const Shape& shape, const float* dy, const float* x, int64_t* gradient, cudaStream_t stream);
void AddLoss(int batch, int outputs, const float* y, const float* targets, float* dy, int64_t* loss,
             cudaStream_t stream);
void Update(const Step& step, const int64_t* gradient, float* w, float* velocity, size_t count,
            cudaStream_t stream);
void ForwardFixed(const Shape& shape, const float* x, const float* w, int64_t* sum, cudaStream_t stream);
void BackwardInputFixed(const Shape& shape, const float* dy, const float* w, int64_t* sum,
                        cudaStream_t stream);
void AddFixed(const float* x, const int64_t* sum, float* y, size_t count, cudaStream_t stream);
void MakeTable(uint64_t seed, int rows, int inputs, int outputs, float* table, cudaStream_t stream);
void Take(const float* table, int rows, const Shape& shape, uint64_t seed, int step, int first, float* x,
          float* targets, cudaStream_t stream);

// Memory of the current device, zeroed; freed with the object, whatever device is current then.
template <typename T>
class Array {
 public:
  Array() = default;
  explicit Array(size_t count);
  Array(Array&& other) noexcept : data_(other.data_), count_(other.count_) { other.data_ = nullptr; }
  Array& operator=(Array&& other) noexcept {
    T* const data = data_;
    data_ = other.data_;
    count_ = other.count_;
    other.data_ = data;
    return *this;
  }
  ~Array();
  T* get() const { return data_; }
  size_t count() const { return count_; }
  void Set(const std::vector<T>& values);
  std::vector<T> Get() const;
  // Its elements are written to the file, or read from it.
  void Exchange(sample::SavedState* state) {
    std::vector<T> values = Get();
    state->Values(&values);
    Set(values);
  }

 private:
  T* data_ = nullptr;
  size_t count_ = 0;
};

}  // namespace device
}  // namespace ranks
