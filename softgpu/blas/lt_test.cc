// cuBLASLt: products with epilogues, orders, batches and scales against double; descriptors; refusals.
#include <cublasLt.h>

#include <cmath>

#include "softgpu/blas/blas_testing.h"

namespace softgpu::blas {
namespace {

constexpr int kM = 24, kN = 15, kK = 10;

class LtHandle {
 public:
  LtHandle() { EXPECT_OK(cublasLtCreate(&handle_)); }
  ~LtHandle() { EXPECT_OK(cublasLtDestroy(handle_)); }
  operator cublasLtHandle_t() const { return handle_; }

 private:
  cublasLtHandle_t handle_ = nullptr;
};

class Layouts {
 public:
  Layouts(cudaDataType type, uint64_t rows, uint64_t cols, bool row_major = false, int gap = 1) {
    ld_ = static_cast<int64_t>(row_major ? cols : rows) + gap;
    EXPECT_OK(cublasLtMatrixLayoutCreate(&layout_, type, rows, cols, ld_));
    Set(CUBLASLT_MATRIX_LAYOUT_ORDER,
        static_cast<int32_t>(row_major ? CUBLASLT_ORDER_ROW : CUBLASLT_ORDER_COL));
    rows_ = static_cast<int64_t>(rows);
    cols_ = static_cast<int64_t>(cols);
    row_major_ = row_major;
  }
  ~Layouts() { EXPECT_OK(cublasLtMatrixLayoutDestroy(layout_)); }
  Layouts(const Layouts&) = delete;
  Layouts& operator=(const Layouts&) = delete;
  template <typename V>
  void Set(cublasLtMatrixLayoutAttribute_t attribute, V value) {
    EXPECT_OK(cublasLtMatrixLayoutSetAttribute(layout_, attribute, &value, sizeof value));
  }
  void Batch(int32_t count, int64_t stride) {
    Set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, count);
    Set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stride);
  }
  operator cublasLtMatrixLayout_t() const { return layout_; }
  int64_t size() const { return ld_ * (row_major_ ? rows_ : cols_); }
  int64_t at(int64_t i, int64_t j) const { return row_major_ ? i * ld_ + j : i + j * ld_; }
  int64_t ld() const { return ld_; }

 private:
  cublasLtMatrixLayout_t layout_ = nullptr;
  int64_t ld_ = 0, rows_ = 0, cols_ = 0;
  bool row_major_ = false;
};

class Desc {
 public:
  Desc(cublasComputeType_t compute, cudaDataType scale) {
    EXPECT_OK(cublasLtMatmulDescCreate(&desc_, compute, scale));
  }
  ~Desc() { EXPECT_OK(cublasLtMatmulDescDestroy(desc_)); }
  Desc(const Desc&) = delete;
  Desc& operator=(const Desc&) = delete;
  template <typename V>
  void Set(cublasLtMatmulDescAttributes_t attribute, V value) {
    EXPECT_OK(cublasLtMatmulDescSetAttribute(desc_, attribute, &value, sizeof value));
  }
  operator cublasLtMatmulDesc_t() const { return desc_; }

 private:
  cublasLtMatmulDesc_t desc_ = nullptr;
};

class LtTest : public BlasTest {
 protected:
  // sum over k of op(a)(i, k) * op(b)(k, j), operands as given by layouts.
  static Sum Product(const Numbers& a, const Layouts& la, cublasOperation_t op_a, const Numbers& b,
                     const Layouts& lb, cublasOperation_t op_b, int64_t i, int64_t j, double alpha,
                     int64_t first_a = 0, int64_t first_b = 0) {
    Sum sum;
    for (int l = 0; l < kK; l++) {
      Complex64 x = a.was()[first_a + (op_a == CUBLAS_OP_N ? la.at(i, l) : la.at(l, i))];
      Complex64 y = b.was()[first_b + (op_b == CUBLAS_OP_N ? lb.at(l, j) : lb.at(j, l))];
      sum.Add(alpha * (op_a == CUBLAS_OP_C ? std::conj(x) : x) * (op_b == CUBLAS_OP_C ? std::conj(y) : y));
    }
    return sum;
  }

