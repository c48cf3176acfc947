// Floating-point types of 8 and 16 bits, to and from float. All conversions round to nearest even.
#ifndef SOFTGPU_NCCL_SMALL_FLOAT_H_
#define SOFTGPU_NCCL_SMALL_FLOAT_H_

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace softgpu::nccl {

// A format with a sign, kExponentBits and kFractionBits. With kInfinity the highest exponent holds infinities
// and NaNs as in IEEE 754, and what is too large becomes infinite; without, only the pattern of all ones is a
// NaN. With kSaturate what is too large, infinities too, becomes the largest finite value.
template <typename Bits, int kExponentBits, int kFractionBits, bool kInfinity, bool kSaturate>
struct SmallFloat {
  Bits bits;

  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr uint32_t kMagnitude = (1u << (kExponentBits + kFractionBits)) - 1;
  static constexpr uint32_t kInfinityBits = ((1u << kExponentBits) - 1) << kFractionBits;
  static constexpr uint32_t kLargest = kInfinity ? kInfinityBits - 1 : kMagnitude - 1;
  static constexpr uint32_t kSign = kMagnitude + 1;

  static float ToFloat(uint32_t value) {
    const uint32_t magnitude = value & kMagnitude;
    const uint32_t sign = (value & kSign) != 0 ? 0x80000000u : 0;
    if (kInfinity ? magnitude > kInfinityBits : magnitude == kMagnitude)
      return std::numeric_limits<float>::quiet_NaN();
    if (kInfinity && magnitude == kInfinityBits) return std::bit_cast<float>(sign | 0x7f800000u);
    // As the fraction of a float whose exponent is off by the difference of the biases; subnormals too. The
    // product is exact.
    const float scaled = std::bit_cast<float>(magnitude << (23 - kFractionBits));
    const float scale = std::bit_cast<float>(static_cast<uint32_t>(127 + 127 - kBias) << 23);
    return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled * scale) | sign);
  }

  static Bits FromFloat(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t sign = bits >> 31 != 0 ? kSign : 0;
    const float magnitude = std::fabs(value);
    if (std::isnan(value)) return static_cast<Bits>(kMagnitude);
    return static_cast<Bits>(sign | Magnitude(magnitude));
  }

 private:
  static uint32_t Magnitude(float magnitude) {
    constexpr float kSmallestNormal = std::bit_cast<float>(static_cast<uint32_t>(127 - kBias + 1) << 23);
    constexpr int kDropped = 23 - kFractionBits;
    uint32_t rounded;
    if (magnitude < kSmallestNormal) {
      // A sum with a number whose last place is the step of the subnormals rounds there.
      const float anchor = std::bit_cast<float>(static_cast<uint32_t>(127 - kBias + 1 + kDropped) << 23);
      rounded = std::bit_cast<uint32_t>(magnitude + anchor) - std::bit_cast<uint32_t>(anchor);
    } else {
      const uint32_t bits = std::bit_cast<uint32_t>(magnitude);
      const uint32_t even = (bits >> kDropped) & 1;
      rounded = ((bits + (1u << (kDropped - 1)) - 1 + even) >> kDropped) -
                (static_cast<uint32_t>(127 - kBias) << kFractionBits);
    }
    if (rounded <= kLargest) return rounded;
    return kSaturate ? kLargest : kInfinityBits;
  }
};

using Half = SmallFloat<uint16_t, 5, 10, true, false>;
using Float8E4M3 = SmallFloat<uint8_t, 4, 3, false, true>;
using Float8E5M2 = SmallFloat<uint8_t, 5, 2, true, true>;

// The upper half of a float.
struct Bfloat16 {
  uint16_t bits;
  static float ToFloat(uint32_t value) { return std::bit_cast<float>(value << 16); }
  static uint16_t FromFloat(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    if (std::isnan(value)) return 0x7fff;
    return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  }
};

}  // namespace softgpu::nccl

#endif  // SOFTGPU_NCCL_SMALL_FLOAT_H_
