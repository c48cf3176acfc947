// Batches: strided, by arrays of pointers, grouped; and batches of matrix-vector products.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "softgpu/blas/blas_testing.h"

namespace softgpu::blas {
namespace {

constexpr int kM = 9, kN = 5, kK = 7, kBatches = 4;

class BatchTest : public BlasTest {
 protected:
  // An array of addresses, on the device.
  class Pointers {
   public:
    Pointers(const Numbers& numbers, int64_t stride, int count) : buffer_(static_cast<size_t>(count) * 8) {
      std::vector<const void*> list;
      // Last to first: the order must be the array's.
      for (int i = count - 1; i >= 0; i--) list.push_back(numbers.at(i * stride));
      buffer_.Write(list.data());
    }
    template <typename T>
    T** get() const {
      return buffer_.at<T*>();
    }

   private:
    Buffer buffer_;
  };

  void Expect(const Numbers& c, const Numbers& a, const Numbers& b, int64_t sa, int64_t sb, int64_t sc,
              cudaDataType arithmetic, bool reversed) {
    std::vector<Complex64> now = c.Now();
    for (int batch = 0; batch < kBatches; batch++) {
      for (int j = 0; j < kN; j++) {
        for (int i = 0; i < kM; i++) {
          Reference ra{&a.was(), kK, CUBLAS_OP_T, batch * sa}, rb{&b.was(), kK, CUBLAS_OP_N, batch * sb};
          auto at = static_cast<size_t>(batch * sc + i + j * kM);
          Sum sum;
          for (int l = 0; l < kK; l++) sum.Add(2.0 * ra.at(i, l) * rb.at(l, j));
          sum.Add(-c.was()[at]);
          ExpectNear(now[at], sum, kK, arithmetic, c.type(), reversed ? "reversed" : "strided");
        }
      }
    }
  }

