// Vectors with vectors, typed and Ex, against double.
#include <cmath>

#include "softgpu/blas/blas_testing.h"

namespace softgpu::blas {
namespace {

// Element i of a vector of the BLAS among its numbers.
int64_t At(int64_t i, int64_t n, int64_t increment) {
  return increment > 0 ? i * increment : (i - n + 1) * increment;
}
size_t Span(int64_t n, int64_t increment) { return static_cast<size_t>((n - 1) * std::abs(increment) + 1); }

struct Increments {
  int64_t x, y;
};
constexpr Increments kIncrements[] = {{1, 1}, {2, 3}, {-1, 2}, {-3, -2}};
constexpr int64_t kSizes[] = {1, 7, 64, 1000};

template <typename T>
class Level1Test : public BlasTest {
 protected:
  static constexpr cudaDataType kType = Traits<T>::kType;
  static constexpr bool kComplex = kType == CUDA_C_32F || kType == CUDA_C_64F;
  using Value = ValueOf<T>;
  using Real = RealOf<T>;

  // Calls check(n, increments, x, y) for all sizes.
  template <typename Check>
  void ForAll(Check check) {
    for (int64_t n : kSizes) {
      for (const Increments& inc : kIncrements) {
        SCOPED_TRACE(testing::Message() << "n " << n << " increments " << inc.x << " " << inc.y);
        Numbers x(kType, Span(n, inc.x), &random_, 1), y(kType, Span(n, inc.y), &random_, 3);
        check(n, inc, x, y);
      }
    }
  }
  // Compares y's elements with want(i), and that the others stay.
  template <typename Want>
  void Expect(const Numbers& y, int64_t n, int64_t increment, Want want) {
    std::vector<Complex64> now = y.Now();
    std::vector<bool> used(now.size());
    for (int64_t i = 0; i < n; i++) {
      int64_t at = At(i, n, increment);
      used[at] = true;
      ExpectNear(now[at], want(i), 2, kType, kType, "element");
    }
    for (size_t i = 0; i < now.size(); i++) {
      if (!used[i]) {
        EXPECT_EQ(now[i], y.was()[i]) << i;
      }
    }
  }
  static Sum Two(Complex64 a, Complex64 b) {
    Sum sum;
    sum.Add(a);
    sum.Add(b);
    return sum;
  }
  static Complex64 Widen(T value) {
    Value plain;
    std::memcpy(static_cast<void*>(&plain), &value, sizeof value);
    return Complex64(plain);
  }

  template <typename F>
  static T Make(F re, F im) {
    T value{};
    StoreElement(kType, &value, 0, Complex64(re, im));
    return value;
  }

