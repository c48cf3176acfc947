// The GEMM family against products in double by the definition.
#include <cuda_fp16.h>

#include "softgpu/blas/blas_testing.h"

namespace softgpu::blas {
namespace {

struct Types {
  const char* name;
  cudaDataType a, c, scale;
  cublasComputeType_t compute;
};
constexpr Types kTypes[] = {
    {"f32", CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    {"f32_tf32", CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32},
    {"f64", CUDA_R_64F, CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F},
    {"c32", CUDA_C_32F, CUDA_C_32F, CUDA_C_32F, CUBLAS_COMPUTE_32F},
    {"c64", CUDA_C_64F, CUDA_C_64F, CUDA_C_64F, CUBLAS_COMPUTE_64F},
    {"f16", CUDA_R_16F, CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    {"f16_f16", CUDA_R_16F, CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_16F},
    {"f16_f32", CUDA_R_16F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    {"bf16", CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    {"bf16_f32", CUDA_R_16BF, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    {"i8_i32", CUDA_R_8I, CUDA_R_32I, CUDA_R_32I, CUBLAS_COMPUTE_32I},
    {"i8_f32", CUDA_R_8I, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
};

// In what sums are kept: int8 products are exact, and scaled in f32.
cudaDataType Arithmetic(const Types& types) {
  return types.a == CUDA_R_64F || types.a == CUDA_C_64F ? types.a : CUDA_R_32F;
}

struct Problem {
  int64_t m, n, k;
  cublasOperation_t op_a, op_b;
  int64_t gap = 0;  // of the leading dimensions
  int64_t lda() const { return std::max<int64_t>(1, op_a == CUBLAS_OP_N ? m : k) + gap; }
  int64_t ldb() const { return std::max<int64_t>(1, op_b == CUBLAS_OP_N ? k : n) + gap; }
  int64_t ldc() const { return std::max<int64_t>(1, m) + gap; }
  size_t a_size() const { return static_cast<size_t>(lda() * (op_a == CUBLAS_OP_N ? k : m)); }
  size_t b_size() const { return static_cast<size_t>(ldb() * (op_b == CUBLAS_OP_N ? n : k)); }
  size_t c_size() const { return static_cast<size_t>(ldc() * n); }
};

void ExpectProduct(const Types& types, const Problem& p, const Reference& a, const Reference& b,
                   const Reference& c, const Reference& got, Complex64 alpha, Complex64 beta) {
  for (int64_t j = 0; j < p.n; j++) {
    for (int64_t i = 0; i < p.m; i++) {
      Sum sum;
      for (int64_t l = 0; l < p.k && alpha != Complex64(0); l++) sum.Add(alpha * a.at(i, l) * b.at(l, j));
      if (beta != Complex64(0)) sum.Add(beta * c.at(i, j));
      ExpectNear(got.at(i, j), sum, p.k, Arithmetic(types), types.c, types.name);
      if (testing::Test::HasFailure()) FAIL() << "at " << i << ", " << j;
    }
  }
  // What lies between the columns stays.
  for (int64_t j = 0; j < p.n; j++) {
    for (int64_t i = p.m; i < p.ldc(); i++) EXPECT_EQ(got.at(i, j), c.at(i, j));
  }
}

class GemmTest : public BlasTest {
 protected:
  void Check(const Types& types, const Problem& p, Complex64 alpha_value, Complex64 beta_value) {
    SCOPED_TRACE(testing::Message() << types.name << " " << p.m << "x" << p.n << "x" << p.k << " " << p.op_a
                                    << p.op_b << " gap " << p.gap);
    Numbers a(types.a, p.a_size(), &random_, 1), b(types.a, p.b_size(), &random_, 3);
    Numbers c(types.c, p.c_size(), &random_, 1);
    ScalarValue alpha(types.scale, alpha_value), beta(types.scale, beta_value);
    OK(cublasGemmEx(handle_, p.op_a, p.op_b, static_cast<int>(p.m), static_cast<int>(p.n),
                    static_cast<int>(p.k), alpha.get(), a.at(), types.a, static_cast<int>(p.lda()), b.at(),
                    types.a, static_cast<int>(p.ldb()), beta.get(), c.at(), types.c,
                    static_cast<int>(p.ldc()), types.compute, CUBLAS_GEMM_DEFAULT));
    std::vector<Complex64> now = c.Now();
    ExpectProduct(types, p, {&a.was(), p.lda(), p.op_a}, {&b.was(), p.ldb(), p.op_b}, {&c.was(), p.ldc()},
                  {&now, p.ldc()}, alpha_value, beta_value);
  }

  TestHandle handle_;
};

class GemmTypesTest : public GemmTest, public testing::WithParamInterface<Types> {
 protected:
  bool integers() const { return GetParam().scale == CUDA_R_32I; }
  Complex64 alpha() const {
    if (integers()) return 3;
    return IsComplex(GetParam().a) ? Complex64(0.5, -1.25) : Complex64(0.5);
  }
  Complex64 beta() const {
    if (integers()) return -2;
    return IsComplex(GetParam().a) ? Complex64(-0.75, 0.5) : Complex64(-0.75);
  }
};

TEST_P(GemmTypesTest, AllTransposesAndShapes) {
  constexpr cublasOperation_t kOps[] = {CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C};
  constexpr int64_t kShapes[][3] = {{1, 1, 1}, {5, 3, 7}, {16, 8, 4}, {33, 17, 65}, {64, 1, 32}, {1, 64, 32}};
  for (cublasOperation_t op_a : kOps) {
    for (cublasOperation_t op_b : kOps) {
      for (const auto& s : kShapes) Check(GetParam(), {s[0], s[1], s[2], op_a, op_b, 2}, alpha(), beta());
    }
  }
}

TEST_P(GemmTypesTest, LargerThanATile) {
  Check(GetParam(), {270, 34, 520, CUBLAS_OP_N, CUBLAS_OP_T, 0}, alpha(), beta());
  Check(GetParam(), {20, 300, 257, CUBLAS_OP_T, CUBLAS_OP_N, 5}, alpha(), 0);
}

TEST_P(GemmTypesTest, NothingToSum) {
  Check(GetParam(), {9, 5, 0, CUBLAS_OP_N, CUBLAS_OP_N, 1}, alpha(), beta());
  Check(GetParam(), {9, 5, 0, CUBLAS_OP_N, CUBLAS_OP_N, 1}, alpha(), 0);
  Check(GetParam(), {9, 5, 4, CUBLAS_OP_N, CUBLAS_OP_N, 1}, 0, beta());
  Check(GetParam(), {0, 5, 4, CUBLAS_OP_N, CUBLAS_OP_N, 1}, alpha(), beta());
}

// The same bits wherever the operands lie, and with any workspace.
TEST_P(GemmTypesTest, TheBitsDependOnTheOperandsAlone) {
  const Types& types = GetParam();
  Problem p{67, 45, 130, CUBLAS_OP_T, CUBLAS_OP_N, 1};
  ScalarValue alpha(types.scale, this->alpha()), beta(types.scale, this->beta());
  std::vector<unsigned char> first;
  Buffer workspace(4096, 0);
  for (size_t offset : {0, 1, 2, 3, 5, 7, 11}) {
    std::mt19937 random(7);
    Numbers a(types.a, p.a_size(), &random, offset), b(types.a, p.b_size(), &random, 3 * offset);
    Numbers c(types.c, p.c_size(), &random, offset + 1);
    if (offset == 7) {
      OK(cublasSetWorkspace(handle_, workspace.at(), workspace.bytes()));
    } else if (offset == 11) {
      OK(cublasSetWorkspace(handle_, nullptr, 0));
    }
    OK(cublasGemmEx(handle_, p.op_a, p.op_b, 67, 45, 130, alpha.get(), a.at(), types.a,
                    static_cast<int>(p.lda()), b.at(), types.a, static_cast<int>(p.ldb()), beta.get(), c.at(),
                    types.c, static_cast<int>(p.ldc()), types.compute, CUBLAS_GEMM_DEFAULT));
    std::vector<unsigned char> bytes = c.Bytes();
    if (offset == 0) first = bytes;
    EXPECT_EQ(bytes, first) << "offset " << offset;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GemmTypesTest, testing::ValuesIn(kTypes),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace softgpu::blas
