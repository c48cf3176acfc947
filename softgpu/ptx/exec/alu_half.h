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

  // Selections and no branches, here and in Nearest(): these are what loops over halves consist of.
  static double Value(u32 bits) {
    u32 magnitude = bits & kMagnitude;
    u64 sign = static_cast<u64>(bits & kSignBit) << (64 - kWidth);
    u64 mantissa = static_cast<u64>(magnitude & ((1u << kMantissa) - 1)) << (52 - kMantissa);
    u64 special = u64{0x7ff} << 52 | mantissa | (kFinite ? u64{1} << 51 : 0);
    u64 normal = (static_cast<u64>(magnitude) << (52 - kMantissa)) + (static_cast<u64>(1023 - kBias) << 52);
    // A subnormal is its mantissa times the smallest step.
    constexpr u64 kStep = static_cast<u64>(1023 + 1 - kBias - static_cast<int>(kMantissa)) << 52;
    u64 subnormal = BitCast<u64>(static_cast<double>(static_cast<s32>(magnitude)) * BitCast<double>(kStep));
    u64 value = magnitude < (1u << kMantissa) ? subnormal : normal;
    value = (kFinite ? magnitude == kNan : magnitude >= kExponentMask) ? special : value;
    return BitCast<double>(value | sign);
  }

  // To nearest, ties to even.
  template <bool kSatFinite>
  static u32 Nearest(double value) {
    u64 bits = BitCast<u64>(value);
    s64 magnitude = static_cast<s64>(bits & ~(u64{1} << 63));
    constexpr unsigned kDrop = 52 - kMantissa;
    // The sum may wrap, for NaNs, whose result is chosen at the end.
    u64 sum = static_cast<u64>(magnitude) + ((u64{1} << (kDrop - 1)) - 1) + (magnitude >> kDrop & 1);
    s64 rounded = static_cast<s64>(sum) >> kDrop;
    s64 code = rounded - (s64{1023 - kBias} << kMantissa);
    // Below the normal numbers the FPU rounds: the last place of kAnchor is the format's smallest step.
    constexpr s64 kAnchor = s64{1023 + 52 + 1 - kBias - static_cast<int>(kMantissa)} << 52;
    s64 small = BitCast<s64>(BitCast<double>(magnitude) + BitCast<double>(kAnchor)) - kAnchor;
    code = magnitude < s64{1023 + 1 - kBias} << 52 ? small : code;
    constexpr s64 kBeyond = kSatFinite ? kLargest : kFinite ? kNan : kExponentMask;
    code = code > s64{kLargest} ? kBeyond : code;
    u32 result = static_cast<u32>(code) | static_cast<u32>(bits >> (64 - kWidth) & kSignBit);
    return magnitude > s64{0x7ff} << 52 ? kNan : result;
  }

  // Rounds; kSatFinite: beyond the largest finite value gives that value.
  template <Round kRound = Round::kNearest, bool kSatFinite = false>
  static u32 Of(double value) {
    if constexpr (kRound == Round::kNearest) return Nearest<kSatFinite>(value);
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
    u64 kept = mantissa >> drop, rest = mantissa & ((u64{1} << drop) - 1);
    bool up = false;
    if constexpr (kRound == Round::kUp)
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

// p + c to odd: inexact sums get their last bit set, so that a later rounding to fewer bits is not a second
// one.
inline double AddToOdd(double p, double c) {
  double sum = p + c, partial = sum - p;
  double error = (p - (sum - partial)) + (c - partial);
  s64 bits = BitCast<s64>(sum);
  // The neighbour on the error's side; away from zero when the signs agree. Infinities have no error but NaN.
  s64 step = (error > 0) == (sum > 0) ? 1 : -1;
  s64 exact = !(error > 0) & !(error < 0), odd = bits & 1;
  return BitCast<double>(bits + ((exact | odd) != 0 ? 0 : step));
}

}  // namespace
}  // namespace softgpu::exec::SOFTGPU_ISA

#endif  // SOFTGPU_PTX_EXEC_ALU_HALF_H_
