// Elementary functions in double precision by fixed sequences of operations: far inside the manual's bounds
// for the .approx instructions, and the same on every CPU. Included only by per-variant files.
#ifndef SOFTGPU_PTX_EXEC_ALU_MATH_H_
#define SOFTGPU_PTX_EXEC_ALU_MATH_H_

#include "softgpu/ptx/exec/alu_float.h"

namespace softgpu::exec::SOFTGPU_ISA {
namespace {

inline double TwoToThe(double x) {
  if (x > 2000) x = 2000;
  if (x < -2000) x = -2000;
  if (!(x == x)) return x;
  double whole = static_cast<double>(static_cast<s64>(x + (x < 0 ? -0.5 : 0.5)));
  double y = (x - whole) * 0.69314718055994530942;
  // exp(y) on [-0.35, 0.35] by its series.
  double sum = 1.0 / 6227020800;
  constexpr double kTerms[] = {
      1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
      1.0 / 120,       1.0 / 24,       1.0 / 6,       0.5,          1.0,         1.0};
  for (double term : kTerms) sum = sum * y + term;
  int n = static_cast<int>(whole), half = n / 2;
  auto power = [](int e) {
    return e < -1022  ? 0.0
           : e > 1023 ? BitCast<double>(u64{0x7ff} << 52)
                      : BitCast<double>(static_cast<u64>(e + 1023) << 52);
  };
  return sum * power(half) * power(n - half);
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
  if (!(x - x == 0)) return BitCast<double>(u64{0x7ff8} << 48);
  double turns = x * 0.63661977236758134308;
  if (turns > 0x1p50 || turns < -0x1p50) turns = 0;
  s64 n = static_cast<s64>(turns + (turns < 0 ? -0.5 : 0.5));
  double whole = static_cast<double>(n);
  double y = (x - whole * 1.57079632673412561417) - whole * 6.07710050650619224932e-11;
  // Of a huge angle no digit is left here, as in hardware, which reduces in single precision; but the sine
  // stays one.
  y = y > 0.7854 ? 0.7854 : y < -0.7854 ? -0.7854 : y;
  double square = y * y;
  double sine =
      y * (1 + square * (-1.0 / 6 +
                         square * (1.0 / 120 +
                                   square * (-1.0 / 5040 + square * (1.0 / 362880 - square / 39916800)))));
  double cosine =
      1 + square * (-0.5 +
                    square * (1.0 / 24 + square * (-1.0 / 720 + square * (1.0 / 40320 - square / 3628800))));
  switch ((n + quarter) & 3) {
    case 0:
      return sine;
    case 1:
      return cosine;
    case 2:
      return -sine;
    default:
      return -cosine;
  }
}
inline double HyperbolicTangent(double x) {
  if (!(x == x)) return x;
  double magnitude = x < 0 ? -x : x;
  if (magnitude > 20) return x < 0 ? -1 : 1;
  if (magnitude < 1e-4) return x - x * x * x / 3;
  double e = TwoToThe(magnitude * 2 * 1.44269504088896340736), result = (e - 1) / (e + 1);
  return x < 0 ? -result : result;
}
}  // namespace
}  // namespace softgpu::exec::SOFTGPU_ISA

#endif  // SOFTGPU_PTX_EXEC_ALU_MATH_H_
