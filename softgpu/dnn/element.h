// The element types that are computed with, and how they are read and written.
//
// Arithmetic is in float for half, bfloat16 and float, in double for double.
#ifndef SOFTGPU_DNN_ELEMENT_H_
#define SOFTGPU_DNN_ELEMENT_H_

#include <cudnn.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace softgpu::dnn {

struct Half {
  uint16_t bits;
};

struct Bfloat16 {
  uint16_t bits;
};

inline float ToFloat(Bfloat16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }

// Round to nearest, ties to even; a NaN stays one.
inline Bfloat16 ToBfloat16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}

inline float ToFloat(Half value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t magnitude = value.bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((magnitude & 0x3ffu) << 13));
  if (magnitude >= 0x400u) return std::bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
  const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(subnormal));
}

// Round to nearest, ties to even; what is too large becomes infinite.
inline Half ToHalf(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};
  if (magnitude >= 0x47800000u) return {static_cast<uint16_t>(sign | 0x7c00u)};
  if (magnitude < 0x38800000u) {
    // Below the normal numbers: adding 0.5 leaves the rounded count of 2^-24 in the low bits.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u))};
  }
  const uint32_t rounded = magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u);
  return {static_cast<uint16_t>(sign | (rounded >> 13))};
}

template <typename T>
T Load(const float& value) {
  return static_cast<T>(value);
}
template <typename T>
T Load(const double& value) {
  return static_cast<T>(value);
}
template <typename T>
T Load(const Half& value) {
  return static_cast<T>(ToFloat(value));
}
template <typename T>
T Load(const Bfloat16& value) {
  return static_cast<T>(ToFloat(value));
}

template <typename T>
void Store(T value, float* to) {
  *to = static_cast<float>(value);
}
template <typename T>
void Store(T value, double* to) {
  *to = static_cast<double>(value);
}
template <typename T>
void Store(T value, Half* to) {
  *to = ToHalf(static_cast<float>(value));
}
template <typename T>
void Store(T value, Bfloat16* to) {
  *to = ToBfloat16(static_cast<float>(value));
}

// Bytes of one element of the types that tensors may have, 0 for others.
inline size_t SizeOf(int type) {
  switch (type) {
    case CUDNN_DATA_DOUBLE:
      return 8;
    case CUDNN_DATA_FLOAT:
    case CUDNN_DATA_INT32:
      return 4;
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16:
      return 2;
    case CUDNN_DATA_INT8:
    case CUDNN_DATA_UINT8:
      return 1;
    default:
      return 0;
  }
}

// One of the types that can be computed with.
inline bool IsFloating(int type) {
  return type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_DOUBLE || type == CUDNN_DATA_HALF ||
         type == CUDNN_DATA_BFLOAT16;
}

// Calls `body` with a null pointer to the C++ type of the elements; a type that IsFloating.
template <typename Body>
void WithElement(int type, Body&& body) {
  switch (type) {
    case CUDNN_DATA_FLOAT:
      return body(static_cast<float*>(nullptr));
    case CUDNN_DATA_DOUBLE:
      return body(static_cast<double*>(nullptr));
    case CUDNN_DATA_HALF:
      return body(static_cast<Half*>(nullptr));
    default:
      return body(static_cast<Bfloat16*>(nullptr));
  }
}

template <typename T>
constexpr int kTypeOf = sizeof(T) == sizeof(double) ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;

}  // namespace softgpu::dnn

#endif  // SOFTGPU_DNN_ELEMENT_H_
