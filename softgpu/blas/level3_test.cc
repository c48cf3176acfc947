// The rest of level 3 against double by the definition.
#include <functional>

#include "softgpu/blas/blas_testing.h"

namespace softgpu::blas {
namespace {

template <typename T>
struct Api;
#define COMMON(X)                                             \
  static constexpr auto Symm = cublas##X##symm;               \
  static constexpr auto Syrk = cublas##X##syrk;               \
  static constexpr auto Syr2k = cublas##X##syr2k;             \
  static constexpr auto Syrkx = cublas##X##syrkx;             \
  static constexpr auto Trmm = cublas##X##trmm;               \
  static constexpr auto Trsm = cublas##X##trsm;               \
  static constexpr auto TrsmBatched = cublas##X##trsmBatched; \
  static constexpr auto Geam = cublas##X##geam;               \
  static constexpr auto Dgmm = cublas##X##dgmm;               \
  static constexpr auto Tpttr = cublas##X##tpttr;             \
  static constexpr auto Trttp = cublas##X##trttp;
#define COMPLEX(X)                                \
  COMMON(X)                                       \
  static constexpr auto Hemm = cublas##X##hemm;   \
  static constexpr auto Herk = cublas##X##herk;   \
  static constexpr auto Her2k = cublas##X##her2k; \
  static constexpr auto Herkx = cublas##X##herkx;
template <>
struct Api<float> {
  COMMON(S)
};
template <>
struct Api<double> {
  COMMON(D)
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
#undef COMPLEX

constexpr cublasFillMode_t kTriangles[] = {CUBLAS_FILL_MODE_LOWER, CUBLAS_FILL_MODE_UPPER};
constexpr cublasSideMode_t kSides[] = {CUBLAS_SIDE_LEFT, CUBLAS_SIDE_RIGHT};
constexpr int kM = 21, kN = 13, kK = 17, kGap = 2;

template <typename T>
class Level3Test : public BlasTest {
 protected:
  static constexpr cudaDataType kType = Traits<T>::kType;
  static constexpr bool kComplex = kType == CUDA_C_32F || kType == CUDA_C_64F;
  using Element = std::function<Complex64(int, int)>;

  T Make(double re, double im) {
    T value{};
    StoreElement(kType, &value, 0, Complex64(re, im));
    return value;
  }
  static Complex64 Widen(T value) { return LoadElement(kType, &value, 0); }
  static Complex64 Conj(Complex64 value, bool conjugate) { return conjugate ? std::conj(value) : value; }
  std::unique_ptr<Numbers> Matrix(int rows, int cols) {
    return std::make_unique<Numbers>(kType, static_cast<size_t>((rows + kGap) * cols), &random_, 1);
  }
  static Complex64 At(const Numbers& m, int rows, int i, int j) { return m.was()[i + j * (rows + kGap)]; }

  // Element (i, j) of a triangle of order n that is mirrored.
  static Element Mirror(const Numbers& m, int n, cublasFillMode_t uplo, bool hermitian) {
    return [&m, n, uplo, hermitian](int i, int j) {
      if (hermitian && i == j) return Complex64(At(m, n, i, j).real());
      bool kept = uplo == CUBLAS_FILL_MODE_LOWER ? i >= j : i <= j;
      return kept ? At(m, n, i, j) : Conj(At(m, n, j, i), hermitian);
    };
  }

  // c holds sum(i, j) wherever `kept`, and elsewhere what it held.
  void Expect(const Numbers& c, int rows, int cols, int64_t terms, const std::function<Sum(int, int)>& sum,
              const std::function<bool(int, int)>& kept, const char* what) {
    std::vector<Complex64> now = c.Now();
    for (int j = 0; j < cols; j++) {
      for (int i = 0; i < rows + kGap && i + j * (rows + kGap) < static_cast<int>(now.size()); i++) {
        Complex64 got = now[i + j * (rows + kGap)];
        if (i < rows && kept(i, j)) {
          ExpectNear(got, sum(i, j), terms, kType, kType, what);
        } else {
          EXPECT_EQ(got, c.was()[i + j * (rows + kGap)]) << what;
        }
      }
    }
  }
  static bool All(int, int) { return true; }