  TestHandle handle_;
  const int64_t sa_ = kK * kM + 3, sb_ = kK * kN + 1, sc_ = kM * kN + 2;
};

TEST_F(BatchTest, StridedDouble) {
  Numbers a(CUDA_R_64F, sa_ * kBatches, &random_), b(CUDA_R_64F, sb_ * kBatches, &random_),
      c(CUDA_R_64F, sc_ * kBatches, &random_);
  double alpha = 2, beta = -1;
  OK(cublasDgemmStridedBatched(handle_, CUBLAS_OP_T, CUBLAS_OP_N, kM, kN, kK, &alpha, a.at<double>(), kK, sa_,
                               b.at<double>(), kK, sb_, &beta, c.at<double>(), kM, sc_, kBatches));
  Expect(c, a, b, sa_, sb_, sc_, CUDA_R_64F, false);
}

TEST_F(BatchTest, PointersToHalf) {
  Numbers a(CUDA_R_16F, sa_ * kBatches, &random_), b(CUDA_R_16F, sb_ * kBatches, &random_),
      c(CUDA_R_16F, sc_ * kBatches, &random_);
  Pointers pa(a, sa_, kBatches), pb(b, sb_, kBatches), pc(c, sc_, kBatches);
  float alpha = 2, beta = -1;
  OK(cublasGemmBatchedEx(handle_, CUBLAS_OP_T, CUBLAS_OP_N, kM, kN, kK, &alpha, pa.get<const void>(),
                         CUDA_R_16F, kK, pb.get<const void>(), CUDA_R_16F, kK, &beta, pc.get<void>(),
                         CUDA_R_16F, kM, kBatches, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  Expect(c, a, b, sa_, sb_, sc_, CUDA_R_32F, true);
}

TEST_F(BatchTest, PointersToComplex) {
  Numbers a(CUDA_C_32F, sa_ * kBatches, &random_), b(CUDA_C_32F, sb_ * kBatches, &random_),
      c(CUDA_C_32F, sc_ * kBatches, &random_);
  Pointers pa(a, sa_, kBatches), pb(b, sb_, kBatches), pc(c, sc_, kBatches);
  cuComplex alpha{2, 0}, beta{-1, 0};
  OK(cublasCgemmBatched(handle_, CUBLAS_OP_T, CUBLAS_OP_N, kM, kN, kK, &alpha, pa.get<const cuComplex>(), kK,
                        pb.get<const cuComplex>(), kK, &beta, pc.get<cuComplex>(), kM, kBatches));
  Expect(c, a, b, sa_, sb_, sc_, CUDA_C_32F, true);
}

TEST_F(BatchTest, StridedBFloatOneOperandForAll) {
  Numbers a(CUDA_R_16BF, sa_, &random_), b(CUDA_R_16BF, sb_ * kBatches, &random_),
      c(CUDA_R_32F, sc_ * kBatches, &random_);
  float alpha = 2, beta = -1;
  OK(cublasGemmStridedBatchedEx(handle_, CUBLAS_OP_T, CUBLAS_OP_N, kM, kN, kK, &alpha, a.at(), CUDA_R_16BF,
                                kK, 0, b.at(), CUDA_R_16BF, kK, sb_, &beta, c.at(), CUDA_R_32F, kM, sc_,
                                kBatches, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  Expect(c, a, b, 0, sb_, sc_, CUDA_R_32F, false);
}

TEST_F(BatchTest, HalfScalars) {
  Numbers a(CUDA_R_16F, sa_ * kBatches, &random_), b(CUDA_R_16F, sb_ * kBatches, &random_),
      c(CUDA_R_16F, sc_ * kBatches, &random_);
  __half alpha = __float2half(2), beta = __float2half(-1);
  OK(cublasHgemmStridedBatched(handle_, CUBLAS_OP_T, CUBLAS_OP_N, kM, kN, kK, &alpha, a.at<__half>(), kK, sa_,
                               b.at<__half>(), kK, sb_, &beta, c.at<__half>(), kM, sc_, kBatches));
  Expect(c, a, b, sa_, sb_, sc_, CUDA_R_32F, false);
}

TEST_F(BatchTest, GroupsHaveShapesOfTheirOwn) {
  constexpr int kGroups = 2;
  const cublasOperation_t ops_a[] = {CUBLAS_OP_N, CUBLAS_OP_T}, ops_b[] = {CUBLAS_OP_N, CUBLAS_OP_N};
  const int m[] = {3, 5}, n[] = {4, 2}, k[] = {2, 6}, lda[] = {3, 6}, ldb[] = {2, 6}, ldc[] = {3, 5},
            sizes[] = {1, 2};
  const float alpha[] = {1, 2}, beta[] = {0, 1};
  Numbers a(CUDA_R_32F, 200, &random_), b(CUDA_R_32F, 200, &random_), c(CUDA_R_32F, 200, &random_);
  Buffer pa(24), pb(24), pc(24);
  const int64_t offsets[] = {0, 40, 120};
  std::vector<void*> la, lb, lc;
  for (int64_t offset : offsets) {
    la.push_back(a.at(offset));
    lb.push_back(b.at(offset));
    lc.push_back(c.at(offset));
  }
  pa.Write(la.data());
  pb.Write(lb.data());
  pc.Write(lc.data());
  OK(cublasSgemmGroupedBatched(handle_, ops_a, ops_b, m, n, k, alpha, pa.at<const float*>(), lda,
                               pb.at<const float*>(), ldb, beta, pc.at<float*>(), ldc, kGroups, sizes));
  std::vector<Complex64> now = c.Now();
  for (int p = 0; p < 3; p++) {
    int g = p == 0 ? 0 : 1;
    for (int j = 0; j < n[g]; j++) {
      for (int i = 0; i < m[g]; i++) {
        Reference ra{&a.was(), lda[g], ops_a[g], offsets[p]}, rb{&b.was(), ldb[g], ops_b[g], offsets[p]};
        auto at = static_cast<size_t>(offsets[p] + i + j * ldc[g]);
        Sum sum;
        for (int l = 0; l < k[g]; l++) sum.Add(static_cast<double>(alpha[g]) * ra.at(i, l) * rb.at(l, j));
        if (beta[g] != 0) sum.Add(c.was()[at]);
        ExpectNear(now[at], sum, k[g], CUDA_R_32F, CUDA_R_32F, "grouped");
      }
    }
  }
}

TEST_F(BatchTest, NarrowMatrixVectorProducts) {
  Numbers a(CUDA_R_16BF, kBatches * kM * kN, &random_), x(CUDA_R_16BF, kBatches * 2 * kM, &random_),
      y(CUDA_R_32F, kBatches * 3 * kN, &random_);
  float alpha = -1, beta = 0.5f;
  OK(cublasTSSgemvStridedBatched(handle_, CUBLAS_OP_T, kM, kN, &alpha, a.at<__nv_bfloat16>(), kM, kM * kN,
                                 x.at<__nv_bfloat16>(), 2, 2 * kM, &beta, y.at<float>(), 3, 3 * kN,
                                 kBatches));
  std::vector<Complex64> now = y.Now();
  for (int batch = 0; batch < kBatches; batch++) {
    for (int i = 0; i < kN; i++) {
      Reference ra{&a.was(), kM, CUBLAS_OP_T, batch * kM * kN};
      auto at = static_cast<size_t>(batch * 3 * kN + 3 * i);
      Sum sum;
      for (int l = 0; l < kM; l++) sum.Add(-ra.at(i, l) * x.was()[batch * 2 * kM + 2 * l]);
      sum.Add(0.5 * y.was()[at]);
      ExpectNear(now[at], sum, kM, CUDA_R_32F, CUDA_R_32F, "gemv");
    }
  }
}

TEST_F(BatchTest, ConjugatedMatrixVectorProducts) {
  Numbers a(CUDA_C_64F, kBatches * kM * kN, &random_), x(CUDA_C_64F, kBatches * kM, &random_),
      y(CUDA_C_64F, kBatches * kN, &random_);
  cuDoubleComplex alpha{1, 0.5}, beta{0, 0};
  OK(cublasZgemvStridedBatched(handle_, CUBLAS_OP_C, kM, kN, &alpha, a.at<cuDoubleComplex>(), kM, kM * kN,
                               x.at<cuDoubleComplex>(), 1, kM, &beta, y.at<cuDoubleComplex>(), 1, kN,
                               kBatches));
  std::vector<Complex64> now = y.Now();
  for (int batch = 0; batch < kBatches; batch++) {
    for (int i = 0; i < kN; i++) {
      Reference ra{&a.was(), kM, CUBLAS_OP_C, batch * kM * kN};
      Sum sum;
      for (int l = 0; l < kM; l++) sum.Add(Complex64(1, 0.5) * ra.at(i, l) * x.was()[batch * kM + l]);
      ExpectNear(now[batch * kN + i], sum, kM, CUDA_C_64F, CUDA_C_64F, "gemv");
    }
  }
}

TEST_F(BatchTest, NoBatchDoesNothing) {
  Numbers c(CUDA_R_32F, 4, &random_);
  float one = 1;
  OK(cublasSgemmStridedBatched(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, c.at<float>(), 2, 4,
                               c.at<float>(), 2, 4, &one, c.at<float>(), 2, 4, 0));
  EXPECT_EQ(c.Now(), c.was());
  EXPECT_EQ(cublasSgemmStridedBatched(handle_, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, c.at<float>(), 2, 4,
                                      c.at<float>(), 2, 4, &one, c.at<float>(), 2, 4, -1),
            CUBLAS_STATUS_INVALID_VALUE);
}

}  // namespace
}  // namespace softgpu::blas