  LtHandle handle_;
};

struct Case {
  const char* name;
  cudaDataType a, c, scale;
  cublasComputeType_t compute;
};
constexpr Case kCases[] = {
    {"f32", CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    {"f64", CUDA_R_64F, CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F},
    {"c64", CUDA_C_64F, CUDA_C_64F, CUDA_C_64F, CUBLAS_COMPUTE_64F},
    {"f16", CUDA_R_16F, CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F},
    {"bf16_f32", CUDA_R_16BF, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32},
};
class LtTypesTest : public LtTest, public testing::WithParamInterface<Case> {};

// All orders and transposes, D apart from C, two elements of a batch.
TEST_P(LtTypesTest, OrdersTransposesBatches) {
  const Case& c = GetParam();
  for (int orders = 0; orders < 8; orders++) {
    for (cublasOperation_t op_a : {CUBLAS_OP_N, CUBLAS_OP_C}) {
      for (cublasOperation_t op_b : {CUBLAS_OP_N, CUBLAS_OP_T}) {
        SCOPED_TRACE(testing::Message() << orders << " " << op_a << op_b);
        bool turn_a = op_a != CUBLAS_OP_N, turn_b = op_b != CUBLAS_OP_N;
        Layouts la(c.a, turn_a ? kK : kM, turn_a ? kM : kK, (orders & 1) != 0);
        Layouts lb(c.a, turn_b ? kN : kK, turn_b ? kK : kN, (orders & 2) != 0);
        Layouts lc(c.c, kM, kN, (orders & 4) != 0, 2), ld(c.c, kM, kN, (orders & 4) != 0, 3);
        Numbers a(c.a, 2 * la.size(), &random_), b(c.a, 2 * lb.size(), &random_),
            old(c.c, 2 * lc.size(), &random_), d(c.c, 2 * ld.size(), &random_);
        la.Batch(2, la.size());
        lb.Batch(2, lb.size());
        lc.Batch(2, lc.size());
        ld.Batch(2, ld.size());
        Desc desc(c.compute, c.scale);
        desc.Set(CUBLASLT_MATMUL_DESC_TRANSA, static_cast<int32_t>(op_a));
        desc.Set(CUBLASLT_MATMUL_DESC_TRANSB, static_cast<int32_t>(op_b));
        ScalarValue alpha(c.scale, 0.5), beta(c.scale, -2);
        OK(cublasLtMatmul(handle_, desc, alpha.get(), a.at(), la, b.at(), lb, beta.get(), old.at(), lc,
                          d.at(), ld, nullptr, nullptr, 0, nullptr));
        std::vector<Complex64> now = d.Now();
        for (int64_t batch = 0; batch < 2; batch++) {
          for (int64_t j = 0; j < kN; j++) {
            for (int64_t i = 0; i < kM; i++) {
              Sum sum = Product(a, la, op_a, b, lb, op_b, i, j, 0.5, batch * la.size(), batch * lb.size());
              sum.Add(-2.0 * old.was()[batch * lc.size() + lc.at(i, j)]);
              ExpectNear(now[batch * ld.size() + ld.at(i, j)], sum, kK,
                         c.a == CUDA_R_64F || c.a == CUDA_C_64F ? c.a : CUDA_R_32F, c.c, c.name);
            }
          }
        }
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(All, LtTypesTest, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

double Gelu(double x) { return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))); }
double GeluSlope(double x) {
  // By the quotient of differences, which shares nothing with the formula under test.
  constexpr double kStep = 1e-5;
  return (Gelu(x + kStep) - Gelu(x - kStep)) / (2 * kStep);
}

struct EpilogueCase {
  const char* name;
  cublasLtEpilogue_t epilogue;
  cudaDataType type;
  bool row_major;
};
class EpilogueTest : public LtTest, public testing::WithParamInterface<EpilogueCase> {};

TEST_P(EpilogueTest, AgreesWithDouble) {
  const EpilogueCase& c = GetParam();
  uint32_t e = c.epilogue;
  bool relu = (e & CUBLASLT_EPILOGUE_RELU) != 0, gelu = (e & CUBLASLT_EPILOGUE_GELU) != 0;
  bool drelu = (e & 8) != 0, dgelu = (e & 64) != 0, aux_used = (e & 128) != 0, bias_used = (e & 4) != 0;
  bool gradient = (e & 16) != 0, of_a = e == CUBLASLT_EPILOGUE_BGRADA, of_b = e == CUBLASLT_EPILOGUE_BGRADB;
  Layouts la(c.type, kM, kK), lb(c.type, kK, kN), ld(c.type, kM, kN, c.row_major);
  Numbers a(c.type, la.size(), &random_), b(c.type, lb.size(), &random_), d(c.type, ld.size(), &random_);
  Numbers bias(c.type, std::max(kM, kN), &random_), gelu_aux(c.type, 32 * 24, &random_);
  std::vector<unsigned char> bits(16 * 24);
  for (unsigned char& byte : bits) byte = static_cast<unsigned char>(random_());
  Buffer bit_aux(bits.size());
  bit_aux.Write(bits.data());
  Desc desc(CUBLAS_COMPUTE_32F, CUDA_R_32F);
  desc.Set(CUBLASLT_MATMUL_DESC_EPILOGUE, e);
  void* bias_pointer = bias.at();
  desc.Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias_pointer);
  bool as_bits = relu || drelu;
  void* aux_pointer = as_bits ? bit_aux.at() : gelu_aux.at();
  int64_t aux_ld = as_bits ? 128 : 32;
  if (aux_used) {
    desc.Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux_pointer);
    desc.Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, aux_ld);
  }
  float alpha = 1.5f, beta = 0;
  OK(cublasLtMatmul(handle_, desc, &alpha, a.at(), la, b.at(), lb, &beta, d.at(), ld, d.at(), ld, nullptr,
                    nullptr, 0, nullptr));
  std::vector<Complex64> now = d.Now(), new_bias = bias.Now(), new_aux = gelu_aux.Now();
  std::vector<unsigned char> new_bits(bits.size());
  bit_aux.Read(new_bits.data());
  auto bit = [&](const std::vector<unsigned char>& from, int64_t i, int64_t j) {
    int64_t at = c.row_major ? j + i * aux_ld : i + j * aux_ld;
    return (from[at / 8] >> (at % 8) & 1) != 0;
  };
  double tolerance = 64 * UnitOf(CUDA_R_32F) + 2 * UnitOf(c.type);
  std::vector<double> sums(kM);
  for (int64_t j = 0; j < kN; j++) {
    for (int64_t i = 0; i < kM; i++) {
      double x = Product(a, la, CUBLAS_OP_N, b, lb, CUBLAS_OP_N, i, j, 1.5).value.real();
      if (bias_used) x += bias.was()[i].real();
      int64_t aux_at = c.row_major ? j + i * aux_ld : i + j * aux_ld;
      double want = x, margin = tolerance * (std::fabs(x) + kK);
      if (relu) want = std::max(0.0, x);
      if (gelu) want = Gelu(x);
      if (drelu) want = bit(bits, i, j) ? x : 0;
      if (dgelu) want = x * GeluSlope(gelu_aux.was()[aux_at].real());
      EXPECT_NEAR(now[ld.at(i, j)].real(), want, margin);
      if (relu && aux_used && std::fabs(x) > margin) {
        EXPECT_EQ(bit(new_bits, i, j), x > 0);
      }
      if (gelu && aux_used) {
        EXPECT_NEAR(new_aux[aux_at].real(), x, margin);
      }
      sums[i] += now[ld.at(i, j)].real();
    }
  }
  if (gradient) {
    for (int i = 0; i < kM; i++)
      EXPECT_NEAR(new_bias[i].real(), sums[i], tolerance * (std::fabs(sums[i]) + 1));
  }
  for (int i = 0; of_a && i < kM; i++) {
    double sum = 0;
    for (int l = 0; l < kK; l++) sum += a.was()[la.at(i, l)].real();
    EXPECT_NEAR(new_bias[i].real(), sum, tolerance * (std::fabs(sum) + 1));
  }
  for (int j = 0; of_b && j < kN; j++) {
    double sum = 0;
    for (int l = 0; l < kK; l++) sum += b.was()[lb.at(l, j)].real();
    EXPECT_NEAR(new_bias[j].real(), sum, tolerance * (std::fabs(sum) + 1));
  }
}
INSTANTIATE_TEST_SUITE_P(
    All, EpilogueTest,
    testing::Values(EpilogueCase{"bias", CUBLASLT_EPILOGUE_BIAS, CUDA_R_32F, false},
                    EpilogueCase{"bias_row_major", CUBLASLT_EPILOGUE_BIAS, CUDA_R_32F, true},
                    EpilogueCase{"relu", CUBLASLT_EPILOGUE_RELU, CUDA_R_16F, false},
                    EpilogueCase{"relu_bias", CUBLASLT_EPILOGUE_RELU_BIAS, CUDA_R_32F, false},
                    EpilogueCase{"relu_aux", CUBLASLT_EPILOGUE_RELU_AUX, CUDA_R_32F, false},
                    EpilogueCase{"relu_aux_bias", CUBLASLT_EPILOGUE_RELU_AUX_BIAS, CUDA_R_16BF, false},
                    EpilogueCase{"relu_aux_row_major", CUBLASLT_EPILOGUE_RELU_AUX, CUDA_R_32F, true},
                    EpilogueCase{"gelu", CUBLASLT_EPILOGUE_GELU, CUDA_R_32F, false},
                    EpilogueCase{"gelu_bias", CUBLASLT_EPILOGUE_GELU_BIAS, CUDA_R_16F, false},
                    EpilogueCase{"gelu_aux", CUBLASLT_EPILOGUE_GELU_AUX, CUDA_R_32F, false},
                    EpilogueCase{"gelu_aux_bias", CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUDA_R_32F, false},
                    EpilogueCase{"drelu", CUBLASLT_EPILOGUE_DRELU, CUDA_R_16F, false},
                    EpilogueCase{"drelu_bgrad", CUBLASLT_EPILOGUE_DRELU_BGRAD, CUDA_R_32F, false},
                    EpilogueCase{"dgelu", CUBLASLT_EPILOGUE_DGELU, CUDA_R_32F, false},
                    EpilogueCase{"dgelu_bgrad", CUBLASLT_EPILOGUE_DGELU_BGRAD, CUDA_R_32F, false},
                    EpilogueCase{"dgelu_bgrad_row_major", CUBLASLT_EPILOGUE_DGELU_BGRAD, CUDA_R_32F, true},
                    EpilogueCase{"bgrada", CUBLASLT_EPILOGUE_BGRADA, CUDA_R_32F, false},
                    EpilogueCase{"bgradb", CUBLASLT_EPILOGUE_BGRADB, CUDA_R_16F, false},
                    EpilogueCase{"bgradb_row_major", CUBLASLT_EPILOGUE_BGRADB, CUDA_R_32F, true}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_F(LtTest, EightBitFloatsHaveScales) {
  Layouts la(CUDA_R_8F_E4M3, kK, kM), lb(CUDA_R_8F_E5M2, kK, kN), lc(CUDA_R_16BF, kM, kN),
      ld(CUDA_R_8F_E4M3, kM, kN);
  Numbers a(CUDA_R_8F_E4M3, la.size(), &random_), b(CUDA_R_8F_E5M2, lb.size(), &random_),
      c(CUDA_R_16BF, lc.size(), &random_), d(CUDA_R_8F_E4M3, ld.size(), &random_);
  Numbers scales(CUDA_R_32F, {Complex64(2), Complex64(0.5), Complex64(4), Complex64(-1)});
  Desc desc(CUBLAS_COMPUTE_32F, CUDA_R_32F);
  desc.Set(CUBLASLT_MATMUL_DESC_TRANSA, static_cast<int32_t>(CUBLAS_OP_T));
  desc.Set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scales.at(0));
  desc.Set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scales.at(1));
  desc.Set(CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, scales.at(2));
  desc.Set(CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, scales.at(3));
  desc.Set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<int8_t>(1));
  float alpha = 3, beta = 1;
  OK(cublasLtMatmul(handle_, desc, &alpha, a.at(), la, b.at(), lb, &beta, c.at(), lc, d.at(), ld, nullptr,
                    nullptr, 0, nullptr));
  std::vector<Complex64> now = d.Now();
  double largest = 0;
  for (int64_t j = 0; j < kN; j++) {
    for (int64_t i = 0; i < kM; i++) {
      Sum sum = Product(a, la, CUBLAS_OP_T, b, lb, CUBLAS_OP_N, i, j, 3);
      sum.Add(c.was()[lc.at(i, j)]);
      largest = std::max(largest, std::abs(sum.value));
      Sum scaled{4.0 * sum.value, 4 * sum.magnitude};
      ExpectNear(now[ld.at(i, j)], scaled, kK, CUDA_R_32F, CUDA_R_8F_E4M3, "e4m3");
    }
  }
  EXPECT_NEAR(scales.Now()[3].real(), largest, 1e-5 * largest);
}

