// Matrices with vectors, in every way of storing them, against double by the definition.
#include <functional>

#include "softgpu/blas/blas_testing.h"

namespace softgpu::blas {
namespace {

// A function for reals, and its counterpart for complex numbers: symmetric there, Hermitian here.
template <typename T>
struct Api;
#define COMMON(X)                               \
  static constexpr auto Gemv = cublas##X##gemv; \
  static constexpr auto Gbmv = cublas##X##gbmv; \
  static constexpr auto Trmv = cublas##X##trmv; \
  static constexpr auto Trsv = cublas##X##trsv; \
  static constexpr auto Tbmv = cublas##X##tbmv; \
  static constexpr auto Tbsv = cublas##X##tbsv; \
  static constexpr auto Tpmv = cublas##X##tpmv; \
  static constexpr auto Tpsv = cublas##X##tpsv; \
  static constexpr auto Symv = cublas##X##symv; \
  static constexpr auto Syr = cublas##X##syr;   \
  static constexpr auto Syr2 = cublas##X##syr2;
#define REAL(X)                                           \
  COMMON(X)                                               \
  static constexpr auto Mirrored = cublas##X##symv;       \
  static constexpr auto MirroredBand = cublas##X##sbmv;   \
  static constexpr auto MirroredPacked = cublas##X##spmv; \
  static constexpr auto Rank1 = cublas##X##syr;           \
  static constexpr auto Rank1Packed = cublas##X##spr;     \
  static constexpr auto Rank2 = cublas##X##syr2;          \
  static constexpr auto Rank2Packed = cublas##X##spr2;    \
  static constexpr auto Outer = cublas##X##ger;           \
  static constexpr auto OuterConjugated = cublas##X##ger;
#define COMPLEX(X)                                        \
  COMMON(X)                                               \
  static constexpr auto Mirrored = cublas##X##hemv;       \
  static constexpr auto MirroredBand = cublas##X##hbmv;   \
  static constexpr auto MirroredPacked = cublas##X##hpmv; \
  static constexpr auto Rank1 = cublas##X##her;           \
  static constexpr auto Rank1Packed = cublas##X##hpr;     \
  static constexpr auto Rank2 = cublas##X##her2;          \
  static constexpr auto Rank2Packed = cublas##X##hpr2;    \
  static constexpr auto Outer = cublas##X##geru;          \
  static constexpr auto OuterConjugated = cublas##X##gerc;
template <>
struct Api<float> {
  REAL(S)
};
template <>
struct Api<double> {
  REAL(D)
};
template <>
struct Api<cuComplex> {
  COMPLEX(C)
};
template <>
struct Api<cuDoubleComplex> {
  COMPLEX(Z)
};
#undef COMMON
#undef REAL
#undef COMPLEX

enum class Form { kWhole, kBand, kPacked };

// Where element (i, j) of an n x n triangle lies; -1: it is not kept.
struct Place {
  Form form;
  bool lower;
  int n, k, ld;
  int operator()(int i, int j) const {
    if (lower ? i < j : i > j) return -1;
    if (form == Form::kWhole) return i + j * ld;
    if (form == Form::kPacked) return lower ? i + (2 * n - j - 1) * j / 2 : i + j * (j + 1) / 2;
    if (std::abs(i - j) > k) return -1;
    return (lower ? i - j : k + i - j) + j * ld;
  }
  size_t size() const {
    return static_cast<size_t>(form == Form::kPacked  ? n * (n + 1) / 2
                               : form == Form::kWhole ? ld * n
                                                      : ld * n);
  }
};
Place PlaceOf(Form form, bool lower, int n) {
  if (form == Form::kWhole) return {form, lower, n, n, n + 2};
  return {form, lower, n, 3, 5};
}

template <typename T>
class Level2Test : public BlasTest {
 protected:
  static constexpr cudaDataType kType = Traits<T>::kType;
  static constexpr bool kComplex = kType == CUDA_C_32F || kType == CUDA_C_64F;
  using Element = std::function<Complex64(int, int)>;

  static int At(int i, int n, int increment) {
    return increment > 0 ? i * increment : (i - n + 1) * increment;
  }
  static size_t Span(int n, int increment) { return static_cast<size_t>((n - 1) * std::abs(increment) + 1); }
  T Make(double re, double im) {
    T value{};
    StoreElement(kType, &value, 0, Complex64(re, im));
    return value;
  }
  static Complex64 Widen(T value) { return LoadElement(kType, &value, 0); }
  static Complex64 Conj(Complex64 value, bool conjugate) { return conjugate ? std::conj(value) : value; }

