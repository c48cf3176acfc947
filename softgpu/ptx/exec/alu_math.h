// Elementary functions in double precision by fixed sequences of operations: far inside the manual's bounds
// for the .approx instructions, and the same on every CPU. Included only by per-variant files.
#ifndef SOFTGPU_PTX_EXEC_ALU_MATH_H_
#define SOFTGPU_PTX_EXEC_ALU_MATH_H_

#include "softgpu/ptx/exec/alu_float.h"

namespace softgpu::exec::SOFTGPU_ISA {
namespace {

// x's nearest integer, for |x| below 2^50, as a double and as an integer. Adding kShifter leaves it in the
// low bits.
struct Nearest {
  double value;
  s64 integer;
};
inline Nearest NearestTo(double x) {
  constexpr double kShifter = 0x1.8p52;
  double shifted = x + kShifter;
  return {shifted - kShifter, static_cast<s64>(BitCast<u64>(shifted) - BitCast<u64>(kShifter))};
}

// Beyond 2^300 and 2^-300, which every destination has as infinity and zero, the result stays there.
inline double TwoToThe(double x) {
  double inside = x > 300 ? 300 : x;
  inside = inside < -300 ? -300 : inside;
  Nearest n = NearestTo(inside);
  double y = (inside - n.value) * 0.69314718055994530942;
  // exp(y) on [-0.35, 0.35] by its series.
  double sum = 1.0 / 6227020800;
  sum = sum * y + 1.0 / 479001600;
  sum = sum * y + 1.0 / 39916800;
  sum = sum * y + 1.0 / 3628800;
  sum = sum * y + 1.0 / 362880;
  sum = sum * y + 1.0 / 40320;
  sum = sum * y + 1.0 / 5040;
  sum = sum * y + 1.0 / 720;
  sum = sum * y + 1.0 / 120;
  sum = sum * y + 1.0 / 24;
  sum = sum * y + 1.0 / 6;
  sum = sum * y + 0.5;
  sum = sum * y + 1.0;
  sum = sum * y + 1.0;
  double power = BitCast<double>((static_cast<u64>(n.integer) + 1023) << 52);
  return x == x ? sum * power : x;
}
inline double LogTwo(double x) {
  if (!(x >= 0)) return BitCast<double>(u64{0x7ff8} << 48);
  if (x == 0) return BitCast<double>(u64{0xfff} << 52);
  u64 bits = BitCast<u64>(x);
  if (bits >> 52 == 0x7ff) return x;
  int exponent = 0;
  if (bits >> 52 == 0) {
    bits = BitCast<u64>(x * 0x1p60);
    exponent = -60;
  }
  exponent += static_cast<int>(bits >> 52) - 1023;
  double m = BitCast<double>((bits & ((u64{1} << 52) - 1)) | u64{1023} << 52);
  if (m > 1.41421356237309504880) {
    m *= 0.5;
    ++exponent;
  }
  // log(m) = 2 atanh((m - 1) / (m + 1)).
  double t = (m - 1) / (m + 1), square = t * t, sum = 1.0 / 21;
  for (int k = 19; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
  return exponent + 2 * t * sum * 1.44269504088896340736;
}
// Sine of x + quarter * pi / 2.
inline double SinQuarter(double x, int quarter) {
  double turns = x * 0.63661977236758134308;
  // Of a huge angle no digit is left, as in hardware, which reduces in single precision; but the sine stays
  // one.
  turns = turns > 0x1p50 ? 0 : turns;
  turns = turns < -0x1p50 ? 0 : turns;
  Nearest n = NearestTo(turns);
  double y = (x - n.value * 1.57079632673412561417) - n.value * 6.07710050650619224932e-11;
  y = y > 0.7854 ? 0.7854 : y;
  y = y < -0.7854 ? -0.7854 : y;
  double square = y * y;
  double sine =
      y * (1 + square * (-1.0 / 6 +
                         square * (1.0 / 120 +
                                   square * (-1.0 / 5040 + square * (1.0 / 362880 - square / 39916800)))));
  double cosine =
      1 + square * (-0.5 +
                    square * (1.0 / 24 + square * (-1.0 / 720 + square * (1.0 / 40320 - square / 3628800))));
  u64 place = static_cast<u64>(n.integer + quarter);
  u64 bits = place & 1 ? BitCast<u64>(cosine) : BitCast<u64>(sine);
  bits ^= (place & 2) << 62;
  return x - x == 0 ? BitCast<double>(bits) : BitCast<double>(u64{0x7ff8} << 48);
}
inline double HyperbolicTangent(double x) {
  double magnitude = BitCast<double>(BitCast<u64>(x) & ~(u64{1} << 63));
  double bounded = magnitude > 40 ? 40 : magnitude;
  double e = TwoToThe(bounded * 2 * 1.44269504088896340736), far = (e - 1) / (e + 1);
  double near = magnitude - magnitude * magnitude * magnitude / 3;
  double result = magnitude < 1e-4 ? near : far;
  return BitCast<double>(BitCast<u64>(result) | (BitCast<u64>(x) & u64{1} << 63));
}

}  // namespace
}  // namespace softgpu::exec::SOFTGPU_ISA

#endif  // SOFTGPU_PTX_EXEC_ALU_MATH_H_