TEST_F(LtTest, ScalarsOnTheDeviceAndAWorkspace) {
  Layouts la(CUDA_R_16F, kM, kK), lb(CUDA_R_16F, kK, kN), ld(CUDA_R_16F, kM, kN);
  Numbers a(CUDA_R_16F, la.size(), &random_), b(CUDA_R_16F, lb.size(), &random_);
  Numbers d(CUDA_R_16F, ld.size(), &random_), e(CUDA_R_16F, d.was());
  Numbers factors(CUDA_R_32F, {Complex64(2), Complex64(-1)});
  Buffer workspace(4 << 20);
  cublasLtMatmulPreference_t preference = nullptr;
  OK(cublasLtMatmulPreferenceCreate(&preference));
  uint64_t bytes = workspace.bytes();
  OK(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                          sizeof bytes));
  Desc desc(CUBLAS_COMPUTE_32F, CUDA_R_32F), on_device(CUBLAS_COMPUTE_32F, CUDA_R_32F);
  on_device.Set(CUBLASLT_MATMUL_DESC_POINTER_MODE, static_cast<int32_t>(CUBLASLT_POINTER_MODE_DEVICE));
  cublasLtMatmulHeuristicResult_t result{};
  int count = 0;
  OK(cublasLtMatmulAlgoGetHeuristic(handle_, desc, la, lb, ld, ld, preference, 1, &result, &count));
  ASSERT_EQ(count, 1);
  EXPECT_EQ(result.state, CUBLAS_STATUS_SUCCESS);
  EXPECT_LE(result.workspaceSize, bytes);
  float alpha = 2, beta = -1;
  OK(cublasLtMatmul(handle_, desc, &alpha, a.at(), la, b.at(), lb, &beta, d.at(), ld, d.at(), ld,
                    &result.algo, workspace.at(), bytes, nullptr));
  OK(cublasLtMatmul(handle_, on_device, factors.at(0), a.at(), la, b.at(), lb, factors.at(1), e.at(), ld,
                    e.at(), ld, nullptr, nullptr, 0, nullptr));
  EXPECT_EQ(d.Bytes(), e.Bytes());
  OK(cublasLtMatmulPreferenceDestroy(preference));
}

