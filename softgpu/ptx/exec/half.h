// Scalar conversions between IEEE half and single precision.
#ifndef SOFTGPU_PTX_EXEC_HALF_H_
#define SOFTGPU_PTX_EXEC_HALF_H_

#include <cmath>
#include <cstdint>
#include <cstring>

namespace softgpu::exec {

inline float HalfToFloat(uint16_t h) {
  uint32_t exponent = h >> 10 & 31, fraction = h & 1023;
  float value = exponent == 31 ? (fraction ? NAN : INFINITY)
                : exponent == 0
                    ? std::ldexp(static_cast<float>(fraction), -24)
                    : std::ldexp(static_cast<float>(fraction | 1024), static_cast<int>(exponent) - 25);
  return h >> 15 ? -value : value;
}

// Rounds to nearest even.
inline uint16_t FloatToHalf(float f) {
  uint16_t sign = std::signbit(f) ? 0x8000 : 0;
  float magnitude = std::fabs(f);
  if (std::isnan(f)) return 0x7fff;
  if (magnitude >= 65520.0f) return sign | 0x7c00;
  if (magnitude < 0x1p-14f) return sign | static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24f));
  int exponent;
  float fraction = std::frexp(magnitude, &exponent);  // in [0.5, 1)
  // The carry of a fraction that rounds up to 2048 goes into the exponent.
  auto rounded = static_cast<uint32_t>(std::nearbyint(fraction * 2048));
  return sign | static_cast<uint16_t>((static_cast<uint32_t>(exponent + 13) << 10) + rounded);
}

}  // namespace softgpu::exec

#endif  // SOFTGPU_PTX_EXEC_HALF_H_
