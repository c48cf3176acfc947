// For tests of the libraries: a daemon, device memory, numbers, and products in double by the definition.
#ifndef SOFTGPU_BLAS_BLAS_TESTING_H_
#define SOFTGPU_BLAS_BLAS_TESTING_H_

#include <cublas_v2.h>
#include <cuda.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

#include "softgpu/blas/types.h"
#include "softgpu/driver/memory_testing.h"

namespace softgpu::blas {

#define OK(call) ASSERT_EQ(call, CUBLAS_STATUS_SUCCESS)
#define EXPECT_OK(call) EXPECT_EQ(call, CUBLAS_STATUS_SUCCESS)

// Device memory of `bytes` bytes that begins `offset` bytes behind an aligned address, between guards that
// must stay as they are.
class Buffer {
 public:
  explicit Buffer(size_t bytes, size_t offset = 0);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  template <typename T = void>
  T* at(size_t byte = 0) const {
    return reinterpret_cast<T*>(base_ + kGuard + offset_ + byte);
  }
  size_t bytes() const { return bytes_; }
  void Write(const void* from) const;
  void Read(void* to) const;  // after the device is idle

 private:
  static constexpr size_t kGuard = 256;
  CUdeviceptr base_ = 0;
  size_t bytes_, offset_;
};

// A vector or matrix of any type, its elements also known as complex doubles.
class Numbers {
 public:
  // Rounded to the type. Small integers for integer types.
  Numbers(cudaDataType type, size_t count, std::mt19937* random, size_t offset = 0);
  Numbers(cudaDataType type, const std::vector<Complex64>& values, size_t offset = 0);

  template <typename T = void>
  T* at(int64_t element = 0) const {
    return buffer_.at<T>(static_cast<size_t>(element) * SizeOf(type_));
  }
  // As they were made.
  const std::vector<Complex64>& was() const { return was_; }
  // What the device's memory holds now. Waits for the device.
  std::vector<Complex64> Now() const;
  std::vector<unsigned char> Bytes() const;
  cudaDataType type() const { return type_; }

 private:
  void Upload();
  cudaDataType type_;
  std::vector<Complex64> was_;
  Buffer buffer_;
};

// A scalar of the type, in host memory.
class ScalarValue {
 public:
  ScalarValue(cudaDataType type, Complex64 value) : value_(value) { StoreElement(type, bytes_, 0, value); }
  const void* get() const { return bytes_; }
  Complex64 value() const { return value_; }

 private:
  Complex64 value_;
  alignas(16) unsigned char bytes_[16] = {};
};

// A column-major matrix of known numbers as op() makes it.
struct Reference {
  const std::vector<Complex64>* values;
  int64_t ld;
  cublasOperation_t op = CUBLAS_OP_N;
  int64_t first = 0;
  Complex64 at(int64_t i, int64_t j) const {
    if (op == CUBLAS_OP_N) return (*values)[static_cast<size_t>(first + i + j * ld)];
    Complex64 value = (*values)[static_cast<size_t>(first + j + i * ld)];
    return op == CUBLAS_OP_C ? std::conj(value) : value;
  }
};

// One sum of products, and the sum of their magnitudes, of which rounding errors are a small part.
struct Sum {
  Complex64 value = 0;
  double magnitude = 0;
  void Add(Complex64 term) {
    value += term;
    magnitude += std::abs(term);
  }
};

// The rounding unit of a type: half the distance from 1 to the next number. 0 for integers.
double UnitOf(cudaDataType type);

// `got` is within rounding of `sum`: `terms` operations in `arithmetic`, then one rounding to `result`.
void ExpectNear(Complex64 got, const Sum& sum, int64_t terms, cudaDataType arithmetic, cudaDataType result,
                const char* what);

class BlasTest : public testing::Test {
 protected:
  BlasTest() { UseDevice(); }
  ~BlasTest() override { EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS); }
  std::mt19937 random_{12345};
};

// A handle of cuBLAS for the life of a test.
class TestHandle {
 public:
  TestHandle() { EXPECT_EQ(cublasCreate(&handle_), CUBLAS_STATUS_SUCCESS); }
  ~TestHandle() { EXPECT_EQ(cublasDestroy(handle_), CUBLAS_STATUS_SUCCESS); }
  operator cublasHandle_t() const { return handle_; }

 private:
  cublasHandle_t handle_ = nullptr;
};

}  // namespace softgpu::blas

#endif  // SOFTGPU_BLAS_BLAS_TESTING_H_
