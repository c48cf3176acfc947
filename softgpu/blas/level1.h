// Vectors with vectors. Sums are kept in double and rounded once.
#ifndef SOFTGPU_BLAS_LEVEL1_H_
#define SOFTGPU_BLAS_LEVEL1_H_

#include <cmath>

#include "softgpu/blas/vector.h"

namespace softgpu::blas {

// |re| + |im|, by which the BLAS compares complex numbers.
template <typename Value>
double Size(Value value) {
  if constexpr (kIsComplex<Value>) {
    return std::fabs(static_cast<double>(value.real())) + std::fabs(static_cast<double>(value.imag()));
  } else {
    return std::fabs(static_cast<double>(value));
  }
}

// Euclidean length of n numbers, without overflow in between. `at(i)` gives a Complex64.
template <typename At>
double Length(int64_t n, At at) {
  double largest = 0;
  for (int64_t i = 0; i < n; i++) largest = std::fmax(largest, std::abs(at(i)));
  if (largest == 0 || !std::isfinite(largest)) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += std::abs(at(i));
    return sum;
  }
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += std::norm(at(i) / largest);
  return largest * std::sqrt(sum);
}

// The position, from 1, of the first number that is largest or smallest. 0: there is none.
template <bool kSmallest, typename At>
int64_t Extreme(int64_t n, At at) {
  int64_t best = 0;
  for (int64_t i = 1; i < n; i++) {
    if (kSmallest ? at(i) < at(best) : at(i) > at(best)) best = i;
  }
  return n > 0 ? best + 1 : 0;
}