  // y = alpha * a * x + beta * y was computed.
  void ExpectProduct(const Numbers& y, int rows, int incy, int cols, const Element& a, const Numbers& x,
                     int incx, Complex64 alpha, Complex64 beta) {
    std::vector<Complex64> now = y.Now();
    for (int i = 0; i < rows; i++) {
      Sum sum;
      for (int j = 0; j < cols; j++) sum.Add(alpha * a(i, j) * x.was()[At(j, cols, incx)]);
      if (beta != Complex64(0)) sum.Add(beta * y.was()[At(i, rows, incy)]);
      ExpectNear(now[At(i, rows, incy)], sum, cols, kType, kType, "product");
    }
  }

  // What a triangle stands for, as a whole matrix.
  static Element Mirror(const Numbers& m, Place place, bool hermitian) {
    return [&m, place, hermitian](int i, int j) {
      int at = place(i, j), other = place(j, i);
      if (at < 0 && other < 0) return Complex64(0);
      Complex64 value = m.was()[at >= 0 ? at : other];
      if (hermitian && i == j) return Complex64(value.real());
      return at >= 0 ? value : Conj(value, hermitian);
    };
  }
  static Element TriangleOf(const std::vector<Complex64>& values, Place place, bool unit,
                            cublasOperation_t op) {
    return [&values, place, unit, op](int i, int j) {
      if (op != CUBLAS_OP_N) std::swap(i, j);
      if (unit && i == j) return Complex64(1);
      int at = place(i, j);
      return at < 0 ? Complex64(0) : Conj(values[at], op == CUBLAS_OP_C);
    };
  }

