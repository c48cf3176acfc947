// What the floating-point instructions share: flushing, NaN results, ordering. Included only by per-variant
// files.
#ifndef SOFTGPU_PTX_EXEC_ALU_FLOAT_H_
#define SOFTGPU_PTX_EXEC_ALU_FLOAT_H_

#include "softgpu/ptx/exec/alu_half.h"

namespace softgpu::exec::SOFTGPU_ISA {
namespace {

using ptx::Type;

template <typename T>
struct SignOf;
template <>
struct SignOf<float> {
  using Bits = u32;
  static constexpr Bits kMask = 0x80000000u;
};
template <>
struct SignOf<double> {
  using Bits = u64;
  static constexpr Bits kMask = u64{1} << 63;
};
template <typename T>
inline typename SignOf<T>::Bits BitsOf(T v) {
  return BitCast<typename SignOf<T>::Bits>(v);
}
template <typename T>
inline T FromBits(typename SignOf<T>::Bits b) {
  return BitCast<T>(b);
}

// .ftz: a subnormal becomes zero of its sign. Done on the bits and not by the FPU's modes, because those
// decide what is subnormal before the rounding to a subnormal that the manual describes.
template <bool kFlush>
inline float Flushed(float v) {
  if constexpr (!kFlush) return v;
  return (BitsOf(v) & 0x7f800000u) == 0 ? FromBits<float>(BitsOf(v) & 0x80000000u) : v;
}
template <bool kFlush>
inline double Flushed(double v) {
  return v;
}

// Single precision results that are NaN are the canonical one. In double precision the first NaN among the
// sources is kept, quieted; which one the FPU would keep depends on the instruction that the compiler happens
// to choose.
// Written on bits, which compilers turn into selections and not into branches.
inline bool NanBits(u32 bits) { return (bits & 0x7fffffffu) > 0x7f800000u; }
inline bool NanBits(u64 bits) { return (bits & ~(u64{1} << 63)) > u64{0x7ff} << 52; }
inline float Canonical(float v) { return FromBits<float>(NanBits(BitsOf(v)) ? 0x7fffffffu : BitsOf(v)); }
// `r` with the quieted `source` in its place when that is a NaN.
inline u64 Preferring(double source, u64 r) {
  return NanBits(BitsOf(source)) ? BitsOf(source) | u64{1} << 51 : r;
}
template <bool kFlush>
inline float Result(float r, float, float = 0, float = 0) {
  return Flushed<kFlush>(Canonical(r));
}
template <bool kFlush>
inline double Result(double r, double a, double b = 0, double c = 0) {
  return FromBits<double>(Preferring(a, Preferring(b, Preferring(c, BitsOf(r)))));
}

inline float Fuse(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double Fuse(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline float Root(float a) { return __builtin_sqrtf(a); }
inline double Root(double a) { return __builtin_sqrt(a); }
// .sat: NaN becomes +0.
template <typename T>
inline T Unit(T v) {
  return v > 0 ? (v < 1 ? v : T(1)) : T(0);
}

// -0 is less than +0; a NaN loses against a number unless kNan.
template <typename T>
inline T Smaller(T a, T b) {
  return a < b || (a == b && (BitsOf(a) & SignOf<T>::kMask)) ? a : b;
}
template <typename T>
inline T Larger(T a, T b) {
  return a > b || (a == b && !(BitsOf(a) & SignOf<T>::kMask)) ? a : b;
}
template <typename T>
inline T NanOf() {
  if constexpr (sizeof(T) == 4)
    return FromBits<T>(0x7fffffffu);
  else
    return FromBits<T>(u64{0x7fffffffffffffff});
}
template <typename T, bool kMin, bool kNan = false, bool kXorSign = false, bool kFlush = false>
struct MinMax : Same3<T> {
  static T Do(T a, T b) {
    if constexpr (kFlush) {
      a = Flushed<true>(a);
      b = Flushed<true>(b);
    }
    typename SignOf<T>::Bits sign = (BitsOf(a) ^ BitsOf(b)) & SignOf<T>::kMask;
    if constexpr (kXorSign) {
      a = FromBits<T>(BitsOf(a) & ~SignOf<T>::kMask);
      b = FromBits<T>(BitsOf(b) & ~SignOf<T>::kMask);
    }
    bool a_nan = a != a, b_nan = b != b;
    T result = kMin ? Smaller(a, b) : Larger(a, b);
    if (a_nan) result = b;
    if (b_nan) result = a;
    if ((a_nan && b_nan) || (kNan && (a_nan || b_nan))) return NanOf<T>();
    if constexpr (kXorSign) result = FromBits<T>((BitsOf(result) & ~SignOf<T>::kMask) | sign);
    return result;
  }
};

template <Compare kCompare, typename T>
inline bool Holds(T a, T b) {
  bool unordered = a != a || b != b;
  switch (kCompare) {
    case Compare::kEq:
      return a == b;
    case Compare::kNe:
      return !unordered && a != b;
    case Compare::kLt:
      return a < b;
    case Compare::kLe:
      return a <= b;
    case Compare::kGt:
      return a > b;
    case Compare::kGe:
      return a >= b;
    case Compare::kEqu:
      return unordered || a == b;
    case Compare::kNeu:
      return a != b;
    case Compare::kLtu:
      return !(a >= b);
    case Compare::kLeu:
      return !(a > b);
    case Compare::kGtu:
      return !(a <= b);
    case Compare::kGeu:
      return !(a < b);
    case Compare::kNum:
      return !unordered;
    default:
      return unordered;
  }
}
// Instantiates Function<compare, arguments...> for each comparison; null for one that is none.
#define SOFTGPU_FOR_COMPARE(compare, FUNCTION, ...) \
  switch (compare) {                                \
    case Compare::kEq:                              \
      return FUNCTION(Compare::kEq, __VA_ARGS__);   \
    case Compare::kNe:                              \
      return FUNCTION(Compare::kNe, __VA_ARGS__);   \
    case Compare::kLt:                              \
      return FUNCTION(Compare::kLt, __VA_ARGS__);   \
    case Compare::kLe:                              \
      return FUNCTION(Compare::kLe, __VA_ARGS__);   \
    case Compare::kGt:                              \
      return FUNCTION(Compare::kGt, __VA_ARGS__);   \
    case Compare::kGe:                              \
      return FUNCTION(Compare::kGe, __VA_ARGS__);   \
    case Compare::kEqu:                             \
      return FUNCTION(Compare::kEqu, __VA_ARGS__);  \
    case Compare::kNeu:                             \
      return FUNCTION(Compare::kNeu, __VA_ARGS__);  \
    case Compare::kLtu:                             \
      return FUNCTION(Compare::kLtu, __VA_ARGS__);  \
    case Compare::kLeu:                             \
      return FUNCTION(Compare::kLeu, __VA_ARGS__);  \
    case Compare::kGtu:                             \
      return FUNCTION(Compare::kGtu, __VA_ARGS__);  \
    case Compare::kGeu:                             \
      return FUNCTION(Compare::kGeu, __VA_ARGS__);  \
    case Compare::kNum:                             \
      return FUNCTION(Compare::kNum, __VA_ARGS__);  \
    case Compare::kNan:                             \
      return FUNCTION(Compare::kNan, __VA_ARGS__);  \
  }                                                 \
  return nullptr

}  // namespace
}  // namespace softgpu::exec::SOFTGPU_ISA

#endif  // SOFTGPU_PTX_EXEC_ALU_FLOAT_H_