template <typename T>
cublasStatus_t Axpy(cublasHandle_t handle, int64_t n, const T* alpha, const T* x, int64_t incx, T* y,
                    int64_t incy) {
  using V = ValueOf<T>;
  Call call(handle);
  if (!call.ok()) return call.status();
  if (n <= 0) return CUBLAS_STATUS_SUCCESS;
  if (alpha == nullptr || x == nullptr || y == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  return call.Run([n, a = call.In(alpha, sizeof(V)), vx = VectorOf(x, n, incx),
                   vy = VectorOf(y, n, incy)](native::Device& device) {
    V factor;
    Lane<const V> from;
    Lane<V> to;
    if (!Load(device, a, &factor) || !from.Open(device, vx) || !to.Open(device, vy)) return;
    for (int64_t i = 0; i < n; i++) to[i] += factor * from[i];
  });
}

template <typename T, typename Factor>
cublasStatus_t Scale(cublasHandle_t handle, int64_t n, const Factor* alpha, T* x, int64_t incx) {
  using V = ValueOf<T>;
  using F = ValueOf<Factor>;
  Call call(handle);
  if (!call.ok()) return call.status();
  if (n <= 0 || incx <= 0) return CUBLAS_STATUS_SUCCESS;
  if (alpha == nullptr || x == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  return call.Run([n, a = call.In(alpha, sizeof(F)), vx = VectorOf(x, n, incx)](native::Device& device) {
    F factor;
    Lane<V> to;
    if (!Load(device, a, &factor) || !to.Open(device, vx)) return;
    for (int64_t i = 0; i < n; i++) to[i] *= factor;
  });
}
template <typename T>
cublasStatus_t Scal(cublasHandle_t handle, int64_t n, const T* alpha, T* x, int64_t incx) {
  return Scale<T, T>(handle, n, alpha, x, incx);
}

template <typename T>
cublasStatus_t Copy(cublasHandle_t handle, int64_t n, const T* x, int64_t incx, T* y, int64_t incy) {
  using V = ValueOf<T>;
  Call call(handle);
  if (!call.ok()) return call.status();
  if (n <= 0) return CUBLAS_STATUS_SUCCESS;
  if (x == nullptr || y == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  return call.Run([n, vx = VectorOf(x, n, incx), vy = VectorOf(y, n, incy)](native::Device& device) {
    Lane<const V> from;
    Lane<V> to;
    if (!from.Open(device, vx) || !to.Open(device, vy)) return;
    for (int64_t i = 0; i < n; i++) to[i] = from[i];
  });
}

// Replaces each pair (x[i], y[i]) by what `change` makes of it, which is built from scalars on the device.
template <typename V, typename Build>
cublasStatus_t ChangePairs(const Call& call, int64_t n, const Vector& vx, const Vector& vy,
                           const Build& build) {
  return call.Run([n, vx, vy, build](native::Device& device) {
    Lane<V> x, y;
    if (!x.Open(device, vx) || !y.Open(device, vy)) return;
    build(device, [&](auto change) {
      for (int64_t i = 0; i < n; i++) change(x[i], y[i]);
    });
  });
}

template <typename T>
cublasStatus_t Swap(cublasHandle_t handle, int64_t n, T* x, int64_t incx, T* y, int64_t incy) {
  using V = ValueOf<T>;
  Call call(handle);
  if (!call.ok()) return call.status();
  if (n <= 0) return CUBLAS_STATUS_SUCCESS;
  if (x == nullptr || y == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  return ChangePairs<V>(call, n, VectorOf(x, n, incx), VectorOf(y, n, incy),
                        [](native::Device&, auto change) { change([](V& a, V& b) { std::swap(a, b); }); });
}

// x = c x + s y, y = c y - conj(s) x.
template <typename T, typename Sine>
cublasStatus_t Rotate(cublasHandle_t handle, int64_t n, T* x, int64_t incx, T* y, int64_t incy,
                      const RealOf<T>* c, const Sine* s) {
  using V = ValueOf<T>;
  using S = ValueOf<Sine>;
  using R = RealOf<T>;
  Call call(handle);
  if (!call.ok()) return call.status();
  if (n <= 0) return CUBLAS_STATUS_SUCCESS;
  if (x == nullptr || y == nullptr || c == nullptr || s == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  return ChangePairs<V>(
      call, n, VectorOf(x, n, incx), VectorOf(y, n, incy),
      [cosine = call.In(c, sizeof(R)), sine = call.In(s, sizeof(S))](native::Device& device, auto change) {
        R cos;
        S sin;
        if (!Load(device, cosine, &cos) || !Load(device, sine, &sin)) return;
        change([cos, sin](V& a, V& b) {
          V old = a;
          a = cos * old + sin * b;
          b = cos * b - Conjugate(sin, true) * old;
        });
      });
}
template <typename T>
cublasStatus_t Rot(cublasHandle_t handle, int64_t n, T* x, int64_t incx, T* y, int64_t incy,
                   const RealOf<T>* c, const T* s) {
  return Rotate<T, T>(handle, n, x, incx, y, incy, c, s);
}

// The matrix that the five numbers of `param` stand for, flag first.
template <typename R>
struct Modified {
  R h11 = 1, h21 = 0, h12 = 0, h22 = 1;
  explicit Modified(const R* param) {
    R flag = param[0];
    if (flag == R(-2)) return;
    h11 = flag == R(0) ? R(1) : param[1];
    h21 = flag == R(1) ? R(-1) : param[2];
    h12 = flag == R(1) ? R(1) : param[3];
    h22 = flag == R(0) ? R(1) : param[4];
  }
};

template <typename T>
cublasStatus_t Rotm(cublasHandle_t handle, int64_t n, T* x, int64_t incx, T* y, int64_t incy,
                    const T* param) {
  struct Five {
    T values[5];
  };
  struct Given {
    uint64_t address = 0;
    Five five = {};
  };
  Call call(handle);
  if (!call.ok()) return call.status();
  if (n <= 0) return CUBLAS_STATUS_SUCCESS;
  if (x == nullptr || y == nullptr || param == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  Given given;
  if (call.handle().pointer_mode == CUBLAS_POINTER_MODE_DEVICE) {
    given.address = AddressOf(param);
  } else {
    std::memcpy(&given.five, param, sizeof given.five);
  }
  return ChangePairs<T>(call, n, VectorOf(x, n, incx), VectorOf(y, n, incy),
                        [given](native::Device& device, auto change) {
                          Five five = given.five;
                          if (given.address != 0) {
                            const void* at = device.Read(given.address, sizeof five);
                            if (at == nullptr) return;
                            std::memcpy(&five, at, sizeof five);
                          }
                          Modified<T> h(five.values);
                          change([h](T& a, T& b) {
                            T old = a;
                            a = h.h11 * old + h.h12 * b;
                            b = h.h21 * old + h.h22 * b;
                          });
                        });
}

template <typename T, bool kConjugate>
cublasStatus_t DotOf(cublasHandle_t handle, int64_t n, const T* x, int64_t incx, const T* y, int64_t incy,
                     T* result) {
  using V = ValueOf<T>;
  Call call(handle);
  if (!call.ok()) return call.status();
  if (result == nullptr || (n > 0 && (x == nullptr || y == nullptr))) return CUBLAS_STATUS_INVALID_VALUE;
  n = n < 0 ? 0 : n;
  return call.RunForResult(
      result, sizeof(V),
      [n, vx = VectorOf(x, n, incx), vy = VectorOf(y, n, incy)](native::Device& device, void* out) {
        Lane<const V> a, b;
        if (!a.Open(device, vx) || !b.Open(device, vy)) return;
        WideOf<V> sum = 0;
        for (int64_t i = 0; i < n; i++) sum += Conjugate(WideOf<V>(a[i]), kConjugate) * WideOf<V>(b[i]);
        *static_cast<V*>(out) = static_cast<V>(sum);
      });
}
template <typename T>
cublasStatus_t Dot(cublasHandle_t handle, int64_t n, const T* x, int64_t incx, const T* y, int64_t incy,
                   T* result) {
  return DotOf<T, false>(handle, n, x, incx, y, incy, result);
}
template <typename T>
cublasStatus_t Dotc(cublasHandle_t handle, int64_t n, const T* x, int64_t incx, const T* y, int64_t incy,
                    T* result) {
  return DotOf<T, true>(handle, n, x, incx, y, incy, result);
}

// A result of one vector: reduce(n, lane) gives it. Vectors without a forward increment have no elements.
template <typename T, typename Result, typename Reduce>
cublasStatus_t ReduceVector(cublasHandle_t handle, int64_t n, const T* x, int64_t incx, Result* result,
                            const Reduce& reduce) {
  using V = ValueOf<T>;
  Call call(handle);
  if (!call.ok()) return call.status();
  if (incx <= 0 || n < 0) n = 0;
  if (result == nullptr || (n > 0 && x == nullptr)) return CUBLAS_STATUS_INVALID_VALUE;
  return call.RunForResult(result, sizeof(Result),
                           [n, vx = VectorOf(x, n, incx), reduce](native::Device& device, void* out) {
                             Lane<const V> lane;
                             if (!lane.Open(device, vx)) return;
                             *static_cast<Result*>(out) = static_cast<Result>(reduce(n, lane));
                           });
}

template <typename T>
cublasStatus_t Nrm2(cublasHandle_t handle, int64_t n, const T* x, int64_t incx, RealOf<T>* result) {
  return ReduceVector(handle, n, x, incx, result, [](int64_t count, const auto& lane) {
    return Length(count, [&lane](int64_t i) { return Complex64(lane[i]); });
  });
}

template <typename T>
cublasStatus_t Asum(cublasHandle_t handle, int64_t n, const T* x, int64_t incx, RealOf<T>* result) {
  return ReduceVector(handle, n, x, incx, result, [](int64_t count, const auto& lane) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += Size(lane[i]);
    return sum;
  });
}

template <typename T, typename Index>
cublasStatus_t Iamax(cublasHandle_t handle, int64_t n, const T* x, int64_t incx, Index* result) {
  return ReduceVector(handle, n, x, incx, result, [](int64_t count, const auto& lane) {
    return Extreme<false>(count, [&lane](int64_t i) { return Size(lane[i]); });
  });
}
template <typename T, typename Index>
cublasStatus_t Iamin(cublasHandle_t handle, int64_t n, const T* x, int64_t incx, Index* result) {
  return ReduceVector(handle, n, x, incx, result, [](int64_t count, const auto& lane) {
    return Extreme<true>(count, [&lane](int64_t i) { return Size(lane[i]); });
  });
}

}  // namespace softgpu::blas

#endif  // SOFTGPU_BLAS_LEVEL1_H_
