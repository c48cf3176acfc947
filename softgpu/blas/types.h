// The element types of matrices and vectors, and how each is read and rounded.
#ifndef SOFTGPU_BLAS_TYPES_H_
#define SOFTGPU_BLAS_TYPES_H_

#include <cuComplex.h>
#include <library_types.h>

#include <bit>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace softgpu::blas {

using Complex32 = std::complex<float>;
using Complex64 = std::complex<double>;

// ---- 16-bit floating point, by its bits. From float: to nearest, ties to even.
inline float HalfToFloat(uint16_t bits) {
  uint32_t magnitude = bits & 0x7fffu;
  uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  uint32_t special = magnitude >= 0x7c00 ? 0x7f800000u : 0;
  float value = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
  uint32_t result = special != 0 ? special | magnitude << 13 : std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>(result | sign);
}
inline uint16_t FloatToHalf(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return 0x7fff;
  if (bits >= 0x477ff000) return sign | 0x7c00;  // 65520, the first that rounds to infinity
  if (bits < 0x38800000) {                       // below 2^-14: one half has the same last place
    float aligned = std::bit_cast<float>(bits) + 0.5f;
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(aligned) - std::bit_cast<uint32_t>(0.5f));
  }
  bits += 0xfff + (bits >> 13 & 1);
  return sign | static_cast<uint16_t>((bits - 0x38000000) >> 13);
}
inline float BFloatToFloat(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
inline uint16_t FloatToBFloat(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// ---- 8-bit floating point. From float: to nearest, ties to even; what is too large becomes the largest.
template <int kFractionBits>
float Fp8ToFloat(uint8_t bits) {
  constexpr bool kInfinities = kFractionBits == 2;  // E5M2 is IEEE; E4M3 has NaN alone
  constexpr int kExponentBits = 7 - kFractionBits, kBias = (1 << (kExponentBits - 1)) - 1;
  int exponent = bits >> kFractionBits & ((1 << kExponentBits) - 1);
  int fraction = bits & ((1 << kFractionBits) - 1);
  float sign = (bits & 0x80) != 0 ? -1.0f : 1.0f;
  if ((bits & 0x7f) == 0x7f || (kInfinities && exponent == 31 && fraction != 0)) return NAN;
  if (kInfinities && exponent == 31) return sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), 1 - kBias - kFractionBits);
  return sign *
         std::ldexp(static_cast<float>(fraction + (1 << kFractionBits)), exponent - kBias - kFractionBits);
}
template <int kFractionBits>
uint8_t FloatToFp8(float value) {
  constexpr int kExponentBits = 7 - kFractionBits, kBias = (1 << (kExponentBits - 1)) - 1;
  constexpr uint8_t kLargest = kFractionBits == 2 ? 0x7b : 0x7e;
  if (std::isnan(value)) return 0x7f;
  uint8_t sign = std::signbit(value) ? 0x80 : 0;
  float magnitude = std::fabs(value);
  if (magnitude >= Fp8ToFloat<kFractionBits>(kLargest)) return sign | kLargest;
  if (magnitude < std::ldexp(1.0f, 1 - kBias)) {
    return sign | static_cast<uint8_t>(std::nearbyint(std::ldexp(magnitude, kBias - 1 + kFractionBits)));
  }
  int exponent = std::ilogb(magnitude);
  auto fraction = static_cast<int>(std::nearbyint(std::ldexp(magnitude, kFractionBits - exponent)));
  // The carry of a fraction that rounds up goes into the exponent.
  return sign | static_cast<uint8_t>(((exponent + kBias - 1) << kFractionBits) + fraction);
}

// Bytes of an element; 0 for types that no routine here takes.
constexpr size_t SizeOf(cudaDataType type) {
  switch (type) {
    case CUDA_R_8I:
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2:
      return 1;
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 2;
    case CUDA_R_32F:
    case CUDA_R_32I:
      return 4;
    case CUDA_R_64F:
    case CUDA_C_32F:
      return 8;
    case CUDA_C_64F:
      return 16;
    default:
      return 0;
  }
}

constexpr bool IsComplex(cudaDataType type) { return type == CUDA_C_32F || type == CUDA_C_64F; }

