// Vectors and matrices between host and device, and the log's functions. None of them needs a handle.
#include <cublas_v2.h>

#include <atomic>
#include <cstdint>
#include <cstdio>

#include "softgpu/blas/status.h"
#include "softgpu/native/driver.h"

namespace {

using softgpu::native::Driver;

// `count` lines of `width` bytes, `from_pitch` and `to_pitch` bytes apart.
struct Lines {
  int64_t width, count;
  const void* from;
  int64_t from_pitch;
  void* to;
  int64_t to_pitch;
};

cublasStatus_t Transfer(const Lines& lines, bool to_device, bool wait, CUstream stream) {
  if (lines.width == 0 || lines.count == 0) return CUBLAS_STATUS_SUCCESS;
  if (lines.from == nullptr || lines.to == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  if (softgpu::native::EnsureContext() != CUDA_SUCCESS) return CUBLAS_STATUS_NOT_INITIALIZED;
  CUDA_MEMCPY2D copy{};
  copy.WidthInBytes = static_cast<size_t>(lines.width);
  copy.Height = static_cast<size_t>(lines.count);
  copy.srcPitch = static_cast<size_t>(lines.from_pitch);
  copy.dstPitch = static_cast<size_t>(lines.to_pitch);
  if (to_device) {
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = lines.from;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = reinterpret_cast<CUdeviceptr>(lines.to);
  } else {
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = reinterpret_cast<CUdeviceptr>(lines.from);
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = lines.to;
  }
  CUresult result = wait ? Driver().cuMemcpy2D_v2(&copy) : Driver().cuMemcpy2DAsync_v2(&copy, stream);
  return result == CUDA_SUCCESS ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_MAPPING_ERROR;
}

cublasStatus_t Vector(int64_t n, int64_t size, const void* from, int64_t from_inc, void* to, int64_t to_inc,
                      bool to_device, bool wait, CUstream stream) {
  if (n < 0 || size <= 0 || from_inc <= 0 || to_inc <= 0) return CUBLAS_STATUS_INVALID_VALUE;
  // Without gaps it is one line.
  if (from_inc == 1 && to_inc == 1)
    return Transfer({n * size, 1, from, n * size, to, n * size}, to_device, wait, stream);
  return Transfer({size, n, from, from_inc * size, to, to_inc * size}, to_device, wait, stream);
}

cublasStatus_t Matrix(int64_t rows, int64_t cols, int64_t size, const void* from, int64_t from_ld, void* to,
                      int64_t to_ld, bool to_device, bool wait, CUstream stream) {
  if (rows < 0 || cols < 0 || size <= 0 || from_ld < rows || to_ld < rows || from_ld <= 0 || to_ld <= 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  return Transfer({rows * size, cols, from, from_ld * size, to, to_ld * size}, to_device, wait, stream);
}

constinit std::atomic<cublasLogCallback> g_log_callback{nullptr};

}  // namespace

extern "C" {

cublasStatus_t cublasSetVector(int n, int elemSize, const void* x, int incx, void* devicePtr, int incy) {
  return Vector(n, elemSize, x, incx, devicePtr, incy, true, true, nullptr);
}
cublasStatus_t cublasSetVector_64(int64_t n, int64_t elemSize, const void* x, int64_t incx, void* devicePtr,
                                  int64_t incy) {
  return Vector(n, elemSize, x, incx, devicePtr, incy, true, true, nullptr);
}
cublasStatus_t cublasGetVector(int n, int elemSize, const void* x, int incx, void* y, int incy) {
  return Vector(n, elemSize, x, incx, y, incy, false, true, nullptr);
}
cublasStatus_t cublasGetVector_64(int64_t n, int64_t elemSize, const void* x, int64_t incx, void* y,
                                  int64_t incy) {
  return Vector(n, elemSize, x, incx, y, incy, false, true, nullptr);
}
cublasStatus_t cublasSetVectorAsync(int n, int elemSize, const void* hostPtr, int incx, void* devicePtr,
                                    int incy, cudaStream_t stream) {
  return Vector(n, elemSize, hostPtr, incx, devicePtr, incy, true, false, stream);
}
cublasStatus_t cublasSetVectorAsync_64(int64_t n, int64_t elemSize, const void* hostPtr, int64_t incx,
                                       void* devicePtr, int64_t incy, cudaStream_t stream) {
  return Vector(n, elemSize, hostPtr, incx, devicePtr, incy, true, false, stream);
}
cublasStatus_t cublasGetVectorAsync(int n, int elemSize, const void* devicePtr, int incx, void* hostPtr,
                                    int incy, cudaStream_t stream) {
  return Vector(n, elemSize, devicePtr, incx, hostPtr, incy, false, false, stream);
}
cublasStatus_t cublasGetVectorAsync_64(int64_t n, int64_t elemSize, const void* devicePtr, int64_t incx,
                                       void* hostPtr, int64_t incy, cudaStream_t stream) {
  return Vector(n, elemSize, devicePtr, incx, hostPtr, incy, false, false, stream);
}

cublasStatus_t cublasSetMatrix(int rows, int cols, int elemSize, const void* A, int lda, void* B, int ldb) {
  return Matrix(rows, cols, elemSize, A, lda, B, ldb, true, true, nullptr);
}
cublasStatus_t cublasSetMatrix_64(int64_t rows, int64_t cols, int64_t elemSize, const void* A, int64_t lda,
                                  void* B, int64_t ldb) {
  return Matrix(rows, cols, elemSize, A, lda, B, ldb, true, true, nullptr);
}
cublasStatus_t cublasGetMatrix(int rows, int cols, int elemSize, const void* A, int lda, void* B, int ldb) {
  return Matrix(rows, cols, elemSize, A, lda, B, ldb, false, true, nullptr);
}
cublasStatus_t cublasGetMatrix_64(int64_t rows, int64_t cols, int64_t elemSize, const void* A, int64_t lda,
                                  void* B, int64_t ldb) {
  return Matrix(rows, cols, elemSize, A, lda, B, ldb, false, true, nullptr);
}
cublasStatus_t cublasSetMatrixAsync(int rows, int cols, int elemSize, const void* A, int lda, void* B,
                                    int ldb, cudaStream_t stream) {
  return Matrix(rows, cols, elemSize, A, lda, B, ldb, true, false, stream);
}
cublasStatus_t cublasSetMatrixAsync_64(int64_t rows, int64_t cols, int64_t elemSize, const void* A,
                                       int64_t lda, void* B, int64_t ldb, cudaStream_t stream) {
  return Matrix(rows, cols, elemSize, A, lda, B, ldb, true, false, stream);
}
cublasStatus_t cublasGetMatrixAsync(int rows, int cols, int elemSize, const void* A, int lda, void* B,
                                    int ldb, cudaStream_t stream) {
  return Matrix(rows, cols, elemSize, A, lda, B, ldb, false, false, stream);
}
cublasStatus_t cublasGetMatrixAsync_64(int64_t rows, int64_t cols, int64_t elemSize, const void* A,
                                       int64_t lda, void* B, int64_t ldb, cudaStream_t stream) {
  return Matrix(rows, cols, elemSize, A, lda, B, ldb, false, false, stream);
}

void cublasXerbla(const char* srName, int info) {
  fprintf(stderr, " ** On entry to %s parameter number %d had an illegal value\n", srName, info);
}

// Nothing is logged here; what is asked for is remembered.
cublasStatus_t cublasLoggerConfigure(int, int, int, const char*) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetLoggerCallback(cublasLogCallback userCallback) {
  g_log_callback.store(userCallback);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetLoggerCallback(cublasLogCallback* userCallback) {
  if (userCallback == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *userCallback = g_log_callback.load();
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
