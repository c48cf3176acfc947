// The Ex routines on vectors: each operand with a type of its own, arithmetic in double, one rounding.
#ifndef SOFTGPU_BLAS_EXTENDED_H_
#define SOFTGPU_BLAS_EXTENDED_H_

#include "softgpu/blas/level1.h"

namespace softgpu::blas {

// Floating point types that the Ex routines on vectors take.
inline bool VectorType(cudaDataType type) {
  return type == CUDA_R_16F || type == CUDA_R_16BF || type == CUDA_R_32F || type == CUDA_R_64F ||
         type == CUDA_C_32F || type == CUDA_C_64F;
}
// Complex with complex and real with real.
template <typename... Types>
bool VectorTypes(cudaDataType first, Types... others) {
  return VectorType(first) && (... && (VectorType(others) && IsComplex(others) == IsComplex(first)));
}

inline cublasStatus_t AxpyEx(cublasHandle_t handle, int64_t n, const void* alpha, cudaDataType alpha_type,
                             const void* x, cudaDataType x_type, int64_t incx, void* y, cudaDataType y_type,
                             int64_t incy, cudaDataType execution) {
  Call call(handle);
  if (!call.ok()) return call.status();
  if (!VectorTypes(alpha_type, x_type, y_type, execution)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (n <= 0) return CUBLAS_STATUS_SUCCESS;
  if (alpha == nullptr || x == nullptr || y == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  return call.Run([n, a = call.In(alpha, SizeOf(alpha_type)), alpha_type, x_type, y_type,
                   vx = VectorOf(x, n, incx), vy = VectorOf(y, n, incy)](native::Device& device) {
    Complex64 factor;
    AnyLane from, to;
    if (!LoadScalar(a, alpha_type, device, &factor) || !from.Open(device, vx, x_type, false) ||
        !to.Open(device, vy, y_type, true)) {
      return;
    }
    for (int64_t i = 0; i < n; i++) to.Set(i, to.Get(i) + factor * from.Get(i));
  });
}

inline cublasStatus_t ScalEx(cublasHandle_t handle, int64_t n, const void* alpha, cudaDataType alpha_type,
                             void* x, cudaDataType x_type, int64_t incx, cudaDataType execution) {
  Call call(handle);
  if (!call.ok()) return call.status();
  if (!VectorType(alpha_type) || !VectorType(x_type) || !VectorType(execution))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (n <= 0 || incx <= 0) return CUBLAS_STATUS_SUCCESS;
  if (alpha == nullptr || x == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  return call.Run([n, a = call.In(alpha, SizeOf(alpha_type)), alpha_type, x_type,
                   vx = VectorOf(x, n, incx)](native::Device& device) {
    Complex64 factor;
    AnyLane lane;
    if (!LoadScalar(a, alpha_type, device, &factor) || !lane.Open(device, vx, x_type, true)) return;
    for (int64_t i = 0; i < n; i++) lane.Set(i, factor * lane.Get(i));
  });
}

inline cublasStatus_t CopyEx(cublasHandle_t handle, int64_t n, const void* x, cudaDataType x_type,
                             int64_t incx, void* y, cudaDataType y_type, int64_t incy) {
  Call call(handle);
  if (!call.ok()) return call.status();
  if (!VectorType(x_type) || x_type != y_type) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (n <= 0) return CUBLAS_STATUS_SUCCESS;
  if (x == nullptr || y == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  return call.Run([n, x_type, vx = VectorOf(x, n, incx), vy = VectorOf(y, n, incy)](native::Device& device) {
    AnyLane from, to;
    if (!from.Open(device, vx, x_type, false) || !to.Open(device, vy, x_type, true)) return;
    for (int64_t i = 0; i < n; i++) to.Set(i, from.Get(i));
  });
}

inline cublasStatus_t SwapEx(cublasHandle_t handle, int64_t n, void* x, cudaDataType x_type, int64_t incx,
                             void* y, cudaDataType y_type, int64_t incy) {
  Call call(handle);
  if (!call.ok()) return call.status();
  if (!VectorType(x_type) || x_type != y_type) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (n <= 0) return CUBLAS_STATUS_SUCCESS;
  if (x == nullptr || y == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  return call.Run([n, x_type, vx = VectorOf(x, n, incx), vy = VectorOf(y, n, incy)](native::Device& device) {
    AnyLane a, b;
    if (!a.Open(device, vx, x_type, true) || !b.Open(device, vy, x_type, true)) return;
    for (int64_t i = 0; i < n; i++) {
      Complex64 old = a.Get(i);
      a.Set(i, b.Get(i));
      b.Set(i, old);
    }
  });
}

inline cublasStatus_t RotEx(cublasHandle_t handle, int64_t n, void* x, cudaDataType x_type, int64_t incx,
                            void* y, cudaDataType y_type, int64_t incy, const void* c, const void* s,
                            cudaDataType cs_type, cudaDataType execution) {
  Call call(handle);
  if (!call.ok()) return call.status();
  if (!VectorTypes(x_type, y_type, execution) || x_type != y_type || !VectorType(cs_type))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (n <= 0) return CUBLAS_STATUS_SUCCESS;
  if (x == nullptr || y == nullptr || c == nullptr || s == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  return call.Run([n, x_type, cs_type, vx = VectorOf(x, n, incx), vy = VectorOf(y, n, incy),
                   cosine = call.In(c, SizeOf(cs_type)),
                   sine = call.In(s, SizeOf(cs_type))](native::Device& device) {
    Complex64 cos, sin;
    AnyLane a, b;
    if (!LoadScalar(cosine, cs_type, device, &cos) || !LoadScalar(sine, cs_type, device, &sin) ||
        !a.Open(device, vx, x_type, true) || !b.Open(device, vy, x_type, true)) {
      return;
    }
    for (int64_t i = 0; i < n; i++) {
      Complex64 p = a.Get(i), q = b.Get(i);
      a.Set(i, cos * p + sin * q);
      b.Set(i, cos * q - std::conj(sin) * p);
    }
  });
}

template <bool kConjugate>
cublasStatus_t DotOfAny(cublasHandle_t handle, int64_t n, const void* x, cudaDataType x_type, int64_t incx,
                        const void* y, cudaDataType y_type, int64_t incy, void* result,
                        cudaDataType result_type, cudaDataType execution) {
  Call call(handle);
  if (!call.ok()) return call.status();
  if (!VectorTypes(x_type, y_type, result_type, execution)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (result == nullptr || (n > 0 && (x == nullptr || y == nullptr))) return CUBLAS_STATUS_INVALID_VALUE;
  n = n < 0 ? 0 : n;
  return call.RunForResult(result, SizeOf(result_type),
                           [n, x_type, y_type, result_type, vx = VectorOf(x, n, incx),
                            vy = VectorOf(y, n, incy)](native::Device& device, void* out) {
                             AnyLane a, b;
                             if (!a.Open(device, vx, x_type, false) || !b.Open(device, vy, y_type, false))
                               return;
                             Complex64 sum = 0;
                             for (int64_t i = 0; i < n; i++)
                               sum += Conjugate(a.Get(i), kConjugate) * b.Get(i);
                             StoreElement(result_type, out, 0, sum);
                           });
}
inline cublasStatus_t DotEx(cublasHandle_t handle, int64_t n, const void* x, cudaDataType x_type,
                            int64_t incx, const void* y, cudaDataType y_type, int64_t incy, void* result,
                            cudaDataType result_type, cudaDataType execution) {
  return DotOfAny<false>(handle, n, x, x_type, incx, y, y_type, incy, result, result_type, execution);
}
inline cublasStatus_t DotcEx(cublasHandle_t handle, int64_t n, const void* x, cudaDataType x_type,
                             int64_t incx, const void* y, cudaDataType y_type, int64_t incy, void* result,
                             cudaDataType result_type, cudaDataType execution) {
  return DotOfAny<true>(handle, n, x, x_type, incx, y, y_type, incy, result, result_type, execution);
}

// reduce(n, lane) as in ReduceVector().
template <typename Store, typename Reduce>
cublasStatus_t ReduceAny(cublasHandle_t handle, int64_t n, const void* x, cudaDataType x_type, int64_t incx,
                         void* result, size_t result_bytes, const Store& store, const Reduce& reduce) {
  Call call(handle);
  if (!call.ok()) return call.status();
  if (!VectorType(x_type)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (incx <= 0 || n < 0) n = 0;
  if (result == nullptr || (n > 0 && x == nullptr)) return CUBLAS_STATUS_INVALID_VALUE;
  return call.RunForResult(
      result, result_bytes,
      [n, x_type, vx = VectorOf(x, n, incx), store, reduce](native::Device& device, void* out) {
        AnyLane lane;
        if (lane.Open(device, vx, x_type, false)) store(out, reduce(n, lane));
      });
}

inline cublasStatus_t Nrm2Ex(cublasHandle_t handle, int64_t n, const void* x, cudaDataType x_type,
                             int64_t incx, void* result, cudaDataType result_type, cudaDataType execution) {
  if (!VectorType(result_type) || IsComplex(result_type) || !VectorType(execution))
    return FindHandle(handle) == nullptr ? CUBLAS_STATUS_NOT_INITIALIZED : CUBLAS_STATUS_NOT_SUPPORTED;
  return ReduceAny(
      handle, n, x, x_type, incx, result, SizeOf(result_type),
      [result_type](void* out, double value) { StoreElement(result_type, out, 0, value); },
      [](int64_t count, const AnyLane& lane) {
        return Length(count, [&lane](int64_t i) { return lane.Get(i); });
      });
}

inline cublasStatus_t AsumEx(cublasHandle_t handle, int64_t n, const void* x, cudaDataType x_type,
                             int64_t incx, void* result, cudaDataType result_type, cudaDataType execution) {
  if (!VectorType(result_type) || IsComplex(result_type) || !VectorType(execution))
    return FindHandle(handle) == nullptr ? CUBLAS_STATUS_NOT_INITIALIZED : CUBLAS_STATUS_NOT_SUPPORTED;
  return ReduceAny(
      handle, n, x, x_type, incx, result, SizeOf(result_type),
      [result_type](void* out, double value) { StoreElement(result_type, out, 0, value); },
      [](int64_t count, const AnyLane& lane) {
        double sum = 0;
        for (int64_t i = 0; i < count; i++) sum += Size(lane.Get(i));
        return sum;
      });
}

template <bool kSmallest, typename Index>
cublasStatus_t ExtremeOfAny(cublasHandle_t handle, int64_t n, const void* x, cudaDataType x_type,
                            int64_t incx, Index* result) {
  return ReduceAny(
      handle, n, x, x_type, incx, result, sizeof *result,
      [](void* out, int64_t value) { *static_cast<Index*>(out) = static_cast<Index>(value); },
      [](int64_t count, const AnyLane& lane) {
        return Extreme<kSmallest>(count, [&lane](int64_t i) { return Size(lane.Get(i)); });
      });
}
template <typename Index>
cublasStatus_t IamaxEx(cublasHandle_t handle, int64_t n, const void* x, cudaDataType x_type, int64_t incx,
                       Index* result) {
  return ExtremeOfAny<false>(handle, n, x, x_type, incx, result);
}
template <typename Index>
cublasStatus_t IaminEx(cublasHandle_t handle, int64_t n, const void* x, cudaDataType x_type, int64_t incx,
                       Index* result) {
  return ExtremeOfAny<true>(handle, n, x, x_type, incx, result);
}

}  // namespace softgpu::blas

#endif  // SOFTGPU_BLAS_EXTENDED_H_
