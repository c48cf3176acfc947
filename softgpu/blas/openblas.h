// OpenBLAS with one name for each routine, column-major. Only what packs its operands first is used, so that
// results do not depend on how the caller's memory is aligned.
#ifndef SOFTGPU_BLAS_OPENBLAS_H_
#define SOFTGPU_BLAS_OPENBLAS_H_

#include <cblas.h>
#include <cublas_v2.h>

#include "softgpu/blas/types.h"

namespace softgpu::blas {

inline CBLAS_UPLO UploOf(cublasFillMode_t uplo) {
  return uplo == CUBLAS_FILL_MODE_LOWER ? CblasLower : CblasUpper;
}
inline CBLAS_SIDE SideOf(cublasSideMode_t side) { return side == CUBLAS_SIDE_LEFT ? CblasLeft : CblasRight; }
inline CBLAS_DIAG DiagOf(cublasDiagType_t diag) {
  return diag == CUBLAS_DIAG_UNIT ? CblasUnit : CblasNonUnit;
}
inline CBLAS_TRANSPOSE TransOf(bool transpose, bool conjugate) {
  if (transpose) return conjugate ? CblasConjTrans : CblasTrans;
  return conjugate ? CblasConjNoTrans : CblasNoTrans;
}
inline CBLAS_TRANSPOSE TransOf(cublasOperation_t op) { return TransOf(op != CUBLAS_OP_N, op == CUBLAS_OP_C); }

inline void Gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, float alpha, const float* a,
                 int lda, const float* b, int ldb, float beta, float* c, int ldc) {
  cblas_sgemm(CblasColMajor, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
inline void Symm(CBLAS_SIDE side, CBLAS_UPLO uplo, int m, int n, float alpha, const float* a, int lda,
                 const float* b, int ldb, float beta, float* c, int ldc) {
  cblas_ssymm(CblasColMajor, side, uplo, m, n, alpha, a, lda, b, ldb, beta, c, ldc);
}
inline void Syrk(CBLAS_UPLO uplo, CBLAS_TRANSPOSE trans, int n, int k, float alpha, const float* a, int lda,
                 float beta, float* c, int ldc) {
  cblas_ssyrk(CblasColMajor, uplo, trans, n, k, alpha, a, lda, beta, c, ldc);
}
inline void Syr2k(CBLAS_UPLO uplo, CBLAS_TRANSPOSE trans, int n, int k, float alpha, const float* a, int lda,
                  const float* b, int ldb, float beta, float* c, int ldc) {
  cblas_ssyr2k(CblasColMajor, uplo, trans, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
inline void Trmm(CBLAS_SIDE side, CBLAS_UPLO uplo, CBLAS_TRANSPOSE trans, CBLAS_DIAG diag, int m, int n,
                 float alpha, const float* a, int lda, float* b, int ldb) {
  cblas_strmm(CblasColMajor, side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb);
}
inline void Trsm(CBLAS_SIDE side, CBLAS_UPLO uplo, CBLAS_TRANSPOSE trans, CBLAS_DIAG diag, int m, int n,
                 float alpha, const float* a, int lda, float* b, int ldb) {
  cblas_strsm(CblasColMajor, side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb);
}
inline void Gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, double alpha, const double* a,
                 int lda, const double* b, int ldb, double beta, double* c, int ldc) {
  cblas_dgemm(CblasColMajor, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
inline void Symm(CBLAS_SIDE side, CBLAS_UPLO uplo, int m, int n, double alpha, const double* a, int lda,
                 const double* b, int ldb, double beta, double* c, int ldc) {
  cblas_dsymm(CblasColMajor, side, uplo, m, n, alpha, a, lda, b, ldb, beta, c, ldc);
}
inline void Syrk(CBLAS_UPLO uplo, CBLAS_TRANSPOSE trans, int n, int k, double alpha, const double* a, int lda,
                 double beta, double* c, int ldc) {
  cblas_dsyrk(CblasColMajor, uplo, trans, n, k, alpha, a, lda, beta, c, ldc);
}
inline void Syr2k(CBLAS_UPLO uplo, CBLAS_TRANSPOSE trans, int n, int k, double alpha, const double* a,
                  int lda, const double* b, int ldb, double beta, double* c, int ldc) {
  cblas_dsyr2k(CblasColMajor, uplo, trans, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}
inline void Trmm(CBLAS_SIDE side, CBLAS_UPLO uplo, CBLAS_TRANSPOSE trans, CBLAS_DIAG diag, int m, int n,
                 double alpha, const double* a, int lda, double* b, int ldb) {
  cblas_dtrmm(CblasColMajor, side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb);
}
inline void Trsm(CBLAS_SIDE side, CBLAS_UPLO uplo, CBLAS_TRANSPOSE trans, CBLAS_DIAG diag, int m, int n,
                 double alpha, const double* a, int lda, double* b, int ldb) {
  cblas_dtrsm(CblasColMajor, side, uplo, trans, diag, m, n, alpha, a, lda, b, ldb);
}
inline void Gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, Complex32 alpha,
                 const Complex32* a, int lda, const Complex32* b, int ldb, Complex32 beta, Complex32* c,
                 int ldc) {
  cblas_cgemm(CblasColMajor, ta, tb, m, n, k, &alpha, a, lda, b, ldb, &beta, c, ldc);
}
inline void Symm(CBLAS_SIDE side, CBLAS_UPLO uplo, int m, int n, Complex32 alpha, const Complex32* a, int lda,
                 const Complex32* b, int ldb, Complex32 beta, Complex32* c, int ldc) {
  cblas_csymm(CblasColMajor, side, uplo, m, n, &alpha, a, lda, b, ldb, &beta, c, ldc);
}
inline void Syrk(CBLAS_UPLO uplo, CBLAS_TRANSPOSE trans, int n, int k, Complex32 alpha, const Complex32* a,
                 int lda, Complex32 beta, Complex32* c, int ldc) {
  cblas_csyrk(CblasColMajor, uplo, trans, n, k, &alpha, a, lda, &beta, c, ldc);
}
inline void Syr2k(CBLAS_UPLO uplo, CBLAS_TRANSPOSE trans, int n, int k, Complex32 alpha, const Complex32* a,
                  int lda, const Complex32* b, int ldb, Complex32 beta, Complex32* c, int ldc) {
  cblas_csyr2k(CblasColMajor, uplo, trans, n, k, &alpha, a, lda, b, ldb, &beta, c, ldc);
}
inline void Trmm(CBLAS_SIDE side, CBLAS_UPLO uplo, CBLAS_TRANSPOSE trans, CBLAS_DIAG diag, int m, int n,
                 Complex32 alpha, const Complex32* a, int lda, Complex32* b, int ldb) {
  cblas_ctrmm(CblasColMajor, side, uplo, trans, diag, m, n, &alpha, a, lda, b, ldb);
}
inline void Trsm(CBLAS_SIDE side, CBLAS_UPLO uplo, CBLAS_TRANSPOSE trans, CBLAS_DIAG diag, int m, int n,
                 Complex32 alpha, const Complex32* a, int lda, Complex32* b, int ldb) {
  cblas_ctrsm(CblasColMajor, side, uplo, trans, diag, m, n, &alpha, a, lda, b, ldb);
}
inline void Gemm(CBLAS_TRANSPOSE ta, CBLAS_TRANSPOSE tb, int m, int n, int k, Complex64 alpha,
                 const Complex64* a, int lda, const Complex64* b, int ldb, Complex64 beta, Complex64* c,
                 int ldc) {
  cblas_zgemm(CblasColMajor, ta, tb, m, n, k, &alpha, a, lda, b, ldb, &beta, c, ldc);
}
inline void Symm(CBLAS_SIDE side, CBLAS_UPLO uplo, int m, int n, Complex64 alpha, const Complex64* a, int lda,
                 const Complex64* b, int ldb, Complex64 beta, Complex64* c, int ldc) {
  cblas_zsymm(CblasColMajor, side, uplo, m, n, &alpha, a, lda, b, ldb, &beta, c, ldc);
}
inline void Syrk(CBLAS_UPLO uplo, CBLAS_TRANSPOSE trans, int n, int k, Complex64 alpha, const Complex64* a,
                 int lda, Complex64 beta, Complex64* c, int ldc) {
  cblas_zsyrk(CblasColMajor, uplo, trans, n, k, &alpha, a, lda, &beta, c, ldc);
}
inline void Syr2k(CBLAS_UPLO uplo, CBLAS_TRANSPOSE trans, int n, int k, Complex64 alpha, const Complex64* a,
                  int lda, const Complex64* b, int ldb, Complex64 beta, Complex64* c, int ldc) {
  cblas_zsyr2k(CblasColMajor, uplo, trans, n, k, &alpha, a, lda, b, ldb, &beta, c, ldc);
}
inline void Trmm(CBLAS_SIDE side, CBLAS_UPLO uplo, CBLAS_TRANSPOSE trans, CBLAS_DIAG diag, int m, int n,
                 Complex64 alpha, const Complex64* a, int lda, Complex64* b, int ldb) {
  cblas_ztrmm(CblasColMajor, side, uplo, trans, diag, m, n, &alpha, a, lda, b, ldb);
}
inline void Trsm(CBLAS_SIDE side, CBLAS_UPLO uplo, CBLAS_TRANSPOSE trans, CBLAS_DIAG diag, int m, int n,
                 Complex64 alpha, const Complex64* a, int lda, Complex64* b, int ldb) {
  cblas_ztrsm(CblasColMajor, side, uplo, trans, diag, m, n, &alpha, a, lda, b, ldb);
}
inline void Hemm(CBLAS_SIDE side, CBLAS_UPLO uplo, int m, int n, Complex32 alpha, const Complex32* a, int lda,
                 const Complex32* b, int ldb, Complex32 beta, Complex32* c, int ldc) {
  cblas_chemm(CblasColMajor, side, uplo, m, n, &alpha, a, lda, b, ldb, &beta, c, ldc);
}
inline void Herk(CBLAS_UPLO uplo, CBLAS_TRANSPOSE trans, int n, int k, float alpha, const Complex32* a,
                 int lda, float beta, Complex32* c, int ldc) {
  cblas_cherk(CblasColMajor, uplo, trans, n, k, alpha, a, lda, beta, c, ldc);
}
inline void Her2k(CBLAS_UPLO uplo, CBLAS_TRANSPOSE trans, int n, int k, Complex32 alpha, const Complex32* a,
                  int lda, const Complex32* b, int ldb, float beta, Complex32* c, int ldc) {
  cblas_cher2k(CblasColMajor, uplo, trans, n, k, &alpha, a, lda, b, ldb, beta, c, ldc);
}
inline void Hemm(CBLAS_SIDE side, CBLAS_UPLO uplo, int m, int n, Complex64 alpha, const Complex64* a, int lda,
                 const Complex64* b, int ldb, Complex64 beta, Complex64* c, int ldc) {
  cblas_zhemm(CblasColMajor, side, uplo, m, n, &alpha, a, lda, b, ldb, &beta, c, ldc);
}
inline void Herk(CBLAS_UPLO uplo, CBLAS_TRANSPOSE trans, int n, int k, double alpha, const Complex64* a,
                 int lda, double beta, Complex64* c, int ldc) {
  cblas_zherk(CblasColMajor, uplo, trans, n, k, alpha, a, lda, beta, c, ldc);
}
inline void Her2k(CBLAS_UPLO uplo, CBLAS_TRANSPOSE trans, int n, int k, Complex64 alpha, const Complex64* a,
                  int lda, const Complex64* b, int ldb, double beta, Complex64* c, int ldc) {
  cblas_zher2k(CblasColMajor, uplo, trans, n, k, &alpha, a, lda, b, ldb, beta, c, ldc);
}

}  // namespace softgpu::blas

#endif  // SOFTGPU_BLAS_OPENBLAS_H_
