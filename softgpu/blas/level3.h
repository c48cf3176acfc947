// Matrices with matrices, beside GEMM: OpenBLAS on the device's memory, and a few that it lacks.
#ifndef SOFTGPU_BLAS_LEVEL3_H_
#define SOFTGPU_BLAS_LEVEL3_H_

#include <climits>
#include <vector>

#include "softgpu/blas/openblas.h"
#include "softgpu/blas/stored.h"
#include "softgpu/blas/vector.h"

namespace softgpu::blas {

inline bool ValidSide(cublasSideMode_t side) { return side == CUBLAS_SIDE_LEFT || side == CUBLAS_SIDE_RIGHT; }

// The checks that all share: sizes, and pointers where there is something to do.
template <typename... Matrices>
cublasStatus_t CheckMatrices(bool modes, bool empty, const Matrices&... matrices) {
  if (!modes || !(... && matrices.Valid())) return CUBLAS_STATUS_INVALID_VALUE;
  auto fits = [](const Stored& m) { return m.rows <= INT_MAX && m.cols <= INT_MAX && m.ld <= INT_MAX; };
  if (!(... && fits(matrices))) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (empty) return CUBLAS_STATUS_SUCCESS;
  auto there = [](const Stored& m) { return m.elements() == 0 || m.address != 0; };
  return (... && there(matrices)) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

// ---- C = alpha * A * B + beta * C with one of them symmetric or Hermitian
template <typename T, bool kHermitian>
cublasStatus_t MultiplyMirrored(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,
                                int64_t m, int64_t n, const T* alpha, const T* a, int64_t lda, const T* b,
                                int64_t ldb, const T* beta, T* c, int64_t ldc) {
  using V = ValueOf<T>;
  Call call(handle);
  if (!call.ok()) return call.status();
  int64_t order = side == CUBLAS_SIDE_LEFT ? m : n;
  Stored ma = Stored::Whole(a, order, order, lda), mb = Stored::Whole(b, m, n, ldb),
         mc = Stored::Whole(c, m, n, ldc);
  bool empty = m == 0 || n == 0;
  cublasStatus_t status = CheckMatrices(ValidSide(side) && ValidTriangle(uplo), empty, ma, mb, mc);
  if (status != CUBLAS_STATUS_SUCCESS || empty) return status;
  if (alpha == nullptr || beta == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  return call.Run([side, uplo, ma, mb, mc, sa = call.In(alpha, sizeof(V)),
                   sb = call.In(beta, sizeof(V))](native::Device& device) {
    V fa, fb;
    const V *pa = ma.Read<V>(device), *pb = mb.Read<V>(device);
    V* pc = mc.Write<V>(device);
    if (!Load(device, sa, &fa) || !Load(device, sb, &fb) || pa == nullptr || pb == nullptr || pc == nullptr)
      return;
    auto lda = static_cast<int>(ma.ld), ldb = static_cast<int>(mb.ld), ldc = static_cast<int>(mc.ld);
    auto rows = static_cast<int>(mc.rows), cols = static_cast<int>(mc.cols);
    if constexpr (kHermitian) {
      Hemm(SideOf(side), UploOf(uplo), rows, cols, fa, pa, lda, pb, ldb, fb, pc, ldc);
    } else {
      Symm(SideOf(side), UploOf(uplo), rows, cols, fa, pa, lda, pb, ldb, fb, pc, ldc);
    }
  });
}
template <typename T>
cublasStatus_t SymmOf(cublasHandle_t h, cublasSideMode_t side, cublasFillMode_t uplo, int64_t m, int64_t n,
                      const T* alpha, const T* a, int64_t lda, const T* b, int64_t ldb, const T* beta, T* c,
                      int64_t ldc) {
  return MultiplyMirrored<T, false>(h, side, uplo, m, n, alpha, a, lda, b, ldb, beta, c, ldc);
}
template <typename T>
cublasStatus_t HemmOf(cublasHandle_t h, cublasSideMode_t side, cublasFillMode_t uplo, int64_t m, int64_t n,
                      const T* alpha, const T* a, int64_t lda, const T* b, int64_t ldb, const T* beta, T* c,
                      int64_t ldc) {
  return MultiplyMirrored<T, true>(h, side, uplo, m, n, alpha, a, lda, b, ldb, beta, c, ldc);
}

// ---- C = alpha * op(A) * op(B)' + beta * C on one triangle. Without B it is A; with `kBoth` the two
// products.
enum class Rank : uint8_t { kSyrk, kHerk, kSyr2k, kHer2k, kSyrkx, kHerkx };

template <Rank kRank, typename V, typename A, typename B>
void UpdateRank(cublasFillMode_t uplo, cublasOperation_t op, int n, int k, A alpha, const V* a, int lda,
                const V* b, int ldb, B beta, V* c, int ldc) {
  CBLAS_UPLO triangle = UploOf(uplo);
  CBLAS_TRANSPOSE trans = op == CUBLAS_OP_N ? CblasNoTrans : CblasTrans;
  if constexpr (kRank == Rank::kSyrk) {
    Syrk(triangle, trans, n, k, alpha, a, lda, beta, c, ldc);
  } else if constexpr (kRank == Rank::kSyr2k) {
    Syr2k(triangle, trans, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  } else if constexpr (kRank == Rank::kHerk) {
    Herk(triangle, op == CUBLAS_OP_N ? CblasNoTrans : CblasConjTrans, n, k, alpha, a, lda, beta, c, ldc);
  } else if constexpr (kRank == Rank::kHer2k) {
    Her2k(triangle, op == CUBLAS_OP_N ? CblasNoTrans : CblasConjTrans, n, k, alpha, a, lda, b, ldb, beta, c,
          ldc);
  } else {
    constexpr bool kConjugate = kRank == Rank::kHerkx;
    std::vector<V> product(static_cast<size_t>(n) * static_cast<size_t>(n));
    bool plain = op == CUBLAS_OP_N;
    Gemm(TransOf(!plain, kConjugate && !plain), TransOf(plain, kConjugate && plain), n, n, k, alpha, a, lda,
         b, ldb, V(0), product.data(), n);
    for (int j = 0; j < n; j++) {
      int begin = uplo == CUBLAS_FILL_MODE_LOWER ? j : 0, end = uplo == CUBLAS_FILL_MODE_LOWER ? n : j + 1;
      for (int i = begin; i < end; i++) {
        V& element = c[i + static_cast<int64_t>(j) * ldc];
        V value = product[i + static_cast<size_t>(j) * n];
        if (beta != B(0)) value += beta * element;
        element = kConjugate && i == j ? V(std::real(value)) : value;
      }
    }
  }
}

template <typename T, Rank kRank, typename Alpha, typename Beta>
cublasStatus_t RankUpdate(cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t op, int64_t n,
                          int64_t k, const Alpha* alpha, const T* a, int64_t lda, const T* b, int64_t ldb,
                          const Beta* beta, T* c, int64_t ldc) {
  using V = ValueOf<T>;
  using A = ValueOf<Alpha>;
  using B = ValueOf<Beta>;
  constexpr bool kOne = kRank == Rank::kSyrk || kRank == Rank::kHerk;
  constexpr bool kHermitian = kRank == Rank::kHerk || kRank == Rank::kHer2k || kRank == Rank::kHerkx;
  Call call(handle);
  if (!call.ok()) return call.status();
  // Complex matrices are transposed with conjugation by the Hermitian routines, and without it by the others.
  bool op_fits = op == CUBLAS_OP_N || (kHermitian ? op == CUBLAS_OP_C : op == CUBLAS_OP_T) ||
                 (!kIsComplex<V> && op == CUBLAS_OP_C);
  int64_t rows = op == CUBLAS_OP_N ? n : k, cols = op == CUBLAS_OP_N ? k : n;
  Stored ma = Stored::Whole(a, rows, cols, lda), mc = Stored::Whole(c, n, n, ldc);
  Stored mb = kOne ? ma : Stored::Whole(b, rows, cols, ldb);
  cublasStatus_t status = CheckMatrices(op_fits && ValidTriangle(uplo), n == 0, ma, mb, mc);
  if (status != CUBLAS_STATUS_SUCCESS || n == 0) return status;
  if (alpha == nullptr || beta == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  return call.Run([uplo, op, ma, mb, mc, k, sa = call.In(alpha, sizeof(A)),
                   sb = call.In(beta, sizeof(B))](native::Device& device) {
    A fa;
    B fb;
    const V *pa = ma.Read<V>(device), *pb = mb.Read<V>(device);
    V* pc = mc.Write<V>(device);
    if (!Load(device, sa, &fa) || !Load(device, sb, &fb) || pa == nullptr || pb == nullptr || pc == nullptr)
      return;
    UpdateRank<kRank>(uplo, op, static_cast<int>(mc.rows), static_cast<int>(k), fa, pa,
                      static_cast<int>(ma.ld), pb, static_cast<int>(mb.ld), fb, pc, static_cast<int>(mc.ld));
  });
}
template <typename T>
cublasStatus_t SyrkOf(cublasHandle_t h, cublasFillMode_t uplo, cublasOperation_t op, int64_t n, int64_t k,
                      const T* alpha, const T* a, int64_t lda, const T* beta, T* c, int64_t ldc) {
  return RankUpdate<T, Rank::kSyrk>(h, uplo, op, n, k, alpha, a, lda, a, lda, beta, c, ldc);
}
template <typename T>
cublasStatus_t HerkOf(cublasHandle_t h, cublasFillMode_t uplo, cublasOperation_t op, int64_t n, int64_t k,
                      const RealOf<T>* alpha, const T* a, int64_t lda, const RealOf<T>* beta, T* c,
                      int64_t ldc) {
  return RankUpdate<T, Rank::kHerk>(h, uplo, op, n, k, alpha, a, lda, a, lda, beta, c, ldc);
}
template <typename T>
cublasStatus_t Syr2kOf(cublasHandle_t h, cublasFillMode_t uplo, cublasOperation_t op, int64_t n, int64_t k,
                       const T* alpha, const T* a, int64_t lda, const T* b, int64_t ldb, const T* beta, T* c,
                       int64_t ldc) {
  return RankUpdate<T, Rank::kSyr2k>(h, uplo, op, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
template <typename T>
cublasStatus_t Her2kOf(cublasHandle_t h, cublasFillMode_t uplo, cublasOperation_t op, int64_t n, int64_t k,
                       const T* alpha, const T* a, int64_t lda, const T* b, int64_t ldb,
                       const RealOf<T>* beta, T* c, int64_t ldc) {
  return RankUpdate<T, Rank::kHer2k>(h, uplo, op, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
template <typename T>
cublasStatus_t SyrkxOf(cublasHandle_t h, cublasFillMode_t uplo, cublasOperation_t op, int64_t n, int64_t k,
                       const T* alpha, const T* a, int64_t lda, const T* b, int64_t ldb, const T* beta, T* c,
                       int64_t ldc) {
  return RankUpdate<T, Rank::kSyrkx>(h, uplo, op, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
template <typename T>
cublasStatus_t HerkxOf(cublasHandle_t h, cublasFillMode_t uplo, cublasOperation_t op, int64_t n, int64_t k,
                       const T* alpha, const T* a, int64_t lda, const T* b, int64_t ldb,
                       const RealOf<T>* beta, T* c, int64_t ldc) {
  return RankUpdate<T, Rank::kHerkx>(h, uplo, op, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

// ---- Triangles: C = alpha * op(A) * B or B * op(A), and the solution in place of B.
struct TriangleModes {
  cublasSideMode_t side;
  cublasFillMode_t uplo;
  cublasOperation_t op;
  cublasDiagType_t diag;
  bool Valid() const {
    return ValidSide(side) && ValidTriangle(uplo) && ValidOp(op) &&
           (diag == CUBLAS_DIAG_UNIT || diag == CUBLAS_DIAG_NON_UNIT);
  }
};

// B, then C, which may be the same memory.
template <typename T, bool kSolve>
cublasStatus_t TriangleMatrix(cublasHandle_t handle, const TriangleModes& modes, int64_t m, int64_t n,
                              const T* alpha, const T* a, int64_t lda, const T* b, int64_t ldb, T* c,
                              int64_t ldc) {
  using V = ValueOf<T>;
  Call call(handle);
  if (!call.ok()) return call.status();
  int64_t order = modes.side == CUBLAS_SIDE_LEFT ? m : n;
  Stored ma = Stored::Whole(a, order, order, lda), mb = Stored::Whole(b, m, n, ldb),
         mc = Stored::Whole(c, m, n, ldc);
  bool empty = m == 0 || n == 0;
  cublasStatus_t status = CheckMatrices(modes.Valid(), empty, ma, mb, mc);
  if (status != CUBLAS_STATUS_SUCCESS || empty) return status;
  if (alpha == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  return call.Run([modes, ma, mb, mc, s = call.In(alpha, sizeof(V))](native::Device& device) {
    V factor;
    const V *pa = ma.Read<V>(device), *pb = mb.Read<V>(device);
    V* pc = mc.Write<V>(device);
    if (!Load(device, s, &factor) || pa == nullptr || pb == nullptr || pc == nullptr) return;
    for (int64_t j = 0; pb != pc && j < mc.cols; j++) std::copy_n(pb + j * mb.ld, mc.rows, pc + j * mc.ld);
    auto run = [&](auto routine) {
      routine(SideOf(modes.side), UploOf(modes.uplo), TransOf(modes.op), DiagOf(modes.diag),
              static_cast<int>(mc.rows), static_cast<int>(mc.cols), factor, pa, static_cast<int>(ma.ld), pc,
              static_cast<int>(mc.ld));
    };
    if constexpr (kSolve) {
      run([](auto... arguments) { Trsm(arguments...); });
    } else {
      run([](auto... arguments) { Trmm(arguments...); });
    }
  });
}
template <typename T>
cublasStatus_t TrmmOf(cublasHandle_t h, cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t op,
                      cublasDiagType_t diag, int64_t m, int64_t n, const T* alpha, const T* a, int64_t lda,
                      const T* b, int64_t ldb, T* c, int64_t ldc) {
  return TriangleMatrix<T, false>(h, {side, uplo, op, diag}, m, n, alpha, a, lda, b, ldb, c, ldc);
}
template <typename T>
cublasStatus_t TrsmOf(cublasHandle_t h, cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t op,
                      cublasDiagType_t diag, int64_t m, int64_t n, const T* alpha, const T* a, int64_t lda,
                      T* b, int64_t ldb) {
  return TriangleMatrix<T, true>(h, {side, uplo, op, diag}, m, n, alpha, a, lda, b, ldb, b, ldb);
}

template <typename T>
cublasStatus_t TrsmBatchedOf(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo,
                             cublasOperation_t op, cublasDiagType_t diag, int64_t m, int64_t n,
                             const T* alpha, const T* const a[], int64_t lda, T* const b[], int64_t ldb,
                             int64_t batches) {
  using V = ValueOf<T>;
  Call call(handle);
  if (!call.ok()) return call.status();
  TriangleModes modes{side, uplo, op, diag};
  int64_t order = side == CUBLAS_SIDE_LEFT ? m : n;
  Stored ma = Stored::Whole(nullptr, order, order, lda), mb = Stored::Whole(nullptr, m, n, ldb);
  cublasStatus_t status = CheckMatrices(modes.Valid() && batches >= 0, true, ma, mb);
  if (status != CUBLAS_STATUS_SUCCESS || m == 0 || n == 0 || batches == 0) return status;
  if (alpha == nullptr || a == nullptr || b == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  return call.Run([modes, ma, mb, batches, as = AddressOf(a), bs = AddressOf(b),
                   s = call.In(alpha, sizeof(V))](native::Device& device) {
    V factor;
    auto count = static_cast<size_t>(batches);
    const auto* a_list = static_cast<const uint64_t*>(device.Read(as, count * sizeof(uint64_t)));
    const auto* b_list = static_cast<const uint64_t*>(device.Read(bs, count * sizeof(uint64_t)));
    if (!Load(device, s, &factor) || a_list == nullptr || b_list == nullptr) return;
    for (size_t i = 0; i < count; i++) {
      Stored one_a = ma, one_b = mb;
      one_a.address = a_list[i];
      one_b.address = b_list[i];
      const V* pa = one_a.Read<V>(device);
      V* pb = one_b.Write<V>(device);
      if (pa == nullptr || pb == nullptr) return;
      Trsm(SideOf(modes.side), UploOf(modes.uplo), TransOf(modes.op), DiagOf(modes.diag),
           static_cast<int>(mb.rows), static_cast<int>(mb.cols), factor, pa, static_cast<int>(ma.ld), pb,
           static_cast<int>(mb.ld));
    }
  });
}

// ---- C = alpha * op(A) + beta * op(B); C may be A or B where that one is not transposed.
template <typename V>
V At(const V* data, int64_t ld, cublasOperation_t op, int64_t i, int64_t j) {
  return op == CUBLAS_OP_N ? data[i + j * ld] : Conjugate(data[j + i * ld], op == CUBLAS_OP_C);
}

template <typename T>
cublasStatus_t Geam(cublasHandle_t handle, cublasOperation_t op_a, cublasOperation_t op_b, int64_t m,
                    int64_t n, const T* alpha, const T* a, int64_t lda, const T* beta, const T* b,
                    int64_t ldb, T* c, int64_t ldc) {
  using V = ValueOf<T>;
  Call call(handle);
  if (!call.ok()) return call.status();
  if (!ValidOp(op_a) || !ValidOp(op_b) || m < 0 || n < 0 || alpha == nullptr || beta == nullptr)
    return CUBLAS_STATUS_INVALID_VALUE;
  bool use_a = !call.Known(alpha, V(0)), use_b = !call.Known(beta, V(0));
  Stored ma = Stored::Whole(a, op_a == CUBLAS_OP_N ? m : n, op_a == CUBLAS_OP_N ? n : m, lda);
  Stored mb = Stored::Whole(b, op_b == CUBLAS_OP_N ? m : n, op_b == CUBLAS_OP_N ? n : m, ldb);
  Stored mc = Stored::Whole(c, m, n, ldc);
  if (!mc.Valid() || (use_a && !ma.Valid()) || (use_b && !mb.Valid())) return CUBLAS_STATUS_INVALID_VALUE;
  if (m == 0 || n == 0) return CUBLAS_STATUS_SUCCESS;
  if (c == nullptr || (use_a && a == nullptr) || (use_b && b == nullptr)) return CUBLAS_STATUS_INVALID_VALUE;
  // In place it must be element by element.
  if ((a == c && use_a && (op_a != CUBLAS_OP_N || lda != ldc)) ||
      (b == c && use_b && (op_b != CUBLAS_OP_N || ldb != ldc))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  return call.Run([op_a, op_b, ma, mb, mc, sa = call.In(alpha, sizeof(V)),
                   sb = call.In(beta, sizeof(V))](native::Device& device) {
    V fa, fb;
    if (!Load(device, sa, &fa) || !Load(device, sb, &fb)) return;
    const V* pa = fa == V(0) ? nullptr : ma.Read<V>(device);
    const V* pb = fb == V(0) ? nullptr : mb.Read<V>(device);
    V* pc = mc.Write<V>(device);
    if (pc == nullptr || (fa != V(0) && pa == nullptr) || (fb != V(0) && pb == nullptr)) return;
    mc.ForEach(pc, [&](int64_t i, int64_t j, V& element) {
      V value = 0;
      if (pa != nullptr) value += fa * At(pa, ma.ld, op_a, i, j);
      if (pb != nullptr) value += fb * At(pb, mb.ld, op_b, i, j);
      element = value;
    });
  });
}

// ---- C = A * diag(x) or diag(x) * A
template <typename T>
cublasStatus_t Dgmm(cublasHandle_t handle, cublasSideMode_t side, int64_t m, int64_t n, const T* a,
                    int64_t lda, const T* x, int64_t incx, T* c, int64_t ldc) {
  using V = ValueOf<T>;
  Call call(handle);
  if (!call.ok()) return call.status();
  Stored ma = Stored::Whole(a, m, n, lda), mc = Stored::Whole(c, m, n, ldc);
  bool empty = m == 0 || n == 0;
  cublasStatus_t status = CheckMatrices(ValidSide(side), empty, ma, mc);
  if (status != CUBLAS_STATUS_SUCCESS || empty) return status;
  if (x == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  return call.Run(
      [side, ma, mc, vx = VectorOf(x, side == CUBLAS_SIDE_LEFT ? m : n, incx)](native::Device& device) {
        const V* pa = ma.Read<V>(device);
        V* pc = mc.Write<V>(device);
        Lane<const V> diagonal;
        if (pa == nullptr || pc == nullptr || !diagonal.Open(device, vx)) return;
        mc.ForEach(pc, [&](int64_t i, int64_t j, V& element) {
          element = pa[i + j * ma.ld] * diagonal[side == CUBLAS_SIDE_LEFT ? i : j];
        });
      });
}

// ---- Between a packed triangle and a whole matrix.
template <typename T>
cublasStatus_t CopyTriangle(cublasHandle_t handle, cublasFillMode_t uplo, const Stored& from,
                            const Stored& to) {
  using V = ValueOf<T>;
  Call call(handle);
  if (!call.ok()) return call.status();
  bool empty = to.rows == 0;
  cublasStatus_t status = CheckMatrices(ValidTriangle(uplo), empty, from, to);
  if (status != CUBLAS_STATUS_SUCCESS || empty) return status;
  return call.Run([from, to](native::Device& device) {
    const V* source = from.Read<V>(device);
    V* target = to.Write<V>(device);
    if (source == nullptr || target == nullptr) return;
    to.ForEach(target, [&](int64_t i, int64_t j, V& element) { element = source[from.offset(i, j)]; });
  });
}
template <typename T>
cublasStatus_t Tpttr(cublasHandle_t h, cublasFillMode_t uplo, int64_t n, const T* packed, T* a, int64_t lda) {
  return CopyTriangle<T>(h, uplo, Stored::Packed(packed, n, PartOf(uplo)),
                         Stored::Whole(a, n, n, lda, PartOf(uplo)));
}
template <typename T>
cublasStatus_t Trttp(cublasHandle_t h, cublasFillMode_t uplo, int64_t n, const T* a, int64_t lda, T* packed) {
  return CopyTriangle<T>(h, uplo, Stored::Whole(a, n, n, lda, PartOf(uplo)),
                         Stored::Packed(packed, n, PartOf(uplo)));
}

}  // namespace softgpu::blas

#endif  // SOFTGPU_BLAS_LEVEL3_H_
