// Vectors of the BLAS: elements a fixed increment apart, last to first where it is negative.
#ifndef SOFTGPU_BLAS_VECTOR_H_
#define SOFTGPU_BLAS_VECTOR_H_

#include <cstdint>

#include "softgpu/blas/handle.h"
#include "softgpu/blas/types.h"

namespace softgpu::blas {

// As a routine gets it; the pointer is the device's.
struct Vector {
  uint64_t address = 0;
  int64_t n = 0, increment = 1;

  int64_t span() const { return n == 0 ? 0 : (n - 1) * (increment < 0 ? -increment : increment) + 1; }
  int64_t first() const { return increment < 0 ? (1 - n) * increment : 0; }
};
inline Vector VectorOf(const void* pointer, int64_t n, int64_t increment) {
  return {AddressOf(pointer), n, increment};
}

// As a body sees it.
template <typename Value>
class Lane {
 public:
  // False after a fault.
  bool Open(native::Device& device, const Vector& vector) {
    auto bytes = static_cast<size_t>(vector.span()) * sizeof(Value);
    if constexpr (std::is_const_v<Value>) {
      data_ = static_cast<Value*>(device.Read(vector.address, bytes));
    } else {
      data_ = static_cast<Value*>(device.Write(vector.address, bytes));
    }
    if (data_ == nullptr) return false;
    data_ += vector.first();
    increment_ = vector.increment;
    return true;
  }
  Value& operator[](int64_t i) const { return data_[i * increment_]; }

 private:
  Value* data_ = nullptr;
  int64_t increment_ = 1;
};

// The same for a type known when it runs.
class AnyLane {
 public:
  bool Open(native::Device& device, const Vector& vector, cudaDataType type, bool write) {
    auto bytes = static_cast<size_t>(vector.span()) * SizeOf(type);
    data_ =
        write ? device.Write(vector.address, bytes) : const_cast<void*>(device.Read(vector.address, bytes));
    type_ = type;
    first_ = vector.first();
    increment_ = vector.increment;
    return data_ != nullptr;
  }
  Complex64 Get(int64_t i) const { return LoadElement(type_, data_, first_ + i * increment_); }
  void Set(int64_t i, Complex64 value) const { StoreElement(type_, data_, first_ + i * increment_, value); }

 private:
  void* data_ = nullptr;
  cudaDataType type_ = CUDA_R_32F;
  int64_t first_ = 0, increment_ = 1;
};

// Reads a scalar of the value's own type; false after a fault.
template <typename Value>
bool Load(native::Device& device, const Scalar& scalar, Value* value) {
  const void* at = scalar.bits;
  if (scalar.address != 0) at = device.Read(scalar.address, sizeof *value);
  if (at != nullptr) std::memcpy(static_cast<void*>(value), at, sizeof *value);
  return at != nullptr;
}

}  // namespace softgpu::blas

#endif  // SOFTGPU_BLAS_VECTOR_H_