  TestHandle handle_;
};
using AllTypes = testing::Types<float, double, cuComplex, cuDoubleComplex>;
TYPED_TEST_SUITE(Level3Test, AllTypes);

TYPED_TEST(Level3Test, Symm) {
  using T = TypeParam;
  T alpha = this->Make(0.5, -1), beta = this->Make(-0.25, 2);
  for (cublasSideMode_t side : kSides) {
    for (cublasFillMode_t uplo : kTriangles) {
      for (bool hermitian : {false, true}) {
        if (hermitian && !this->kComplex) continue;
        bool left = side == CUBLAS_SIDE_LEFT;
        int order = left ? kM : kN;
        auto a = this->Matrix(order, order), b = this->Matrix(kM, kN), c = this->Matrix(kM, kN);
        auto run = Api<T>::Symm;
        if constexpr (Level3Test<T>::kComplex) {
          if (hermitian) run = Api<T>::Hemm;
        }
        OK(run(this->handle_, side, uplo, kM, kN, &alpha, a->template at<T>(), order + kGap,
               b->template at<T>(), kM + kGap, &beta, c->template at<T>(), kM + kGap));
        auto mirror = this->Mirror(*a, order, uplo, hermitian);
        this->Expect(
            *c, kM, kN, order,
            [&](int i, int j) {
              Sum sum;
              for (int l = 0; l < order; l++) {
                sum.Add(this->Widen(alpha) * (left ? mirror(i, l) * this->At(*b, kM, l, j)
                                                   : this->At(*b, kM, i, l) * mirror(l, j)));
              }
              sum.Add(this->Widen(beta) * this->At(*c, kM, i, j));
              return sum;
            },
            this->All, "symm");
      }
    }
  }
}

TYPED_TEST(Level3Test, RankUpdates) {
  using T = TypeParam;
  using Real = RealOf<T>;
  constexpr bool kComplex = Level3Test<T>::kComplex;
  T alpha = this->Make(0.5, -1), beta = this->Make(-0.25, 2);
  Real real_alpha = Real(0.5), real_beta = Real(-0.25);
  for (cublasFillMode_t uplo : kTriangles) {
    for (bool plain : {true, false}) {
      for (bool hermitian : {false, true}) {
        for (int kind = 0; kind < 3; kind++) {  // one, two products, and the product of two
          if (hermitian && !kComplex) continue;
          cublasOperation_t op = plain ? CUBLAS_OP_N : hermitian ? CUBLAS_OP_C : CUBLAS_OP_T;
          int rows = plain ? kN : kK, cols = plain ? kK : kN;
          auto a = this->Matrix(rows, cols), b = this->Matrix(rows, cols), c = this->Matrix(kN, kN);
          auto *pa = a->template at<T>(), *pb = b->template at<T>(), *pc = c->template at<T>();
          int ld = rows + kGap, ldc = kN + kGap;
          if (!hermitian && kind == 0) {
            OK(Api<T>::Syrk(this->handle_, uplo, op, kN, kK, &alpha, pa, ld, &beta, pc, ldc));
          } else if (!hermitian) {
            auto run = kind == 1 ? Api<T>::Syr2k : Api<T>::Syrkx;
            OK(run(this->handle_, uplo, op, kN, kK, &alpha, pa, ld, pb, ld, &beta, pc, ldc));
          } else if constexpr (kComplex) {
            if (kind == 0) {
              OK(Api<T>::Herk(this->handle_, uplo, op, kN, kK, &real_alpha, pa, ld, &real_beta, pc, ldc));
            } else if (kind == 1) {
              OK(Api<T>::Her2k(this->handle_, uplo, op, kN, kK, &alpha, pa, ld, pb, ld, &real_beta, pc, ldc));
            } else {
              // Only where B is what makes the product Hermitian is the diagonal real: here B = A.
              OK(Api<T>::Herkx(this->handle_, uplo, op, kN, kK, &alpha, pa, ld, pa, ld, &real_beta, pc, ldc));
            }
          }
          auto line = [&](const Numbers& m, int i, int l) {
            return plain ? this->At(m, rows, i, l) : this->Conj(this->At(m, rows, l, i), hermitian);
          };
          const Numbers& second = kind == 0 || (hermitian && kind == 2) ? *a : *b;
          Complex64 factor = hermitian && kind == 0 ? Complex64(real_alpha) : this->Widen(alpha);
          Complex64 old_factor = hermitian ? Complex64(real_beta) : this->Widen(beta);
          this->Expect(
              *c, kN, kN, 2 * kK,
              [&](int i, int j) {
                Sum sum;
                for (int l = 0; l < kK; l++) {
                  sum.Add(factor * line(*a, i, l) * this->Conj(line(second, j, l), hermitian));
                  if (kind == 1) {
                    sum.Add(this->Conj(factor, hermitian) * line(second, i, l) *
                            this->Conj(line(*a, j, l), hermitian));
                  }
                }
                Complex64 old = this->At(*c, kN, i, j);
                sum.Add(old_factor * (hermitian && i == j ? Complex64(old.real()) : old));
                if (hermitian && i == j) sum.value = sum.value.real();
                return sum;
              },
              [&](int i, int j) { return uplo == CUBLAS_FILL_MODE_LOWER ? i >= j : i <= j; }, "rank update");
        }
      }
    }
  }
}

TYPED_TEST(Level3Test, Triangles) {
  using T = TypeParam;
  T alpha = this->Make(0.5, -1);
  Complex64 factor = this->Widen(alpha);
  for (cublasSideMode_t side : kSides) {
    for (cublasFillMode_t uplo : kTriangles) {
      for (cublasOperation_t op : {CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C}) {
        for (cublasDiagType_t diag : {CUBLAS_DIAG_UNIT, CUBLAS_DIAG_NON_UNIT}) {
          bool left = side == CUBLAS_SIDE_LEFT;
          int order = left ? kM : kN;
          auto first = this->Matrix(order, order);
          std::vector<Complex64> values = first->was();
          for (Complex64& value : values) value *= 0.25;
          for (int i = 0; i < order; i++) values[i * (order + kGap + 1)] += 3;
          Numbers a(this->kType, values);
          std::vector<Complex64> rounded = a.Now();
          auto b = this->Matrix(kM, kN), c = this->Matrix(kM, kN), x = this->Matrix(kM, kN),
               y = this->Matrix(kM, kN);
          auto* pa = a.template at<T>();
          int lda = order + kGap, ldb = kM + kGap;
          OK(Api<T>::Trmm(this->handle_, side, uplo, op, diag, kM, kN, &alpha, pa, lda, b->template at<T>(),
                          ldb, c->template at<T>(), ldb));
          OK(Api<T>::Trsm(this->handle_, side, uplo, op, diag, kM, kN, &alpha, pa, lda, x->template at<T>(),
                          ldb));
          Buffer list_a(8), list_b(8);
          void *one_a = pa, *one_b = y->at();
          list_a.Write(&one_a);
          list_b.Write(&one_b);
          OK(Api<T>::TrsmBatched(this->handle_, side, uplo, op, diag, kM, kN, &alpha,
                                 list_a.template at<const T* const>(), lda, list_b.template at<T* const>(),
                                 ldb, 1));
          auto triangle = [&](int i, int j) {
            if (op != CUBLAS_OP_N) std::swap(i, j);
            if (i == j && diag == CUBLAS_DIAG_UNIT) return Complex64(1);
            bool kept = uplo == CUBLAS_FILL_MODE_LOWER ? i >= j : i <= j;
            return kept ? this->Conj(rounded[i + j * lda], op == CUBLAS_OP_C) : Complex64(0);
          };
          auto product = [&](const std::vector<Complex64>& m, int i, int j) {
            Sum sum;
            for (int l = 0; l < order; l++)
              sum.Add(left ? triangle(i, l) * m[l + j * ldb] : m[i + l * ldb] * triangle(l, j));
            return sum;
          };
          this->Expect(
              *c, kM, kN, order,
              [&](int i, int j) {
                Sum sum = product(b->was(), i, j);
                return Sum{sum.value * factor, sum.magnitude * std::abs(factor)};
              },
              this->All, "trmm");
          for (const auto& solved : {x.get(), y.get()}) {
            std::vector<Complex64> solution = solved->Now();
            for (int j = 0; j < kN; j++) {
              for (int i = 0; i < kM; i++) {
                ExpectNear(factor * solved->was()[i + j * ldb], product(solution, i, j), 4 * order,
                           this->kType, this->kType, "trsm");
              }
            }
          }
        }
      }
    }
  }
}

TYPED_TEST(Level3Test, SumsDiagonalsAndTriangles) {
  using T = TypeParam;
  T alpha = this->Make(0.5, -1), beta = this->Make(-0.25, 2), one = this->Make(1, 0), zero = this->Make(0, 0);
  for (cublasOperation_t op : {CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C}) {
    int rows = op == CUBLAS_OP_N ? kM : kN, cols = op == CUBLAS_OP_N ? kN : kM;
    auto a = this->Matrix(rows, cols), b = this->Matrix(kM, kN), c = this->Matrix(kM, kN),
         d = this->Matrix(kM, kN);
    OK(Api<T>::Geam(this->handle_, op, CUBLAS_OP_N, kM, kN, &alpha, a->template at<T>(), rows + kGap, &beta,
                    b->template at<T>(), kM + kGap, c->template at<T>(), kM + kGap));
    Reference ra{&a->was(), rows + kGap, op};
    this->Expect(
        *c, kM, kN, 2,
        [&](int i, int j) {
          Sum sum;
          sum.Add(this->Widen(alpha) * ra.at(i, j));
          sum.Add(this->Widen(beta) * this->At(*b, kM, i, j));
          return sum;
        },
        this->All, "geam");
    OK(Api<T>::Geam(this->handle_, op, CUBLAS_OP_N, kM, kN, &one, a->template at<T>(), rows + kGap, &zero,
                    nullptr, kM, d->template at<T>(), kM + kGap));
    this->Expect(
        *d, kM, kN, 1,
        [&](int i, int j) {
          Sum sum;
          sum.Add(ra.at(i, j));
          return sum;
        },
        this->All, "transpose");
  }
  for (cublasSideMode_t side : kSides) {
    auto a = this->Matrix(kM, kN), c = this->Matrix(kM, kN);
    Numbers x(this->kType, 2 * kM, &this->random_);
    OK(Api<T>::Dgmm(this->handle_, side, kM, kN, a->template at<T>(), kM + kGap, x.template at<T>(), 2,
                    c->template at<T>(), kM + kGap));
    this->Expect(
        *c, kM, kN, 1,
        [&](int i, int j) {
          Sum sum;
          sum.Add(this->At(*a, kM, i, j) * x.was()[2 * (side == CUBLAS_SIDE_LEFT ? i : j)]);
          return sum;
        },
        this->All, "dgmm");
  }
  for (cublasFillMode_t uplo : kTriangles) {
    auto a = this->Matrix(kN, kN), back = this->Matrix(kN, kN);
    Numbers packed(this->kType, kN * (kN + 1) / 2, &this->random_);
    OK(Api<T>::Trttp(this->handle_, uplo, kN, a->template at<T>(), kN + kGap, packed.template at<T>()));
    OK(Api<T>::Tpttr(this->handle_, uplo, kN, packed.template at<T>(), back->template at<T>(), kN + kGap));
    this->Expect(
        *back, kN, kN, 1,
        [&](int i, int j) {
          Sum sum;
          sum.Add(this->At(*a, kN, i, j));
          return sum;
        },
        [&](int i, int j) { return uplo == CUBLAS_FILL_MODE_LOWER ? i >= j : i <= j; }, "packed");
  }
}

// The same bits wherever the operands lie.
TYPED_TEST(Level3Test, TheBitsDependOnTheOperandsAlone) {
  using T = TypeParam;
  T alpha = this->Make(0.5, -1);
  std::vector<unsigned char> first;
  for (size_t offset : {0, 1, 2, 3, 5, 7}) {
    std::mt19937 random(9);
    Numbers a(this->kType, 40 * 40, &random, offset), b(this->kType, 40 * 23, &random, 2 * offset + 1);
    Numbers c(this->kType, 40 * 40, &random, 3 * offset);
    OK(Api<T>::Trsm(this->handle_, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_T, CUBLAS_DIAG_UNIT,
                    40, 23, &alpha, a.template at<T>(), 40, b.template at<T>(), 40));
    OK(Api<T>::Syrk(this->handle_, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N, 40, 23, &alpha, b.template at<T>(),
                    40, &alpha, c.template at<T>(), 40));
    OK(Api<T>::Trmm(this->handle_, CUBLAS_SIDE_RIGHT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N,
                    CUBLAS_DIAG_NON_UNIT, 40, 23, &alpha, a.template at<T>(), 40, b.template at<T>(), 40,
                    b.template at<T>(), 40));
    std::vector<unsigned char> bytes = b.Bytes(), more = c.Bytes();
    bytes.insert(bytes.end(), more.begin(), more.end());
    if (offset == 0) first = bytes;
    EXPECT_EQ(bytes, first) << "offset " << offset;
  }
}

}  // namespace
}  // namespace softgpu::blas
