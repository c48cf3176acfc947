// An array in device memory, freed with its owner.
#pragma once

#include <stddef.h>

#include <utility>

#include "../common/cuda_check.h"

namespace gpt {

template <typename T>
class DeviceArray {
 public:
  // All bytes zero.
  explicit DeviceArray(size_t count) : count_(count) {
    CUDA_CHECK(cudaMalloc(&data_, count * sizeof(T)));
    CUDA_CHECK(cudaMemset(data_, 0, count * sizeof(T)));
  }
  DeviceArray(DeviceArray&& other) noexcept
      : count_(std::exchange(other.count_, 0)), data_(std::exchange(other.data_, nullptr)) {}
  DeviceArray& operator=(DeviceArray&&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  T* data() const { return data_; }
  size_t count() const { return count_; }
  size_t bytes() const { return count_ * sizeof(T); }

 private:
  size_t count_;
  T* data_ = nullptr;
};

}  // namespace gpt