TEST_F(LtTest, AHandleOfCublasIsOneOfTheseToo) {
  TestHandle blas;
  auto handle = reinterpret_cast<cublasLtHandle_t>(static_cast<cublasHandle_t>(blas));
  Layouts l(CUDA_R_32F, 2, 2, false, 0);
  Numbers a(CUDA_R_32F, {1, 2, 3, 4}), d(CUDA_R_32F, {0, 0, 0, 0});
  Desc desc(CUBLAS_COMPUTE_32F, CUDA_R_32F);
  float one = 1, zero = 0;
  OK(cublasLtMatmul(handle, desc, &one, a.at(), l, a.at(), l, &zero, nullptr, l, d.at(), l, nullptr, nullptr,
                    0, nullptr));
  EXPECT_EQ(d.Now(), (std::vector<Complex64>{7, 10, 15, 22}));
}

TEST_F(LtTest, AttributesAreKept) {
  Layouts l(CUDA_R_16F, 7, 9);
  uint64_t rows = 0;
  size_t written = 0;
  OK(cublasLtMatrixLayoutGetAttribute(l, CUBLASLT_MATRIX_LAYOUT_ROWS, nullptr, 0, &written));
  EXPECT_EQ(written, sizeof rows);
  OK(cublasLtMatrixLayoutGetAttribute(l, CUBLASLT_MATRIX_LAYOUT_ROWS, &rows, sizeof rows, &written));
  EXPECT_EQ(rows, 7u);
  EXPECT_EQ(cublasLtMatrixLayoutGetAttribute(l, CUBLASLT_MATRIX_LAYOUT_ROWS, &rows, 4, &written),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasLtMatrixLayoutSetAttribute(l, static_cast<cublasLtMatrixLayoutAttribute_t>(99), &rows, 8),
            CUBLAS_STATUS_INVALID_VALUE);
  Desc desc(CUBLAS_COMPUTE_32F, CUDA_R_32F);
  uint32_t epilogue = 0;
  desc.Set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(CUBLASLT_EPILOGUE_GELU));
  OK(cublasLtMatmulDescGetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue,
                                    nullptr));
  EXPECT_EQ(epilogue, CUBLASLT_EPILOGUE_GELU);
  cublasLtMatmulDescOpaque_t provided;
  OK(cublasLtMatmulDescInit(&provided, CUBLAS_COMPUTE_64F, CUDA_R_64F));
  int32_t compute = 0;
  OK(cublasLtMatmulDescGetAttribute(&provided, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, &compute, sizeof compute,
                                    nullptr));
  EXPECT_EQ(compute, CUBLAS_COMPUTE_64F);
  cublasLtMatmulAlgo_t algorithm;
  OK(cublasLtMatmulAlgoInit(handle_, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F,
                            CUDA_R_32F, 0, &algorithm));
  int32_t split = 0, id = -1;
  OK(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split, sizeof split,
                                          nullptr));
  OK(cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_ID, &id, sizeof id, nullptr));
  EXPECT_EQ(split, 1);
  EXPECT_EQ(id, 0);
}

