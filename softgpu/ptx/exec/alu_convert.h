// The rules of cvt: integers of every width and the floating-point formats. Included only by per-variant
// files.
#ifndef SOFTGPU_PTX_EXEC_ALU_CONVERT_H_
#define SOFTGPU_PTX_EXEC_ALU_CONVERT_H_

#include "softgpu/ptx/exec/alu_float.h"

namespace softgpu::exec::SOFTGPU_ISA {
namespace {

// --- Integers: how a lane of each type is read and written. 8-bit values live in 16-bit lanes.
template <typename Lane, typename Value>
struct Int {
  using D = Lane;
  using A = Lane;
  using V = Value;
  static constexpr bool kSigned = Value(-1) < Value(0);
  static constexpr unsigned kBits = 8 * sizeof(Value);
  static constexpr Value kMost = static_cast<Value>(kSigned ? (u64{1} << (kBits - 1)) - 1 : ~u64{0});
  static constexpr Value kLeast = static_cast<Value>(kSigned ? u64{1} << (kBits - 1) : 0);
  static Value Get(Lane lane) { return static_cast<Value>(lane); }
  // Extended to the lane by its sign, as PTX has it for results narrower than their register.
  static Lane Put(Value value) { return static_cast<Lane>(value); }
};
using IntU8 = Int<u16, u8>;
using IntS8 = Int<u16, s8>;
using IntU16 = Int<u16, u16>;
using IntS16 = Int<u16, s16>;
using IntU32 = Int<u32, u32>;
using IntS32 = Int<u32, s32>;
using IntU64 = Int<u64, u64>;
using IntS64 = Int<u64, s64>;

template <typename To, typename From, bool kSat>
struct IntToInt {
  using D = typename To::D;
  using A = typename From::A;
  static D Do(A lane) {
    typename From::V v = From::Get(lane);
    if constexpr (kSat) {
      __int128 wide = v;
      if (wide > static_cast<__int128>(To::kMost)) return To::Put(To::kMost);
      if (wide < static_cast<__int128>(To::kLeast)) return To::Put(To::kLeast);
    }
    return To::Put(static_cast<typename To::V>(v));
  }
};

// --- Floating point: lanes as double, which holds every value of every format exactly. Put() leaves the
// narrowing to single precision to the FPU's mode; the small formats round by their own code.
struct F32 {
  using D = float;
  using A = float;
  static double Get(float v) { return v; }
  template <Round, bool>
  static float Put(double v) {
    return Canonical(static_cast<float>(v));
  }
};
struct F64 {
  using D = double;
  using A = double;
  static double Get(double v) { return v; }
  template <Round, bool>
  static double Put(double v) {
    return v;
  }
};
template <typename Format>
struct Small {
  using D = u16;
  using A = u16;
  static double Get(u16 v) { return Format::Value(v); }
  template <Round kRound, bool kSatFinite>
  static u16 Put(double v) {
    return static_cast<u16>(Format::template Of<kRound, kSatFinite>(v));
  }
};
using F16 = Small<Half>;
using BF16 = Small<Bfloat>;

inline double RoundIntegral(double v, Round round) {
  switch (round) {
    case Round::kZero:
      return __builtin_trunc(v);
    case Round::kDown:
      return __builtin_floor(v);
    case Round::kUp:
      return __builtin_ceil(v);
    default:
      return __builtin_rint(v);
  }
}

// What happens to a value before it is stored: words of cvt.
enum CvtWords : unsigned { kPlain = 0, kFtz = 1, kSat = 2, kRelu = 4, kSatFinite = 8, kIntegral = 16 };
template <typename To, typename From, Round kRound, unsigned kWords>
struct FloatToFloat {
  using D = typename To::D;
  using A = typename From::A;
  static D Do(A lane) {
    if constexpr ((kWords & kFtz) && sizeof(A) == 4) lane = Flushed<true>(lane);
    double v = From::Get(lane);
    if constexpr (kWords & kIntegral) v = RoundIntegral(v, kRound);
    if constexpr (kWords & kSat) v = Unit(v);
    if constexpr (kWords & kRelu) v = v > 0 || v != v ? v : 0.0;
    D result = To::template Put < kWords & kIntegral ? Round::kNearest : kRound,
      (kWords & kSatFinite) != 0 > (v);
    if constexpr ((kWords & kFtz) && sizeof(D) == 4) result = Flushed<true>(result);
    return result;
  }
};

template <typename To, typename From, Round kRound, bool kFlush>
struct FloatToInt {
  using D = typename To::D;
  using A = typename From::A;
  static D Do(A lane) {
    if constexpr (kFlush) lane = Flushed<kFlush>(lane);
    double v = RoundIntegral(From::Get(lane), kRound);
    using V = typename To::V;
    // NaN: zero, but for 64-bit results and for sources in double precision the most significant bit alone.
    constexpr bool kTopBit = sizeof(V) == 8 || sizeof(A) == 8;
    V nan = kTopBit ? static_cast<V>(u64{1} << (To::kBits - 1)) : V(0);
    constexpr double kAbove =
        To::kSigned ? (To::kBits == 64 ? 0x1p63 : static_cast<double>(u64{1} << (To::kBits - 1)))
                    : (To::kBits == 64 ? 0x1p64 : static_cast<double>(u64{1} << (To::kBits % 64)));
    constexpr double kBelow = To::kSigned ? -kAbove : 0.0;
    double inside = v >= kAbove ? 0.0 : v < kBelow ? 0.0 : v == v ? v : 0.0;
    V converted = 0;
    if constexpr (To::kBits == 64 && !To::kSigned) {
      converted = inside >= 0x1p63 ? static_cast<V>(static_cast<s64>(inside - 0x1p63)) + (u64{1} << 63)
                                   : static_cast<V>(static_cast<s64>(inside));
    } else if constexpr (To::kBits == 64 || (To::kBits == 32 && !To::kSigned)) {
      converted = static_cast<V>(static_cast<s64>(inside));
    } else {
      converted = static_cast<V>(static_cast<s32>(inside));
    }
    V result = v >= kAbove ? To::kMost : v < kBelow ? To::kLeast : v == v ? converted : nan;
    return To::Put(result);
  }
};

// Integer to a format of kMantissa explicit mantissa bits, by integer arithmetic, for every rounding.
template <unsigned kMantissa, int kBias, int kTop, Round kRound>
inline u64 RoundInteger(u64 magnitude, bool negative, u64 sign_bit) {
  if (magnitude == 0) return 0;
  unsigned msb = 63 - static_cast<unsigned>(__builtin_clzll(magnitude));
  u64 kept = 0;
  bool up = false;
  if (msb <= kMantissa) {
    kept = magnitude << (kMantissa - msb);
  } else {
    unsigned drop = msb - kMantissa;
    kept = magnitude >> drop;
    u64 rest = magnitude & ((u64{1} << drop) - 1), half = u64{1} << (drop - 1);
    if (kRound == Round::kUp)
      up = rest != 0 && !negative;
    else if (kRound == Round::kDown)
      up = rest != 0 && negative;
    else if (kRound != Round::kZero)
      up = rest > half || (rest == half && (kept & 1));
  }
  u64 sign = negative ? sign_bit : 0;
  u64 result = kept + up + (static_cast<u64>(static_cast<int>(msb) + kBias - 1) << kMantissa);
  u64 infinity = static_cast<u64>(kTop) << kMantissa;
  if (result >= infinity) {
    bool largest =
        kRound == Round::kZero || (kRound == Round::kUp && negative) || (kRound == Round::kDown && !negative);
    return sign | (largest ? infinity - 1 : infinity);
  }
  return sign | result;
}
template <typename To, typename From, Round kRound, bool kSatUnit>
struct IntToFloat {
  using D = typename To::D;
  using A = typename From::A;
  static D Do(A lane) {
    typename From::V v = From::Get(lane);
    if constexpr (kSatUnit) v = v > 0 ? 1 : 0;
    if constexpr (kRound == Round::kNearest && sizeof(D) >= 4) {
      return static_cast<D>(v);
    } else {
      bool negative = v < 0;
      u64 magnitude = negative ? u64{0} - static_cast<u64>(v) : static_cast<u64>(v);
      if constexpr (sizeof(D) == 8)
        return BitCast<double>(RoundInteger<52, 1023, 2047, kRound>(magnitude, negative, u64{1} << 63));
      else if constexpr (sizeof(D) == 4)
        return BitCast<float>(
            static_cast<u32>(RoundInteger<23, 127, 255, kRound>(magnitude, negative, u64{1} << 31)));
      else if constexpr (__is_same(To, F16))
        return static_cast<u16>(RoundInteger<10, 15, 31, kRound>(magnitude, negative, 0x8000));
      else
        return static_cast<u16>(RoundInteger<7, 127, 255, kRound>(magnitude, negative, 0x8000));
    }
  }
};

template <typename To, typename From, bool kFlush>
LaneFn IntegralRound(Round round) {
  switch (round) {
    case Round::kNearest:
      return &Unary<FloatToInt<To, From, Round::kNearest, kFlush>>;
    case Round::kZero:
      return &Unary<FloatToInt<To, From, Round::kZero, kFlush>>;
    case Round::kDown:
      return &Unary<FloatToInt<To, From, Round::kDown, kFlush>>;
    case Round::kUp:
      return &Unary<FloatToInt<To, From, Round::kUp, kFlush>>;
    default:
      return nullptr;
  }
}

// Two floats into one register, the first in the upper half.
template <typename Format, Round kRound, bool kReluWord, bool kFinite>
struct PackTwo {
  using D = u32;
  using A = float;
  using B = float;
  static u32 One(float v) {
    double wide = v;
    if constexpr (kReluWord) wide = wide > 0 || wide != wide ? wide : 0.0;
    return Format::template Of<kRound, kFinite>(wide);
  }
  static u32 Do(float a, float b) { return One(a) << 16 | One(b); }
};

}  // namespace
}  // namespace softgpu::exec::SOFTGPU_ISA

#endif  // SOFTGPU_PTX_EXEC_ALU_CONVERT_H_