  TestHandle handle_;
};

template <typename T>
struct Api;
#define API(T, X, NRM2, ASUM, IAMAX, IAMIN, DOT)       \
  template <>                                          \
  struct Api<T> {                                      \
    static constexpr auto Axpy = cublas##X##axpy;      \
    static constexpr auto Axpy64 = cublas##X##axpy_64; \
    static constexpr auto Scal = cublas##X##scal;      \
    static constexpr auto Copy = cublas##X##copy;      \
    static constexpr auto Swap = cublas##X##swap;      \
    static constexpr auto Rot = cublas##X##rot;        \
    static constexpr auto Rotg = cublas##X##rotg;      \
    static constexpr auto Nrm2 = NRM2;                 \
    static constexpr auto Asum = ASUM;                 \
    static constexpr auto Iamax = IAMAX;               \
    static constexpr auto Iamin = IAMIN;               \
    static constexpr auto Dot = DOT;                   \
  };
API(float, S, cublasSnrm2, cublasSasum, cublasIsamax, cublasIsamin, cublasSdot)
API(double, D, cublasDnrm2, cublasDasum, cublasIdamax, cublasIdamin, cublasDdot)
API(cuComplex, C, cublasScnrm2, cublasScasum, cublasIcamax, cublasIcamin, cublasCdotu)
API(cuDoubleComplex, Z, cublasDznrm2, cublasDzasum, cublasIzamax, cublasIzamin, cublasZdotu)
#undef API

using AllTypes = testing::Types<float, double, cuComplex, cuDoubleComplex>;
TYPED_TEST_SUITE(Level1Test, AllTypes);

TYPED_TEST(Level1Test, AxpyCopySwapScal) {
  using T = TypeParam;
  T alpha = this->Make(-0.75, 0.5);
  Complex64 a = this->Widen(alpha);
  this->ForAll([&](int64_t n, const Increments& inc, const Numbers& x, const Numbers& y) {
    auto was = [](const Numbers& v, int64_t i, int64_t count, int64_t increment) {
      return v.was()[At(i, count, increment)];
    };
    OK(Api<T>::Axpy64(this->handle_, n, &alpha, x.template at<T>(), inc.x, y.template at<T>(), inc.y));
    this->Expect(y, n, inc.y,
                 [&](int64_t i) { return this->Two(was(y, i, n, inc.y), a * was(x, i, n, inc.x)); });
    Numbers z(this->kType, Span(n, inc.y), &this->random_, 2);
    OK(Api<T>::Copy(this->handle_, static_cast<int>(n), x.template at<T>(), static_cast<int>(inc.x),
                    z.template at<T>(), static_cast<int>(inc.y)));
    this->Expect(z, n, inc.y, [&](int64_t i) { return this->Two(was(x, i, n, inc.x), 0); });
    Numbers p(this->kType, Span(n, inc.x), &this->random_), q(this->kType, Span(n, inc.y), &this->random_);
    OK(Api<T>::Swap(this->handle_, static_cast<int>(n), p.template at<T>(), static_cast<int>(inc.x),
                    q.template at<T>(), static_cast<int>(inc.y)));
    this->Expect(p, n, inc.x, [&](int64_t i) { return this->Two(was(q, i, n, inc.y), 0); });
    this->Expect(q, n, inc.y, [&](int64_t i) { return this->Two(was(p, i, n, inc.x), 0); });
    Numbers s(this->kType, Span(n, inc.x), &this->random_);
    OK(Api<T>::Scal(this->handle_, static_cast<int>(n), &alpha, s.template at<T>(), static_cast<int>(inc.x)));
    this->Expect(s, n, inc.x, [&](int64_t i) {
      return this->Two(was(s, i, n, inc.x) * (inc.x > 0 ? a : Complex64(1)), 0);
    });
  });
}

TYPED_TEST(Level1Test, Reductions) {
  using T = TypeParam;
  using Real = RealOf<T>;
  this->ForAll([&](int64_t n, const Increments& inc, const Numbers& x, const Numbers& y) {
    T dot{};
    OK(Api<T>::Dot(this->handle_, static_cast<int>(n), x.template at<T>(), static_cast<int>(inc.x),
                   y.template at<T>(), static_cast<int>(inc.y), &dot));
    Sum sum;
    for (int64_t i = 0; i < n; i++) sum.Add(x.was()[At(i, n, inc.x)] * y.was()[At(i, n, inc.y)]);
    ExpectNear(this->Widen(dot), sum, n, CUDA_R_64F, this->kType, "dot");
    int64_t count = inc.x > 0 ? n : 0;
    double squares = 0, sizes = 0, largest = -1, smallest = 1e9;
    int most = 0, least = 0;
    for (int64_t i = 0; i < count; i++) {
      Complex64 value = x.was()[At(i, n, inc.x)];
      double size = std::fabs(value.real()) + std::fabs(value.imag());
      squares += std::norm(value);
      sizes += size;
      if (size > largest) most = static_cast<int>(i) + 1;
      if (size < smallest) least = static_cast<int>(i) + 1;
      largest = std::max(largest, size);
      smallest = std::min(smallest, size);
    }
    Real norm = -1, asum = -1;
    int max = -1, min = -1;
    auto* data = x.template at<T>();
    auto length = static_cast<int>(n), increment = static_cast<int>(inc.x);
    OK(Api<T>::Nrm2(this->handle_, length, data, increment, &norm));
    OK(Api<T>::Asum(this->handle_, length, data, increment, &asum));
    OK(Api<T>::Iamax(this->handle_, length, data, increment, &max));
    OK(Api<T>::Iamin(this->handle_, length, data, increment, &min));
    double unit = 4 * UnitOf(this->kType);
    EXPECT_NEAR(norm, std::sqrt(squares), unit * static_cast<double>(n) * std::sqrt(squares));
    EXPECT_NEAR(asum, sizes, unit * static_cast<double>(n) * sizes);
    EXPECT_EQ(max, most);
    EXPECT_EQ(min, least);
  });
}

TYPED_TEST(Level1Test, Rotations) {
  using T = TypeParam;
  using Real = RealOf<T>;
  Real c = Real(0.6);
  T s = this->kComplex ? this->Make(0.48, 0.64) : this->Make(0.8, 0.0);
  Complex64 sine = this->Widen(s);
  this->ForAll([&](int64_t n, const Increments& inc, const Numbers& x, const Numbers& y) {
    OK(Api<T>::Rot(this->handle_, static_cast<int>(n), x.template at<T>(), static_cast<int>(inc.x),
                   y.template at<T>(), static_cast<int>(inc.y), &c, &s));
    auto a = [&](int64_t i) { return x.was()[At(i, n, inc.x)]; };
    auto b = [&](int64_t i) { return y.was()[At(i, n, inc.y)]; };
    this->Expect(x, n, inc.x, [&](int64_t i) { return this->Two(double(c) * a(i), sine * b(i)); });
    this->Expect(y, n, inc.y,
                 [&](int64_t i) { return this->Two(double(c) * b(i), -std::conj(sine) * a(i)); });
  });
}

TYPED_TEST(Level1Test, RotgMakesTheSecondZero) {
  using T = TypeParam;
  using Real = RealOf<T>;
  for (auto [re_a, re_b] :
       {std::pair{3.0, 4.0}, {-4.0, 3.0}, {0.0, 2.0}, {2.0, 0.0}, {0.0, 0.0}, {1e-3, -5.0}}) {
    T a = this->Make(re_a, re_a / 2), b = this->Make(re_b, -re_b), s{};
    Complex64 x = this->Widen(a), y = this->Widen(b);
    Real c{};
    OK(Api<T>::Rotg(this->handle_, &a, &b, &c, &s));
    Complex64 sine = this->Widen(s), r = this->Widen(a);
    double unit = 16 * UnitOf(this->kType) * (std::abs(x) + std::abs(y));
    EXPECT_LE(std::abs(double(c) * x + sine * y - r), unit);
    EXPECT_LE(std::abs(double(c) * y - std::conj(sine) * x), unit);
    EXPECT_NEAR(c * c + std::norm(sine), 1, 16 * UnitOf(this->kType));
  }
}

TYPED_TEST(Level1Test, ScalarsAndResultsOnTheDeviceAreReadInOrder) {
  using T = TypeParam;
  using Real = RealOf<T>;
  constexpr int kCount = 20;
  OK(cublasSetPointerMode(this->handle_, CUBLAS_POINTER_MODE_DEVICE));
  Numbers x(this->kType, kCount, &this->random_), y(this->kType, kCount, &this->random_);
  Numbers alpha(this->kType, {Complex64(1)}), dot(this->kType, {Complex64(0)});
  constexpr cudaDataType kReal = Traits<Real>::kType;
  Numbers norm(kReal, {Complex64(0)});
  // alpha = x . y, then y += alpha * x, then the length of y: each takes what the one before left.
  auto* px = x.template at<T>();
  auto* py = y.template at<T>();
  OK(Api<T>::Dot(this->handle_, kCount, px, 1, py, 1, alpha.template at<T>()));
  OK(Api<T>::Axpy(this->handle_, kCount, alpha.template at<T>(), px, 1, py, 1));
  OK(Api<T>::Nrm2(this->handle_, kCount, py, 1, norm.template at<Real>()));
  OK(Api<T>::Dot(this->handle_, 0, px, 1, py, 1, dot.template at<T>()));
  Complex64 a = 0;
  for (int i = 0; i < kCount; i++) a += x.was()[i] * y.was()[i];
  double squares = 0;
  for (int i = 0; i < kCount; i++) squares += std::norm(y.was()[i] + a * x.was()[i]);
  EXPECT_NEAR(norm.Now()[0].real(), std::sqrt(squares), 64 * UnitOf(this->kType) * std::sqrt(squares));
  EXPECT_EQ(dot.Now()[0], Complex64(0));
}

class ModifiedTest : public BlasTest {
 protected:
  TestHandle handle_;
};

// The rotation that rotmg makes turns (x1, y1) scaled by the weights' roots into one without a second part.
TEST_F(ModifiedTest, RotmgMakesTheSecondZero) {
  for (auto [w1, w2, a, b] : {std::array{1.0, 2.0, 3.0, 4.0},
                              {2.0, 1.0, 5.0, -1.0},
                              {1e9, 1e-9, 1.0, 1.0},
                              {1e-10, 3.0, 2.0, 1e-3},
                              {3.0, 0.0, 1.0, 2.0},
                              {-1.0, 1.0, 1.0, 1.0}}) {
    double d1 = w1, d2 = w2, x1 = a, y1 = b, param[5] = {0, 0, 0, 0, 0};
    OK(cublasDrotmg(handle_, &d1, &d2, &x1, &y1, param));
    if (w1 < 0) {
      EXPECT_EQ(param[0], -1);
      EXPECT_EQ(x1, 0);
      continue;
    }
    Numbers x(CUDA_R_64F, {Complex64(a)}), y(CUDA_R_64F, {Complex64(b)});
    OK(cublasDrotm(handle_, 1, x.at<double>(), 1, y.at<double>(), 1, param));
    double p = x.Now()[0].real(), q = y.Now()[0].real();
    if (param[0] == -2) {
      EXPECT_EQ(p, a);
      EXPECT_EQ(q, b);
      continue;
    }
    EXPECT_NEAR(p, x1, 1e-12 * std::fabs(x1));
    EXPECT_NEAR(q, 0, 1e-9 * (std::fabs(a) + std::fabs(b)));
    EXPECT_NEAR(d1 * p * p, w1 * a * a + w2 * b * b, 1e-12 * (w1 * a * a + w2 * b * b)) << "lengths stay";
  }
}

// ---- Ex
class ExtendedTest : public BlasTest, public testing::WithParamInterface<cudaDataType> {
 protected:
  TestHandle handle_;
};

TEST_P(ExtendedTest, AgreesWithDouble) {
  cudaDataType type = GetParam();
  cudaDataType execution = type == CUDA_R_64F || type == CUDA_C_64F ? type
                           : IsComplex(type)                        ? CUDA_C_32F
                                                                    : CUDA_R_32F;
  cudaDataType real = type == CUDA_C_32F ? CUDA_R_32F : type == CUDA_C_64F ? CUDA_R_64F : type;
  constexpr int kCount = 33;
  Numbers x(type, 2 * kCount - 1, &random_, 1), y(type, kCount, &random_, 1), z(type, kCount, &random_);
  ScalarValue alpha(execution, IsComplex(type) ? Complex64(0.5, 2) : Complex64(-1.5));
  ScalarValue dot(type, 0), norm(real, 0), asum(real, 0);
  auto* dot_result = const_cast<void*>(dot.get());
  auto* norm_result = const_cast<void*>(norm.get());
  auto* asum_result = const_cast<void*>(asum.get());
  int max = 0;
  OK(cublasDotcEx(handle_, kCount, x.at(), type, 2, y.at(), type, 1, dot_result, type, execution));
  OK(cublasNrm2Ex(handle_, kCount, x.at(), type, 2, norm_result, real, execution));
  OK(cublasAsumEx(handle_, kCount, x.at(), type, 2, asum_result, real, execution));
  OK(cublasIamaxEx(handle_, kCount, x.at(), type, 2, &max));
  OK(cublasAxpyEx(handle_, kCount, alpha.get(), execution, x.at(), type, 2, y.at(), type, 1, execution));
  OK(cublasCopyEx(handle_, kCount, x.at(), type, 2, z.at(), type, 1));
  OK(cublasScalEx(handle_, kCount, alpha.get(), execution, x.at(), type, 2, execution));
  Sum product, squares, sizes;
  double largest = -1;
  int most = 0;
  std::vector<Complex64> new_x = x.Now(), new_y = y.Now(), new_z = z.Now();
  for (int i = 0; i < kCount; i++) {
    Complex64 value = x.was()[2 * i];
    product.Add(std::conj(value) * y.was()[i]);
    squares.Add(std::norm(value));
    double size = std::fabs(value.real()) + std::fabs(value.imag());
    sizes.Add(size);
    if (size > largest) most = i + 1;
    largest = std::max(largest, size);
    Sum moved, scaled;
    moved.Add(y.was()[i]);
    moved.Add(alpha.value() * value);
    scaled.Add(alpha.value() * value);
    ExpectNear(new_y[i], moved, 2, CUDA_R_32F, type, "axpy");
    ExpectNear(new_x[2 * i], scaled, 1, CUDA_R_32F, type, "scal");
    EXPECT_EQ(new_z[i], value);
  }
  squares.value = std::sqrt(squares.value.real());
  squares.magnitude = squares.value.real();
  ExpectNear(LoadElement(type, dot.get(), 0), product, kCount, CUDA_R_32F, type, "dot");
  ExpectNear(LoadElement(real, norm.get(), 0), squares, kCount, CUDA_R_32F, real, "nrm2");
  ExpectNear(LoadElement(real, asum.get(), 0), sizes, kCount, CUDA_R_32F, real, "asum");
  EXPECT_EQ(max, most);
}

INSTANTIATE_TEST_SUITE_P(Types, ExtendedTest,
                         testing::Values(CUDA_R_16F, CUDA_R_16BF, CUDA_R_32F, CUDA_R_64F, CUDA_C_32F,
                                         CUDA_C_64F));

TEST_F(ModifiedTest, TransfersKeepWhatLiesBetween) {
  std::vector<float> host(30), back(30, -1.0f);
  for (size_t i = 0; i < host.size(); i++) host[i] = static_cast<float>(i);
  Numbers device(CUDA_R_32F, std::vector<Complex64>(40, Complex64(-2)));
  OK(cublasSetVector(10, 4, host.data(), 3, device.at(), 2));
  std::vector<Complex64> now = device.Now();
  for (int i = 0; i < 20; i++) EXPECT_EQ(now[i].real(), i % 2 == 0 ? 3.0 * i / 2 : -2.0);
  OK(cublasGetVector(10, 4, device.at(), 2, back.data(), 3));
  for (int i = 0; i < 28; i++) EXPECT_EQ(back[i], i % 3 == 0 ? host[i] : -1.0f);
  OK(cublasSetMatrix(4, 5, 4, host.data(), 6, device.at(), 7));
  std::fill(back.begin(), back.end(), -1.0f);
  OK(cublasGetMatrixAsync(4, 5, 4, device.at(), 7, back.data(), 6, nullptr));
  ASSERT_EQ(cuCtxSynchronize(), CUDA_SUCCESS);
  for (int i = 0; i < 28; i++) EXPECT_EQ(back[i], i % 6 < 4 ? host[i] : -1.0f);
  EXPECT_EQ(cublasSetVector(10, 4, host.data(), 0, device.at(), 1), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(cublasSetMatrix(4, 5, 4, host.data(), 3, device.at(), 7), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_OK(cublasSetVector(0, 4, host.data(), 1, device.at(), 1));
}

}  // namespace
}  // namespace softgpu::blas