std::vector<std::string> g_logged;
void Log(int, const char* function, const char* message) {
  g_logged.push_back(std::string(function) + " " + message);
}

TEST_F(LtTest, RefusesWhatIsWrong) {
  Layouts l(CUDA_R_32F, 4, 4), other(CUDA_R_32F, 5, 4), half(CUDA_R_16F, 4, 4), tiled(CUDA_R_32F, 4, 4);
  Numbers m(CUDA_R_32F, 64, &random_);
  float one = 1;
  auto run = [&](cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                 cublasLtMatrixLayout_t d, void* out) {
    return cublasLtMatmul(handle, desc, &one, m.at(), a, m.at(), l, &one, m.at(), d, out, d, nullptr, nullptr,
                          0, nullptr);
  };
  Desc desc(CUBLAS_COMPUTE_32F, CUDA_R_32F), with_bias(CUBLAS_COMPUTE_32F, CUDA_R_32F);
  OK(run(handle_, desc, l, l, m.at()));
  OK(cublasLtLoggerSetCallback(&Log));
  OK(cublasLtLoggerSetLevel(1));
  EXPECT_EQ(run(handle_, desc, other, l, m.at()), CUBLAS_STATUS_INVALID_VALUE) << "shapes";
  EXPECT_EQ(g_logged, std::vector<std::string>{"cublasLtMatmul CUBLAS_STATUS_INVALID_VALUE"});
  OK(cublasLtLoggerSetLevel(0));
  EXPECT_EQ(run(handle_, desc, half, l, m.at()), CUBLAS_STATUS_NOT_SUPPORTED) << "types";
  EXPECT_EQ(run(handle_, desc, l, l, nullptr), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(run(handle_, nullptr, l, l, m.at()), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(run(nullptr, desc, l, l, m.at()), CUBLAS_STATUS_NOT_INITIALIZED);
  tiled.Set(CUBLASLT_MATRIX_LAYOUT_ORDER, static_cast<int32_t>(CUBLASLT_ORDER_COL32));
  EXPECT_EQ(run(handle_, desc, tiled, l, m.at()), CUBLAS_STATUS_NOT_SUPPORTED);
  with_bias.Set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(CUBLASLT_EPILOGUE_BIAS));
  EXPECT_EQ(run(handle_, with_bias, l, l, m.at()), CUBLAS_STATUS_INVALID_VALUE) << "no bias";
  with_bias.Set(CUBLASLT_MATMUL_DESC_EPILOGUE, 3u);
  EXPECT_EQ(run(handle_, with_bias, l, l, m.at()), CUBLAS_STATUS_INVALID_VALUE) << "no such epilogue";
  cublasLtMatmulAlgo_t algorithm{};
  EXPECT_EQ(cublasLtMatmul(handle_, desc, &one, m.at(), l, m.at(), l, &one, m.at(), l, m.at(), l, &algorithm,
                           nullptr, 0, nullptr),
            CUBLAS_STATUS_INVALID_VALUE)
      << "an algorithm that nobody initialised";
}

TEST_F(LtTest, TransformsOrdersAndTypes) {
  Layouts from(CUDA_R_16F, 6, 4, true), to(CUDA_R_32F, 4, 6, false, 2);
  Numbers a(CUDA_R_16F, from.size(), &random_), b(CUDA_R_32F, to.size(), &random_),
      c(CUDA_R_32F, to.size(), &random_);
  cublasLtMatrixTransformDesc_t desc = nullptr;
  OK(cublasLtMatrixTransformDescCreate(&desc, CUDA_R_32F));
  int32_t op = CUBLAS_OP_T;
  OK(cublasLtMatrixTransformDescSetAttribute(desc, CUBLASLT_MATRIX_TRANSFORM_DESC_TRANSA, &op, sizeof op));
  float alpha = 2, beta = -0.5f;
  OK(cublasLtMatrixTransform(handle_, desc, &alpha, a.at(), from, &beta, b.at(), to, c.at(), to, nullptr));
  std::vector<Complex64> now = c.Now();
  for (int64_t j = 0; j < 6; j++) {
    for (int64_t i = 0; i < 4; i++) {
      Sum sum;
      sum.Add(2.0 * a.was()[from.at(j, i)]);
      sum.Add(-0.5 * b.was()[to.at(i, j)]);
      ExpectNear(now[to.at(i, j)], sum, 2, CUDA_R_32F, CUDA_R_32F, "transform");
    }
  }
  OK(cublasLtMatrixTransformDescDestroy(desc));
}

}  // namespace
}  // namespace softgpu::blas