  TestHandle handle_;
};
using AllTypes = testing::Types<float, double, cuComplex, cuDoubleComplex>;
TYPED_TEST_SUITE(Level2Test, AllTypes);

constexpr cublasOperation_t kOps[] = {CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C};
constexpr cublasFillMode_t kTriangles[] = {CUBLAS_FILL_MODE_LOWER, CUBLAS_FILL_MODE_UPPER};
constexpr int kOrder = 11;

TYPED_TEST(Level2Test, GeneralMatrices) {
  using T = TypeParam;
  constexpr int kM = 13, kN = 9, kBelow = 2, kAbove = 3, kLd = 15;
  T alpha = this->Make(0.5, -1), beta = this->Make(-0.25, 2), zero = this->Make(0, 0);
  for (cublasOperation_t op : kOps) {
    for (auto [incx, incy] : {std::pair{1, 1}, {2, -3}, {-1, 2}}) {
      bool plain = op == CUBLAS_OP_N;
      int rows = plain ? kM : kN, cols = plain ? kN : kM;
      Numbers a(this->kType, kLd * kN, &this->random_, 1),
          x(this->kType, this->Span(cols, incx), &this->random_, 1);
      Numbers y(this->kType, this->Span(rows, incy), &this->random_),
          z(this->kType, this->Span(rows, incy), &this->random_);
      OK(Api<T>::Gemv(this->handle_, op, kM, kN, &alpha, a.template at<T>(), kLd, x.template at<T>(), incx,
                      &beta, y.template at<T>(), incy));
      Reference whole{&a.was(), kLd, op};
      this->ExpectProduct(
          y, rows, incy, cols, [&](int i, int j) { return whole.at(i, j); }, x, incx, this->Widen(alpha),
          this->Widen(beta));
      OK(Api<T>::Gbmv(this->handle_, op, kM, kN, kBelow, kAbove, &alpha, a.template at<T>(), kLd,
                      x.template at<T>(), incx, &zero, z.template at<T>(), incy));
      auto band = [&](int i, int j) {
        if (!plain) std::swap(i, j);
        if (i - j > kBelow || j - i > kAbove) return Complex64(0);
        return this->Conj(a.was()[kAbove + i - j + j * kLd], op == CUBLAS_OP_C);
      };
      this->ExpectProduct(z, rows, incy, cols, band, x, incx, this->Widen(alpha), 0);
    }
  }
}

TYPED_TEST(Level2Test, MirroredMatrices) {
  using T = TypeParam;
  T alpha = this->Make(0.5, -1), beta = this->Make(-0.25, 2);
  for (cublasFillMode_t uplo : kTriangles) {
    for (Form form : {Form::kWhole, Form::kBand, Form::kPacked}) {
      Place place = PlaceOf(form, uplo == CUBLAS_FILL_MODE_LOWER, kOrder);
      Numbers a(this->kType, place.size(), &this->random_), x(this->kType, 2 * kOrder, &this->random_),
          y(this->kType, 3 * kOrder, &this->random_), z(this->kType, 3 * kOrder, &this->random_);
      auto *pa = a.template at<T>(), *px = x.template at<T>(), *py = y.template at<T>();
      if (form == Form::kWhole) {
        OK(Api<T>::Mirrored(this->handle_, uplo, kOrder, &alpha, pa, place.ld, px, 2, &beta, py, 3));
        OK(Api<T>::Symv(this->handle_, uplo, kOrder, &alpha, pa, place.ld, px, 2, &beta, z.template at<T>(),
                        3));
        this->ExpectProduct(z, kOrder, 3, kOrder, this->Mirror(a, place, false), x, 2, this->Widen(alpha),
                            this->Widen(beta));
      } else if (form == Form::kBand) {
        OK(Api<T>::MirroredBand(this->handle_, uplo, kOrder, place.k, &alpha, pa, place.ld, px, 2, &beta, py,
                                3));
      } else {
        OK(Api<T>::MirroredPacked(this->handle_, uplo, kOrder, &alpha, pa, px, 2, &beta, py, 3));
      }
      this->ExpectProduct(y, kOrder, 3, kOrder, this->Mirror(a, place, this->kComplex), x, 2,
                          this->Widen(alpha), this->Widen(beta));
    }
  }
}

TYPED_TEST(Level2Test, Triangles) {
  using T = TypeParam;
  for (cublasFillMode_t uplo : kTriangles) {
    for (cublasOperation_t op : kOps) {
      for (cublasDiagType_t diag : {CUBLAS_DIAG_UNIT, CUBLAS_DIAG_NON_UNIT}) {
        for (Form form : {Form::kWhole, Form::kBand, Form::kPacked}) {
          Place place = PlaceOf(form, uplo == CUBLAS_FILL_MODE_LOWER, kOrder);
          Numbers first(this->kType, place.size(), &this->random_);
          // A diagonal that is large enough for solutions that do not grow.
          std::vector<Complex64> values = first.was();
          for (int i = 0; i < kOrder; i++) values[place(i, i)] += values[place(i, i)].real() < 0 ? -4 : 4;
          Numbers a(this->kType, values), x(this->kType, kOrder, &this->random_),
              b(this->kType, kOrder, &this->random_);
          auto *pa = a.template at<T>(), *px = x.template at<T>(), *pb = b.template at<T>();
          if (form == Form::kWhole) {
            OK(Api<T>::Trmv(this->handle_, uplo, op, diag, kOrder, pa, place.ld, px, 1));
            OK(Api<T>::Trsv(this->handle_, uplo, op, diag, kOrder, pa, place.ld, pb, -1));
          } else if (form == Form::kBand) {
            OK(Api<T>::Tbmv(this->handle_, uplo, op, diag, kOrder, place.k, pa, place.ld, px, 1));
            OK(Api<T>::Tbsv(this->handle_, uplo, op, diag, kOrder, place.k, pa, place.ld, pb, -1));
          } else {
            OK(Api<T>::Tpmv(this->handle_, uplo, op, diag, kOrder, pa, px, 1));
            OK(Api<T>::Tpsv(this->handle_, uplo, op, diag, kOrder, pa, pb, -1));
          }
          std::vector<Complex64> rounded = a.Now();
          auto triangle = this->TriangleOf(rounded, place, diag == CUBLAS_DIAG_UNIT, op);
          std::vector<Complex64> product = x.Now(), solution = b.Now();
          for (int i = 0; i < kOrder; i++) {
            Sum sum, back;
            for (int j = 0; j < kOrder; j++) {
              sum.Add(triangle(i, j) * x.was()[j]);
              back.Add(triangle(i, j) * solution[kOrder - 1 - j]);
            }
            ExpectNear(product[i], sum, kOrder, this->kType, this->kType, "product");
            // The solution, put in, gives the right-hand side.
            ExpectNear(b.was()[kOrder - 1 - i], back, kOrder, this->kType, this->kType, "solution");
          }
        }
      }
    }
  }
}

TYPED_TEST(Level2Test, OuterProducts) {
  using T = TypeParam;
  constexpr int kM = 7, kN = 5, kLd = 9;
  T alpha = this->Make(0.5, -1);
  for (bool conjugated : {false, true}) {
    Numbers a(this->kType, kLd * kN, &this->random_), x(this->kType, 2 * kM, &this->random_),
        y(this->kType, kN, &this->random_);
    auto run = conjugated ? Api<T>::OuterConjugated : Api<T>::Outer;
    OK(run(this->handle_, kM, kN, &alpha, x.template at<T>(), 2, y.template at<T>(), -1, a.template at<T>(),
           kLd));
    std::vector<Complex64> now = a.Now();
    for (int j = 0; j < kN; j++) {
      for (int i = 0; i < kLd; i++) {
        Sum sum;
        sum.Add(a.was()[i + j * kLd]);
        if (i < kM)
          sum.Add(this->Widen(alpha) * x.was()[2 * i] *
                  this->Conj(y.was()[kN - 1 - j], conjugated && this->kComplex));
        ExpectNear(now[i + j * kLd], sum, 2, this->kType, this->kType, "ger");
      }
    }
  }
}

TYPED_TEST(Level2Test, UpdatesOfTriangles) {
  using T = TypeParam;
  using Real = RealOf<T>;
  using Rank1Alpha = std::conditional_t<Level2Test<T>::kComplex, Real, T>;
  T alpha = this->Make(0.5, -1);
  auto real = Rank1Alpha(Real(-0.75));
  constexpr bool kComplex = Level2Test<T>::kComplex;
  for (cublasFillMode_t uplo : kTriangles) {
    for (Form form : {Form::kWhole, Form::kPacked}) {
      Place place = PlaceOf(form, uplo == CUBLAS_FILL_MODE_LOWER, kOrder);
      Numbers one(this->kType, place.size(), &this->random_), two(this->kType, place.size(), &this->random_),
          x(this->kType, kOrder, &this->random_), y(this->kType, kOrder, &this->random_);
      auto *px = x.template at<T>(), *py = y.template at<T>(), *p1 = one.template at<T>(),
           *p2 = two.template at<T>();
      if (form == Form::kWhole) {
        OK(Api<T>::Rank1(this->handle_, uplo, kOrder, &real, px, 1, p1, place.ld));
        OK(Api<T>::Rank2(this->handle_, uplo, kOrder, &alpha, px, 1, py, 1, p2, place.ld));
      } else {
        OK(Api<T>::Rank1Packed(this->handle_, uplo, kOrder, &real, px, 1, p1));
        OK(Api<T>::Rank2Packed(this->handle_, uplo, kOrder, &alpha, px, 1, py, 1, p2));
      }
      Numbers plain1(this->kType, place.size(), &this->random_),
          plain2(this->kType, place.size(), &this->random_);
      if (form == Form::kWhole) {
        OK(Api<T>::Syr(this->handle_, uplo, kOrder, &alpha, px, 1, plain1.template at<T>(), place.ld));
        OK(Api<T>::Syr2(this->handle_, uplo, kOrder, &alpha, px, 1, py, 1, plain2.template at<T>(),
                        place.ld));
      }
      std::vector<Complex64> now1 = one.Now(), now2 = two.Now(), now3 = plain1.Now(), now4 = plain2.Now();
      Complex64 a = this->Widen(alpha);
      for (int j = 0; j < kOrder; j++) {
        for (int i = 0; i < kOrder; i++) {
          int at = place(i, j);
          if (at < 0) continue;
          Complex64 xi = x.was()[i], xj = x.was()[j], yi = y.was()[i], yj = y.was()[j];
          auto start = [&](const Numbers& m) {
            Sum sum;
            sum.Add(kComplex && i == j ? Complex64(m.was()[at].real()) : m.was()[at]);
            return sum;
          };
          Sum s1 = start(one), s2 = start(two);
          s1.Add(-0.75 * xi * this->Conj(xj, kComplex));
          s2.Add(a * xi * this->Conj(yj, kComplex));
          s2.Add(this->Conj(a, kComplex) * yi * this->Conj(xj, kComplex));
          ExpectNear(now1[at], s1, 2, this->kType, this->kType, "rank 1");
          ExpectNear(now2[at], s2, 3, this->kType, this->kType, "rank 2");
          if (form != Form::kWhole) continue;
          Sum s3, s4;
          s3.Add(plain1.was()[at]);
          s3.Add(a * xi * xj);
          s4.Add(plain2.was()[at]);
          s4.Add(a * xi * yj);
          s4.Add(a * yi * xj);
          ExpectNear(now3[at], s3, 2, this->kType, this->kType, "syr");
          ExpectNear(now4[at], s4, 3, this->kType, this->kType, "syr2");
        }
      }
    }
  }
}

}  // namespace
}  // namespace softgpu::blas