// How an element of a type is kept in memory: Storage<type>::Type, and to and from float (the narrow types).
template <cudaDataType kType>
struct Storage;
template <>
struct Storage<CUDA_R_16F> {
  using Type = uint16_t;
  static float Load(Type bits) { return HalfToFloat(bits); }
  static Type Store(float value) { return FloatToHalf(value); }
};
template <>
struct Storage<CUDA_R_16BF> {
  using Type = uint16_t;
  static float Load(Type bits) { return BFloatToFloat(bits); }
  static Type Store(float value) { return FloatToBFloat(value); }
};
template <>
struct Storage<CUDA_R_8F_E4M3> {
  using Type = uint8_t;
  static float Load(Type bits) { return Fp8ToFloat<3>(bits); }
  static Type Store(float value) { return FloatToFp8<3>(value); }
};
template <>
struct Storage<CUDA_R_8F_E5M2> {
  using Type = uint8_t;
  static float Load(Type bits) { return Fp8ToFloat<2>(bits); }
  static Type Store(float value) { return FloatToFp8<2>(value); }
};
template <>
struct Storage<CUDA_R_8I> {
  using Type = int8_t;
  static float Load(Type value) { return value; }
  static Type Store(float value) {
    return static_cast<int8_t>(std::nearbyint(std::fmin(127.0f, std::fmax(-128.0f, value))));
  }
};
template <>
struct Storage<CUDA_R_32F> {
  using Type = float;
  static float Load(Type value) { return value; }
  static Type Store(float value) { return value; }
};

// Calls visit(Storage<type>()) for the types with a Storage; false for others.
template <typename Visit>
bool WithStorage(cudaDataType type, Visit visit) {
  switch (type) {
    case CUDA_R_16F:
      visit(Storage<CUDA_R_16F>());
      return true;
    case CUDA_R_16BF:
      visit(Storage<CUDA_R_16BF>());
      return true;
    case CUDA_R_8F_E4M3:
      visit(Storage<CUDA_R_8F_E4M3>());
      return true;
    case CUDA_R_8F_E5M2:
      visit(Storage<CUDA_R_8F_E5M2>());
      return true;
    case CUDA_R_8I:
      visit(Storage<CUDA_R_8I>());
      return true;
    case CUDA_R_32F:
      visit(Storage<CUDA_R_32F>());
      return true;
    default:
      return false;
  }
}

// One element at `data` + index, any type, without loss; the imaginary part of real types is 0.
Complex64 LoadElement(cudaDataType type, const void* data, int64_t index);
// Rounds to the type; real types take the real part.
void StoreElement(cudaDataType type, void* data, int64_t index, Complex64 value);

// The type of this library for a C type of the interface, and the CUDA data type.
template <typename T>
struct Traits;
template <>
struct Traits<float> {
  using Value = float;
  using Real = float;
  static constexpr cudaDataType kType = CUDA_R_32F;
};
template <>
struct Traits<double> {
  using Value = double;
  using Real = double;
  static constexpr cudaDataType kType = CUDA_R_64F;
};
template <>
struct Traits<cuComplex> {
  using Value = Complex32;
  using Real = float;
  static constexpr cudaDataType kType = CUDA_C_32F;
};
template <>
struct Traits<cuDoubleComplex> {
  using Value = Complex64;
  using Real = double;
  static constexpr cudaDataType kType = CUDA_C_64F;
};
template <typename T>
using ValueOf = typename Traits<T>::Value;
template <typename T>
using RealOf = typename Traits<T>::Real;

// What sums are kept in.
template <typename Value>
struct Wider {
  using Type = double;
};
template <typename Real>
struct Wider<std::complex<Real>> {
  using Type = Complex64;
};
template <typename Value>
using WideOf = typename Wider<Value>::Type;

template <typename Value>
inline constexpr bool kIsComplex = !std::is_floating_point_v<Value>;
template <typename Value>
Value Conjugate(Value value, bool conjugate) {
  if constexpr (kIsComplex<Value>) {
    return conjugate ? std::conj(value) : value;
  } else {
    return value;
  }
}

}  // namespace softgpu::blas

#endif  // SOFTGPU_BLAS_TYPES_H_
