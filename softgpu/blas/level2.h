// Matrices with vectors, for every way of storing them. Sums are kept in double and rounded once.
#ifndef SOFTGPU_BLAS_LEVEL2_H_
#define SOFTGPU_BLAS_LEVEL2_H_

#include <cuda_bf16.h>

#include <vector>

#include "softgpu/blas/gemm.h"
#include "softgpu/blas/stored.h"
#include "softgpu/blas/vector.h"

namespace softgpu::blas {

// ---- y = alpha * A * x + beta * y
enum class Mirror : uint8_t { kNone, kSymmetric, kHermitian };  // what the triangle stands for

template <typename V>
void MultiplyInto(const Stored& m, const V* a, cublasOperation_t op, Mirror mirror, const Lane<const V>& x,
                  std::vector<WideOf<V>>* sums) {
  using W = WideOf<V>;
  m.ForEach(a, [&](int64_t i, int64_t j, V element) {
    W value(element);
    if (mirror == Mirror::kNone) {
      if (op == CUBLAS_OP_N) {
        (*sums)[i] += value * W(x[j]);
      } else {
        (*sums)[j] += Conjugate(value, op == CUBLAS_OP_C) * W(x[i]);
      }
      return;
    }
    bool hermitian = mirror == Mirror::kHermitian;
    if (hermitian && i == j) value = W(std::real(value));
    (*sums)[i] += value * W(x[j]);
    if (i != j) (*sums)[j] += Conjugate(value, hermitian) * W(x[i]);
  });
}

template <typename T>
cublasStatus_t MultiplyVector(cublasHandle_t handle, const Stored& m, cublasOperation_t op, Mirror mirror,
                              const T* alpha, const T* x, int64_t incx, const T* beta, T* y, int64_t incy) {
  using V = ValueOf<T>;
  Call call(handle);
  if (!call.ok()) return call.status();
  if (!m.Valid() || !ValidOp(op) || incx == 0 || incy == 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (m.rows == 0 || m.cols == 0) return CUBLAS_STATUS_SUCCESS;
  if (alpha == nullptr || beta == nullptr || m.address == 0 || x == nullptr || y == nullptr)
    return CUBLAS_STATUS_INVALID_VALUE;
  bool transposed = op != CUBLAS_OP_N;
  return call.Run([m, op, mirror, a = call.In(alpha, sizeof(V)), b = call.In(beta, sizeof(V)),
                   vx = VectorOf(x, transposed ? m.rows : m.cols, incx),
                   vy = VectorOf(y, transposed ? m.cols : m.rows, incy)](native::Device& device) {
    V factor, old_factor;
    Lane<const V> from;
    Lane<V> to;
    if (!Load(device, a, &factor) || !Load(device, b, &old_factor) || !to.Open(device, vy)) return;
    std::vector<WideOf<V>> sums(static_cast<size_t>(vy.n));
    if (factor != V(0)) {
      const V* data = m.Read<V>(device);
      if (data == nullptr || !from.Open(device, vx)) return;
      MultiplyInto(m, data, op, mirror, from, &sums);
    }
    for (int64_t i = 0; i < vy.n; i++) {
      WideOf<V> value = WideOf<V>(factor) * sums[i];
      if (old_factor != V(0)) value += WideOf<V>(old_factor) * WideOf<V>(to[i]);
      to[i] = static_cast<V>(value);
    }
  });
}

template <typename T>
cublasStatus_t Gemv(cublasHandle_t h, cublasOperation_t op, int64_t m, int64_t n, const T* alpha, const T* a,
                    int64_t lda, const T* x, int64_t incx, const T* beta, T* y, int64_t incy) {
  return MultiplyVector(h, Stored::Whole(a, m, n, lda), op, Mirror::kNone, alpha, x, incx, beta, y, incy);
}
template <typename T>
cublasStatus_t Gbmv(cublasHandle_t h, cublasOperation_t op, int64_t m, int64_t n, int64_t kl, int64_t ku,
                    const T* alpha, const T* a, int64_t lda, const T* x, int64_t incx, const T* beta, T* y,
                    int64_t incy) {
  return MultiplyVector(h, Stored::Band(a, m, n, kl, ku, lda), op, Mirror::kNone, alpha, x, incx, beta, y,
                        incy);
}

template <typename T, Mirror kMirror>
cublasStatus_t MirroredVector(cublasHandle_t h, cublasFillMode_t uplo, const Stored& m, const T* alpha,
                              const T* x, int64_t incx, const T* beta, T* y, int64_t incy) {
  if (FindHandle(h) == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!ValidTriangle(uplo)) return CUBLAS_STATUS_INVALID_VALUE;
  return MultiplyVector(h, m, CUBLAS_OP_N, kMirror, alpha, x, incx, beta, y, incy);
}
template <typename T>
cublasStatus_t Symv(cublasHandle_t h, cublasFillMode_t uplo, int64_t n, const T* alpha, const T* a,
                    int64_t lda, const T* x, int64_t incx, const T* beta, T* y, int64_t incy) {
  return MirroredVector<T, Mirror::kSymmetric>(h, uplo, Stored::Whole(a, n, n, lda, PartOf(uplo)), alpha, x,
                                               incx, beta, y, incy);
}
template <typename T>
cublasStatus_t Hemv(cublasHandle_t h, cublasFillMode_t uplo, int64_t n, const T* alpha, const T* a,
                    int64_t lda, const T* x, int64_t incx, const T* beta, T* y, int64_t incy) {
  return MirroredVector<T, Mirror::kHermitian>(h, uplo, Stored::Whole(a, n, n, lda, PartOf(uplo)), alpha, x,
                                               incx, beta, y, incy);
}
template <typename T>
cublasStatus_t Sbmv(cublasHandle_t h, cublasFillMode_t uplo, int64_t n, int64_t k, const T* alpha, const T* a,
                    int64_t lda, const T* x, int64_t incx, const T* beta, T* y, int64_t incy) {
  return MirroredVector<T, Mirror::kSymmetric>(h, uplo, Stored::TriangleBand(a, n, k, lda, PartOf(uplo)),
                                               alpha, x, incx, beta, y, incy);
}
template <typename T>
cublasStatus_t Hbmv(cublasHandle_t h, cublasFillMode_t uplo, int64_t n, int64_t k, const T* alpha, const T* a,
                    int64_t lda, const T* x, int64_t incx, const T* beta, T* y, int64_t incy) {
  return MirroredVector<T, Mirror::kHermitian>(h, uplo, Stored::TriangleBand(a, n, k, lda, PartOf(uplo)),
                                               alpha, x, incx, beta, y, incy);
}
template <typename T>
cublasStatus_t Spmv(cublasHandle_t h, cublasFillMode_t uplo, int64_t n, const T* alpha, const T* a,
                    const T* x, int64_t incx, const T* beta, T* y, int64_t incy) {
  return MirroredVector<T, Mirror::kSymmetric>(h, uplo, Stored::Packed(a, n, PartOf(uplo)), alpha, x, incx,
                                               beta, y, incy);
}
template <typename T>
cublasStatus_t Hpmv(cublasHandle_t h, cublasFillMode_t uplo, int64_t n, const T* alpha, const T* a,
                    const T* x, int64_t incx, const T* beta, T* y, int64_t incy) {
  return MirroredVector<T, Mirror::kHermitian>(h, uplo, Stored::Packed(a, n, PartOf(uplo)), alpha, x, incx,
                                               beta, y, incy);
}

// ---- Triangles: x = op(A) * x, and op(A) * x = b.
struct Triangle {
  Stored stored;
  cublasFillMode_t uplo;
  cublasOperation_t op;
  cublasDiagType_t diag;
  bool unit() const { return diag == CUBLAS_DIAG_UNIT; }
};

template <typename V>
void MultiplyTriangle(const Triangle& t, const V* a, std::vector<WideOf<V>>* x) {
  using W = WideOf<V>;
  std::vector<W> product(x->size());
  for (size_t i = 0; t.unit() && i < x->size(); i++) product[i] = (*x)[i];
  t.stored.ForEach(a, [&](int64_t i, int64_t j, V element) {
    if (i == j && t.unit()) return;
    if (t.op == CUBLAS_OP_N) {
      product[i] += W(element) * (*x)[j];
    } else {
      product[j] += Conjugate(W(element), t.op == CUBLAS_OP_C) * (*x)[i];
    }
  });
  x->swap(product);
}

template <typename V>
void SolveTriangle(const Triangle& t, const V* a, std::vector<WideOf<V>>* x) {
  using W = WideOf<V>;
  const Stored& m = t.stored;
  bool transposed = t.op != CUBLAS_OP_N, conjugate = t.op == CUBLAS_OP_C;
  bool forward = (m.part == Part::kLower) != transposed;
  for (int64_t step = 0; step < m.cols; step++) {
    int64_t j = forward ? step : m.cols - 1 - step;
    W& value = (*x)[j];
    for (int64_t i = m.begin(j); transposed && i < m.end(j); i++) {
      if (i != j) value -= Conjugate(W(a[m.offset(i, j)]), conjugate) * (*x)[i];
    }
    if (!t.unit()) value /= Conjugate(W(a[m.offset(j, j)]), conjugate);
    for (int64_t i = m.begin(j); !transposed && i < m.end(j); i++) {
      if (i != j) (*x)[i] -= W(a[m.offset(i, j)]) * value;
    }
  }
}

template <typename T, bool kSolve>
cublasStatus_t OnTriangle(cublasHandle_t handle, const Triangle& t, T* x, int64_t incx) {
  using V = ValueOf<T>;
  Call call(handle);
  if (!call.ok()) return call.status();
  if (!t.stored.Valid() || !ValidTriangle(t.uplo) || !ValidOp(t.op) || incx == 0 ||
      (t.diag != CUBLAS_DIAG_UNIT && t.diag != CUBLAS_DIAG_NON_UNIT)) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (t.stored.rows == 0) return CUBLAS_STATUS_SUCCESS;
  if (t.stored.address == 0 || x == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  return call.Run([t, vx = VectorOf(x, t.stored.rows, incx)](native::Device& device) {
    const V* a = t.stored.Read<V>(device);
    Lane<V> lane;
    if (a == nullptr || !lane.Open(device, vx)) return;
    std::vector<WideOf<V>> values(static_cast<size_t>(vx.n));
    for (int64_t i = 0; i < vx.n; i++) values[i] = WideOf<V>(lane[i]);
    if constexpr (kSolve) {
      SolveTriangle(t, a, &values);
    } else {
      MultiplyTriangle(t, a, &values);
    }
    for (int64_t i = 0; i < vx.n; i++) lane[i] = static_cast<V>(values[i]);
  });
}

template <typename T, bool kSolve>
cublasStatus_t WholeTriangle(cublasHandle_t h, cublasFillMode_t uplo, cublasOperation_t op,
                             cublasDiagType_t diag, int64_t n, const T* a, int64_t lda, T* x, int64_t incx) {
  return OnTriangle<T, kSolve>(h, {Stored::Whole(a, n, n, lda, PartOf(uplo)), uplo, op, diag}, x, incx);
}
template <typename T, bool kSolve>
cublasStatus_t BandTriangle(cublasHandle_t h, cublasFillMode_t uplo, cublasOperation_t op,
                            cublasDiagType_t diag, int64_t n, int64_t k, const T* a, int64_t lda, T* x,
                            int64_t incx) {
  return OnTriangle<T, kSolve>(h, {Stored::TriangleBand(a, n, k, lda, PartOf(uplo)), uplo, op, diag}, x,
                               incx);
}
template <typename T, bool kSolve>
cublasStatus_t PackedTriangle(cublasHandle_t h, cublasFillMode_t uplo, cublasOperation_t op,
                              cublasDiagType_t diag, int64_t n, const T* a, T* x, int64_t incx) {
  return OnTriangle<T, kSolve>(h, {Stored::Packed(a, n, PartOf(uplo)), uplo, op, diag}, x, incx);
}
template <typename T, typename... Arguments>
cublasStatus_t Trmv(Arguments... arguments) {
  return WholeTriangle<T, false>(arguments...);
}
template <typename T, typename... Arguments>
cublasStatus_t Trsv(Arguments... arguments) {
  return WholeTriangle<T, true>(arguments...);
}
template <typename T, typename... Arguments>
cublasStatus_t Tbmv(Arguments... arguments) {
  return BandTriangle<T, false>(arguments...);
}
template <typename T, typename... Arguments>
cublasStatus_t Tbsv(Arguments... arguments) {
  return BandTriangle<T, true>(arguments...);
}
template <typename T, typename... Arguments>
cublasStatus_t Tpmv(Arguments... arguments) {
  return PackedTriangle<T, false>(arguments...);
}
template <typename T, typename... Arguments>
cublasStatus_t Tpsv(Arguments... arguments) {
  return PackedTriangle<T, true>(arguments...);
}

// ---- A = A + alpha * x * op(y), and the updates of triangles.
enum class Update : uint8_t { kOuter, kOuterConjugated, kSymmetric, kHermitian, kSymmetric2, kHermitian2 };

template <Update kUpdate, typename W>
W Delta(W alpha, const W& xi, const W& xj, const W& yi, const W& yj) {
  switch (kUpdate) {
    case Update::kOuter:
      return alpha * xi * yj;
    case Update::kOuterConjugated:
      return alpha * xi * Conjugate(yj, true);
    case Update::kSymmetric:
      return alpha * xi * xj;
    case Update::kHermitian:
      return alpha * xi * Conjugate(xj, true);
    case Update::kSymmetric2:
      return alpha * (xi * yj + yi * xj);
    case Update::kHermitian2:
      return alpha * xi * Conjugate(yj, true) + Conjugate(alpha, true) * yi * Conjugate(xj, true);
  }
  return 0;
}

// `y` is null for updates by one vector, whose alpha may be real.
template <typename T, Update kUpdate, typename Alpha>
cublasStatus_t UpdateMatrix(cublasHandle_t handle, cublasFillMode_t uplo, const Stored& m, const Alpha* alpha,
                            const T* x, int64_t incx, const T* y, int64_t incy) {
  using V = ValueOf<T>;
  using W = WideOf<V>;
  using A = ValueOf<Alpha>;
  constexpr bool kTwo = kUpdate != Update::kSymmetric && kUpdate != Update::kHermitian;
  constexpr bool kReal = kUpdate == Update::kHermitian || kUpdate == Update::kHermitian2;  // the diagonal
  Call call(handle);
  if (!call.ok()) return call.status();
  if (!m.Valid() || !ValidTriangle(uplo) || incx == 0 || incy == 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (m.rows == 0 || m.cols == 0) return CUBLAS_STATUS_SUCCESS;
  if (alpha == nullptr || x == nullptr || m.address == 0 || (kTwo && y == nullptr))
    return CUBLAS_STATUS_INVALID_VALUE;
  return call.Run([m, scalar = call.In(alpha, sizeof(A)), vx = VectorOf(x, m.rows, incx),
                   vy = VectorOf(y, kTwo ? m.cols : 0, incy)](native::Device& device) {
    A factor;
    Lane<const V> a, b;
    V* data = m.Write<V>(device);
    if (data == nullptr || !Load(device, scalar, &factor) || !a.Open(device, vx) || !b.Open(device, vy))
      return;
    if (factor == A(0)) return;
    constexpr bool kSquare = kUpdate != Update::kOuter && kUpdate != Update::kOuterConjugated;
    m.ForEach(data, [&](int64_t i, int64_t j, V& element) {
      W xi(a[i]), xj = kSquare ? W(a[j]) : W(0), yi = kSquare && kTwo ? W(b[i]) : W(0);
      W yj = kTwo ? W(b[j]) : W(0);
      W value = W(element) + Delta<kUpdate>(W(factor), xi, xj, yi, yj);
      if (kReal && i == j) value = W(std::real(value));
      element = static_cast<V>(value);
    });
  });
}

template <typename T>
cublasStatus_t Ger(cublasHandle_t h, int64_t m, int64_t n, const T* alpha, const T* x, int64_t incx,
                   const T* y, int64_t incy, T* a, int64_t lda) {
  return UpdateMatrix<T, Update::kOuter>(h, CUBLAS_FILL_MODE_LOWER, Stored::Whole(a, m, n, lda), alpha, x,
                                         incx, y, incy);
}
template <typename T>
cublasStatus_t Gerc(cublasHandle_t h, int64_t m, int64_t n, const T* alpha, const T* x, int64_t incx,
                    const T* y, int64_t incy, T* a, int64_t lda) {
  return UpdateMatrix<T, Update::kOuterConjugated>(h, CUBLAS_FILL_MODE_LOWER, Stored::Whole(a, m, n, lda),
                                                   alpha, x, incx, y, incy);
}
template <typename T>
cublasStatus_t Syr(cublasHandle_t h, cublasFillMode_t uplo, int64_t n, const T* alpha, const T* x,
                   int64_t incx, T* a, int64_t lda) {
  return UpdateMatrix<T, Update::kSymmetric>(h, uplo, Stored::Whole(a, n, n, lda, PartOf(uplo)), alpha, x,
                                             incx, static_cast<const T*>(nullptr), 1);
}
template <typename T>
cublasStatus_t Her(cublasHandle_t h, cublasFillMode_t uplo, int64_t n, const RealOf<T>* alpha, const T* x,
                   int64_t incx, T* a, int64_t lda) {
  return UpdateMatrix<T, Update::kHermitian>(h, uplo, Stored::Whole(a, n, n, lda, PartOf(uplo)), alpha, x,
                                             incx, static_cast<const T*>(nullptr), 1);
}
template <typename T>
cublasStatus_t Spr(cublasHandle_t h, cublasFillMode_t uplo, int64_t n, const T* alpha, const T* x,
                   int64_t incx, T* a) {
  return UpdateMatrix<T, Update::kSymmetric>(h, uplo, Stored::Packed(a, n, PartOf(uplo)), alpha, x, incx,
                                             static_cast<const T*>(nullptr), 1);
}
template <typename T>
cublasStatus_t Hpr(cublasHandle_t h, cublasFillMode_t uplo, int64_t n, const RealOf<T>* alpha, const T* x,
                   int64_t incx, T* a) {
  return UpdateMatrix<T, Update::kHermitian>(h, uplo, Stored::Packed(a, n, PartOf(uplo)), alpha, x, incx,
                                             static_cast<const T*>(nullptr), 1);
}
template <typename T>
cublasStatus_t Syr2(cublasHandle_t h, cublasFillMode_t uplo, int64_t n, const T* alpha, const T* x,
                    int64_t incx, const T* y, int64_t incy, T* a, int64_t lda) {
  return UpdateMatrix<T, Update::kSymmetric2>(h, uplo, Stored::Whole(a, n, n, lda, PartOf(uplo)), alpha, x,
                                              incx, y, incy);
}
template <typename T>
cublasStatus_t Her2(cublasHandle_t h, cublasFillMode_t uplo, int64_t n, const T* alpha, const T* x,
                    int64_t incx, const T* y, int64_t incy, T* a, int64_t lda) {
  return UpdateMatrix<T, Update::kHermitian2>(h, uplo, Stored::Whole(a, n, n, lda, PartOf(uplo)), alpha, x,
                                              incx, y, incy);
}
template <typename T>
cublasStatus_t Spr2(cublasHandle_t h, cublasFillMode_t uplo, int64_t n, const T* alpha, const T* x,
                    int64_t incx, const T* y, int64_t incy, T* a) {
  return UpdateMatrix<T, Update::kSymmetric2>(h, uplo, Stored::Packed(a, n, PartOf(uplo)), alpha, x, incx, y,
                                              incy);
}
template <typename T>
cublasStatus_t Hpr2(cublasHandle_t h, cublasFillMode_t uplo, int64_t n, const T* alpha, const T* x,
                    int64_t incx, const T* y, int64_t incy, T* a) {
  return UpdateMatrix<T, Update::kHermitian2>(h, uplo, Stored::Packed(a, n, PartOf(uplo)), alpha, x, incx, y,
                                              incy);
}

// ---- Batches of matrix-vector products: y' = x' * op(A)', a product of matrices with one row.
template <typename Scale>
cublasStatus_t BatchedVectors(cublasHandle_t handle, cublasOperation_t op, int64_t m, int64_t n,
                              const Scale* alpha, const MatrixArgument& a, const MatrixArgument& x,
                              const Scale* beta, const MatrixArgument& y, int64_t batches) {
  if (FindHandle(handle) == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!ValidOp(op) || x.ld == 0 || y.ld == 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (x.ld < 0 || y.ld < 0) return CUBLAS_STATUS_NOT_SUPPORTED;
  bool plain = op == CUBLAS_OP_N;
  cublasOperation_t turned = plain ? CUBLAS_OP_T : op == CUBLAS_OP_T ? CUBLAS_OP_N : CUBLAS_OP_CONJG;
  return RunProduct(
      handle, {CUBLAS_OP_N, turned, 1, plain ? m : n, plain ? n : m}, alpha, x, a, beta, y, batches,
      Traits<Scale>::kType == CUDA_R_64F || Traits<Scale>::kType == CUDA_C_64F ? CUBLAS_COMPUTE_64F
                                                                               : CUBLAS_COMPUTE_32F);
}

template <typename T>
constexpr cudaDataType kElementType = Traits<T>::kType;
template <>
inline constexpr cudaDataType kElementType<__nv_bfloat16> = CUDA_R_16BF;

template <typename Scale, typename In, typename Out>
cublasStatus_t NarrowGemvBatched(cublasHandle_t h, cublasOperation_t op, int64_t m, int64_t n,
                                 const Scale* alpha, const In* const a[], int64_t lda, const In* const x[],
                                 int64_t incx, const Scale* beta, Out* const y[], int64_t incy,
                                 int64_t batches) {
  return BatchedVectors(h, op, m, n, alpha, {a, kElementType<In>, lda, 0, true},
                        {x, kElementType<In>, incx, 0, true}, beta, {y, kElementType<Out>, incy, 0, true},
                        batches);
}
template <typename Scale, typename In, typename Out>
cublasStatus_t NarrowGemvStridedBatched(cublasHandle_t h, cublasOperation_t op, int64_t m, int64_t n,
                                        const Scale* alpha, const In* a, int64_t lda, int64_t stride_a,
                                        const In* x, int64_t incx, int64_t stride_x, const Scale* beta,
                                        Out* y, int64_t incy, int64_t stride_y, int64_t batches) {
  return BatchedVectors(h, op, m, n, alpha, {a, kElementType<In>, lda, stride_a},
                        {x, kElementType<In>, incx, stride_x}, beta, {y, kElementType<Out>, incy, stride_y},
                        batches);
}
template <typename T, typename... Arguments>
cublasStatus_t GemvBatched(Arguments... arguments) {
  return NarrowGemvBatched<T, T, T>(arguments...);
}
template <typename T, typename... Arguments>
cublasStatus_t GemvStridedBatched(Arguments... arguments) {
  return NarrowGemvStridedBatched<T, T, T>(arguments...);
}

}  // namespace softgpu::blas

#endif  // SOFTGPU_BLAS_LEVEL2_H_
