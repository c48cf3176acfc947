// Independent models of what the tests expect: rounding modes of the host for single and double precision,
// and rounding to the small formats by searching a table of their values.
#ifndef SOFTGPU_PTX_EXEC_ALU_REFERENCE_H_
#define SOFTGPU_PTX_EXEC_ALU_REFERENCE_H_

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "softgpu/ptx/exec/alu_testing.h"

namespace softgpu::exec {

struct Mode {
  const char* word;  // as in "add.rn.f32"
  int fe;            // for fesetround
};
inline constexpr Mode kModes[] = {
    {".rn", FE_TONEAREST}, {".rz", FE_TOWARDZERO}, {".rm", FE_DOWNWARD}, {".rp", FE_UPWARD}};

// The host's rounding mode within a scope. What is computed inside must go through volatiles.
class InRounding {
 public:
  explicit InRounding(int fe) { std::fesetround(fe); }
  ~InRounding() { std::fesetround(FE_TONEAREST); }
};

inline constexpr uint32_t kNanF32 = 0x7fffffff;
inline float FlushF32(float v) { return std::fpclassify(v) == FP_SUBNORMAL ? std::copysign(0.0f, v) : v; }

// A format of up to 16 bits with `exponent_bits`; `finite`: no infinities, the all-ones magnitude alone is
// NaN.
class SmallFormat {
 public:
  SmallFormat(unsigned bits, unsigned exponent_bits, bool finite) : bits_(bits), finite_(finite) {
    unsigned mantissa = bits - 1 - exponent_bits;
    int bias = (1 << (exponent_bits - 1)) - 1;
    uint32_t end = finite ? (1u << (bits - 1)) - 1 : ((1u << exponent_bits) - 1) << mantissa;
    for (uint32_t code = 0; code <= end; ++code) {
      int exponent = static_cast<int>(code >> mantissa);
      double fraction = code & ((1u << mantissa) - 1);
      double value = exponent == 0 ? std::ldexp(fraction, 1 - bias - static_cast<int>(mantissa))
                                   : std::ldexp(fraction + (1 << mantissa),
                                                exponent - bias - static_cast<int>(mantissa));
      values_.push_back(value);  // the last one is where the next value would be, were there one
    }
  }

  uint32_t nan() const { return (1u << (bits_ - 1)) - 1; }
  uint32_t infinity() const { return finite_ ? nan() : largest() + 1; }
  uint32_t largest() const { return static_cast<uint32_t>(values_.size()) - 2; }
  uint32_t sign_bit() const { return 1u << (bits_ - 1); }
  bool IsNan(uint32_t code) const { return (code & (sign_bit() - 1)) > (finite_ ? nan() - 1 : infinity()); }
  double Value(uint32_t code) const {
    uint32_t magnitude = code & (sign_bit() - 1);
    double v = IsNan(code) ? NAN : !finite_ && magnitude == infinity() ? INFINITY : values_[magnitude];
    return code & sign_bit() ? -v : v;
  }

  // The code of `v` rounded in the mode of fesetround's numbering.
  template <typename Exact>
  uint32_t Round(Exact v, int fe, bool satfinite, bool negative_zero = false) const {
    if (v != v) return nan();
    bool negative = v < 0 || (v == 0 && negative_zero);
    Exact magnitude = negative ? -v : v;
    auto above = std::upper_bound(values_.begin(), values_.end(), magnitude,
                                  [](Exact m, double t) { return m < Exact{t}; });
    bool past_end = above == values_.end();
    uint32_t code = static_cast<uint32_t>(above - values_.begin()) - 1;
    bool up = false;
    if (!past_end && magnitude != Exact{values_[code]}) {
      Exact to_low = magnitude - Exact{values_[code]}, to_high = Exact{values_[code + 1]} - magnitude;
      up = fe == FE_TONEAREST ? to_high < to_low || (to_high == to_low && (code & 1))
                              : fe == (negative ? FE_DOWNWARD : FE_UPWARD);
    }
    code += up;
    bool infinite = magnitude > Exact{std::numeric_limits<double>::max()};
    if (code > largest()) {
      bool toward_zero = fe == FE_TOWARDZERO || fe == (negative ? FE_UPWARD : FE_DOWNWARD);
      code = satfinite || (toward_zero && !infinite) ? largest() : infinity();
    }
    return code | (negative ? sign_bit() : 0);
  }

 private:
  unsigned bits_;
  bool finite_;
  std::vector<double> values_;
};
inline const SmallFormat& HalfFormat() {
  static const SmallFormat format(16, 5, false);
  return format;
}
inline const SmallFormat& BfloatFormat() {
  static const SmallFormat format(16, 8, false);
  return format;
}

}  // namespace softgpu::exec

#endif  // SOFTGPU_PTX_EXEC_ALU_REFERENCE_H_
