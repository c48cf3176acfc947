// The GEMM family: all of it is one product with different types and different ways to name a batch.
#ifndef SOFTGPU_BLAS_GEMM_H_
#define SOFTGPU_BLAS_GEMM_H_

#include <cublas_v2.h>
#include <cuda_fp16.h>

#include "softgpu/blas/handle.h"

namespace softgpu::blas {

template <>
struct Traits<__half> {
  using Value = uint16_t;
  static constexpr cudaDataType kType = CUDA_R_16F;
};

// The type in which cublas<t>gemm computes.
template <typename T>
constexpr cublasComputeType_t ComputeOf() {
  constexpr cudaDataType type = Traits<T>::kType;
  if (type == CUDA_R_64F || type == CUDA_C_64F) return CUBLAS_COMPUTE_64F;
  return type == CUDA_R_16F ? CUBLAS_COMPUTE_16F : CUBLAS_COMPUTE_32F;
}

struct Shape {
  cublasOperation_t op_a, op_b;
  int64_t m, n, k;
};
// A matrix of the call: a pointer, or with `pointers` an array of them on the device.
struct MatrixArgument {
  const void* pointer;
  cudaDataType type;
  int64_t ld;
  int64_t stride = 0;
  bool pointers = false;
};

// The checks that all share, then the launch.
cublasStatus_t RunGemm(cublasHandle_t handle, const Shape& shape, const void* alpha, const MatrixArgument& a,
                       const MatrixArgument& b, const void* beta, const MatrixArgument& c, int64_t batches,
                       cublasComputeType_t compute);

// The same where op_b may also be CUBLAS_OP_CONJG.
cublasStatus_t RunProduct(cublasHandle_t handle, const Shape& shape, const void* alpha,
                          const MatrixArgument& a, const MatrixArgument& b, const void* beta,
                          const MatrixArgument& c, int64_t batches, cublasComputeType_t compute);

template <typename T>
cublasStatus_t Gemm(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int64_t m,
                    int64_t n, int64_t k, const T* alpha, const T* a, int64_t lda, const T* b, int64_t ldb,
                    const T* beta, T* c, int64_t ldc) {
  constexpr cudaDataType type = Traits<T>::kType;
  return RunGemm(handle, {op_a, op_b, m, n, k}, alpha, {a, type, lda}, {b, type, ldb}, beta, {c, type, ldc},
                 1, ComputeOf<T>());
}

template <typename T>
cublasStatus_t GemmStridedBatched(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                                  int64_t m, int64_t n, int64_t k, const T* alpha, const T* a, int64_t lda,
                                  int64_t stride_a, const T* b, int64_t ldb, int64_t stride_b, const T* beta,
                                  T* c, int64_t ldc, int64_t stride_c, int64_t batches) {
  constexpr cudaDataType type = Traits<T>::kType;
  return RunGemm(handle, {op_a, op_b, m, n, k}, alpha, {a, type, lda, stride_a}, {b, type, ldb, stride_b},
                 beta, {c, type, ldc, stride_c}, batches, ComputeOf<T>());
}

template <typename T>
cublasStatus_t GemmBatched(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int64_t m,
                           int64_t n, int64_t k, const T* alpha, const T* const a[], int64_t lda,
                           const T* const b[], int64_t ldb, const T* beta, T* const c[], int64_t ldc,
                           int64_t batches) {
  constexpr cudaDataType type = Traits<T>::kType;
  return RunGemm(handle, {op_a, op_b, m, n, k}, alpha, {a, type, lda, 0, true}, {b, type, ldb, 0, true}, beta,
                 {c, type, ldc, 0, true}, batches, ComputeOf<T>());
}

inline cublasStatus_t GemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int64_t m,
                             int64_t n, int64_t k, const void* alpha, const void* a, cudaDataType a_type,
                             int64_t lda, const void* b, cudaDataType b_type, int64_t ldb, const void* beta,
                             void* c, cudaDataType c_type, int64_t ldc, cublasComputeType_t compute,
                             cublasGemmAlgo_t) {
  return RunGemm(handle, {op_a, op_b, m, n, k}, alpha, {a, a_type, lda}, {b, b_type, ldb}, beta,
                 {c, c_type, ldc}, 1, compute);
}

inline cublasStatus_t GemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t op_a,
                                           cublasOperation_t op_b, int64_t m, int64_t n, int64_t k,
                                           const void* alpha, const void* a, cudaDataType a_type, int64_t lda,
                                           int64_t stride_a, const void* b, cudaDataType b_type, int64_t ldb,
                                           int64_t stride_b, const void* beta, void* c, cudaDataType c_type,
                                           int64_t ldc, int64_t stride_c, int64_t batches,
                                           cublasComputeType_t compute, cublasGemmAlgo_t) {
  return RunGemm(handle, {op_a, op_b, m, n, k}, alpha, {a, a_type, lda, stride_a}, {b, b_type, ldb, stride_b},
                 beta, {c, c_type, ldc, stride_c}, batches, compute);
}

