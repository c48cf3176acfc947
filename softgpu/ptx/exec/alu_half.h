// Half, bfloat16 and the 8-bit formats through double: every such value, product and correctly rounded sum is
// exact there, so one rounding at the end gives the IEEE result. Included only by per-variant files.
#ifndef SOFTGPU_PTX_EXEC_ALU_HALF_H_
#define SOFTGPU_PTX_EXEC_ALU_HALF_H_

#include "softgpu/ptx/exec/alu_lanes.h"

namespace softgpu::exec::SOFTGPU_ISA {
namespace {

// A format of kWidth bits with kExponent exponent bits; kFinite: no infinities, only all-ones is NaN (e4m3).
template <unsigned kWidth, unsigned kExponent, bool kFinite = false>
struct SmallFloat {
  static constexpr unsigned kMantissa = kWidth - 1 - kExponent;
  static constexpr int kBias = (1 << (kExponent - 1)) - 1;
  static constexpr u32 kSignBit = 1u << (kWidth - 1);
  static constexpr u32 kExponentMask = ((1u << kExponent) - 1) << kMantissa;
  static constexpr u32 kMagnitude = kSignBit - 1;
  static constexpr u32 kNan = kMagnitude;  // the canonical NaN: all ones but the sign
  static constexpr u32 kLargest = kFinite ? kMagnitude - 1 : kExponentMask - 1;

  static double Value(u32 bits) {
    u32 magnitude = bits & kMagnitude;
    u64 sign = static_cast<u64>(bits & kSignBit) << (64 - kWidth);
    u64 mantissa = static_cast<u64>(magnitude & ((1u << kMantissa) - 1)) << (52 - kMantissa);
    u32 exponent = magnitude >> kMantissa;
    bool special = kFinite ? magnitude == kNan : exponent == (1u << kExponent) - 1;
    if (special) return BitCast<double>(sign | u64{0x7ff} << 52 | mantissa | (kFinite ? u64{1} << 51 : 0));
    // A subnormal is its mantissa times the smallest step.
    if (exponent == 0) {
      constexpr u64 kStep = static_cast<u64>(1023 + 1 - kBias - static_cast<int>(kMantissa)) << 52;
      return BitCast<double>(BitCast<u64>(static_cast<double>(magnitude) * BitCast<double>(kStep)) | sign);
    }
    return BitCast<double>(sign | static_cast<u64>(static_cast<int>(exponent) - kBias + 1023) << 52 |
                           mantissa);
  }

  // Rounds; kSatFinite: beyond the largest finite value gives that value.
  template <Round kRound = Round::kNearest, bool kSatFinite = false>
  static u32 Of(double value) {
    u64 bits = BitCast<u64>(value);
    bool negative = bits >> 63;
    u32 sign = negative ? kSignBit : 0;
    u64 magnitude = bits & ~(u64{1} << 63);
    if (magnitude > u64{0x7ff} << 52) return kNan;
    if (magnitude == u64{0x7ff} << 52) return sign | (kSatFinite ? kLargest : kFinite ? kNan : kExponentMask);
    int exponent = static_cast<int>(magnitude >> 52) - 1023;
    u64 mantissa = (magnitude & ((u64{1} << 52) - 1)) | (magnitude >> 52 ? u64{1} << 52 : 0);
    int lowest = 1 - kBias;
    // Bits of the 53-bit mantissa that do not fit.
    int drop = 52 - static_cast<int>(kMantissa) + (exponent < lowest ? lowest - exponent : 0);
    if (drop > 54) drop = 54;
    u64 kept = mantissa >> drop, rest = mantissa & ((u64{1} << drop) - 1), half = u64{1} << (drop - 1);
    bool up = false;
    if constexpr (kRound == Round::kNearest)
      up = rest > half || (rest == half && (kept & 1));
    else if constexpr (kRound == Round::kNearestAway)
      up = rest >= half;
    else if constexpr (kRound == Round::kUp)
      up = rest != 0 && !negative;
    else if constexpr (kRound == Round::kDown)
      up = rest != 0 && negative;
    kept += up;
    // `kept` carries the hidden bit, which adds one to a biased exponent that starts one lower.
    u64 result = exponent < lowest ? kept : kept + (static_cast<u64>(exponent + kBias - 1) << kMantissa);
    if (result > kLargest) {
      bool to_largest = kSatFinite || kRound == Round::kZero || (kRound == Round::kUp && negative) ||
                        (kRound == Round::kDown && !negative);
      return sign | (to_largest ? kLargest : kFinite ? kNan : kExponentMask);
    }
    return sign | static_cast<u32>(result);
  }
};
using Half = SmallFloat<16, 5>;
using Bfloat = SmallFloat<16, 8>;
using E4m3 = SmallFloat<8, 4, true>;
using E5m2 = SmallFloat<8, 5>;

inline bool IsNan(double v) { return (BitCast<u64>(v) & ~(u64{1} << 63)) > u64{0x7ff} << 52; }

// p + c to odd: inexact sums get their last bit set, so that a later rounding to fewer bits is not a second
// one.
inline double AddToOdd(double p, double c) {
  double sum = p + c;
  u64 bits = BitCast<u64>(sum);
  if ((bits >> 52 & 0x7ff) == 0x7ff) return sum;
  double partial = sum - p;
  double error = (p - (sum - partial)) + (c - partial);
  if (error == 0 || (bits & 1)) return sum;
  bool away = (error > 0) == (sum > 0);
  return BitCast<double>(away ? bits + 1 : bits - 1);
}

}  // namespace
}  // namespace softgpu::exec::SOFTGPU_ISA

#endif  // SOFTGPU_PTX_EXEC_ALU_HALF_H_