inline cublasStatus_t GemmBatchedEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b,
                                    int64_t m, int64_t n, int64_t k, const void* alpha, const void* const a[],
                                    cudaDataType a_type, int64_t lda, const void* const b[],
                                    cudaDataType b_type, int64_t ldb, const void* beta, void* const c[],
                                    cudaDataType c_type, int64_t ldc, int64_t batches,
                                    cublasComputeType_t compute, cublasGemmAlgo_t) {
  return RunGemm(handle, {op_a, op_b, m, n, k}, alpha, {a, a_type, lda, 0, true}, {b, b_type, ldb, 0, true},
                 beta, {c, c_type, ldc, 0, true}, batches, compute);
}

// cublasSgemmEx and cublasCgemmEx: narrow operands, the scalars and the sums single.
template <typename T>
cublasStatus_t NarrowGemmEx(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int64_t m,
                            int64_t n, int64_t k, const T* alpha, const void* a, cudaDataType a_type,
                            int64_t lda, const void* b, cudaDataType b_type, int64_t ldb, const T* beta,
                            void* c, cudaDataType c_type, int64_t ldc) {
  return RunGemm(handle, {op_a, op_b, m, n, k}, alpha, {a, a_type, lda}, {b, b_type, ldb}, beta,
                 {c, c_type, ldc}, 1, CUBLAS_COMPUTE_32F);
}

// Groups of batches, each with a shape of its own; the arrays are the host's, those of pointers the device's.
template <typename Int>
cublasStatus_t GemmGroupedBatchedEx(cublasHandle_t handle, const cublasOperation_t op_a[],
                                    const cublasOperation_t op_b[], const Int m[], const Int n[],
                                    const Int k[], const void* alpha, const void* const a[],
                                    cudaDataType a_type, const Int lda[], const void* const b[],
                                    cudaDataType b_type, const Int ldb[], const void* beta, void* const c[],
                                    cudaDataType c_type, const Int ldc[], Int groups, const Int sizes[],
                                    cublasComputeType_t compute) {
  if (FindHandle(handle) == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (groups < 0) return CUBLAS_STATUS_INVALID_VALUE;
  for (const void* array :
       {static_cast<const void*>(op_a), static_cast<const void*>(op_b), static_cast<const void*>(m),
        static_cast<const void*>(n), static_cast<const void*>(k), alpha, beta, static_cast<const void*>(lda),
        static_cast<const void*>(ldb), static_cast<const void*>(ldc), static_cast<const void*>(sizes)}) {
    if (groups != 0 && array == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  }
  const size_t scale = SizeOf(a_type == CUDA_R_64F ? CUDA_R_64F : CUDA_R_32F);
  int64_t first = 0;
  for (Int g = 0; g < groups; g++) {
    auto scalar = [scale, g](const void* array) {
      return static_cast<const unsigned char*>(array) + scale * static_cast<size_t>(g);
    };
    cublasStatus_t status =
        RunGemm(handle, {op_a[g], op_b[g], m[g], n[g], k[g]}, scalar(alpha),
                {a + first, a_type, lda[g], 0, true}, {b + first, b_type, ldb[g], 0, true}, scalar(beta),
                {c + first, c_type, ldc[g], 0, true}, sizes[g], compute);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    first += sizes[g];
  }
  return CUBLAS_STATUS_SUCCESS;
}

template <typename T, typename Int>
cublasStatus_t GroupedBatched(cublasHandle_t handle, const cublasOperation_t op_a[],
                              const cublasOperation_t op_b[], const Int m[], const Int n[], const Int k[],
                              const T alpha[], const T* const a[], const Int lda[], const T* const b[],
                              const Int ldb[], const T beta[], T* const c[], const Int ldc[], Int groups,
                              const Int sizes[]) {
  constexpr cudaDataType type = Traits<T>::kType;
  return GemmGroupedBatchedEx(handle, op_a, op_b, m, n, k, alpha, reinterpret_cast<const void* const*>(a),
                              type, lda, reinterpret_cast<const void* const*>(b), type, ldb, beta,
                              reinterpret_cast<void* const*>(c), type, ldc, groups, sizes, ComputeOf<T>());
}

}  // namespace softgpu::blas

#endif  // SOFTGPU_BLAS_GEMM_H_
