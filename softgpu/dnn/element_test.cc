// Conversions of the 16-bit types, for all their values and all the places where rounding turns.
#include "softgpu/dnn/element.h"

#include <gtest/gtest.h>

namespace softgpu::dnn {
namespace {

// The value of a half's bits by the definition of the format.
double ValueOfHalf(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 0x3ff;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 31) return fraction == 0 ? sign * INFINITY : NAN;
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25));
}

TEST(ElementTest, EveryHalfIsRead) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const double expected = ValueOfHalf(static_cast<uint16_t>(bits));
    const float read = ToFloat(Half{static_cast<uint16_t>(bits)});
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(read)) << bits;
    } else {
      ASSERT_EQ(read, expected) << bits;
      ASSERT_EQ(std::signbit(read), std::signbit(expected)) << bits;
    }
  }
}

TEST(ElementTest, EveryHalfIsWrittenAsItWasRead) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = ToFloat(Half{static_cast<uint16_t>(bits)});
    if (std::isnan(value)) {
      ASSERT_GT(ToHalf(value).bits & 0x7fff, 0x7c00) << bits;
    } else {
      ASSERT_EQ(ToHalf(value).bits, bits);
    }
  }
}

// Between neighbours: below the middle down, above it up, in the middle to the even one.
TEST(ElementTest, HalvesRoundToNearestEven) {
  for (uint16_t bits = 0; bits < 0x7c00; ++bits) {
    const float low = ToFloat(Half{bits});
    const double high = bits == 0x7bff ? 65536.0 : ToFloat(Half{static_cast<uint16_t>(bits + 1)});
    const float middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(ToHalf(std::nextafter(middle, 0.0f)).bits, bits);
    ASSERT_EQ(ToHalf(std::nextafter(middle, 1e9f)).bits, bits + 1);
    ASSERT_EQ(ToHalf(middle).bits, bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(ToHalf(-middle).bits, 0x8000 | (bits % 2 == 0 ? bits : bits + 1));
  }
  EXPECT_EQ(ToHalf(1e30f).bits, 0x7c00);
  EXPECT_EQ(ToHalf(-INFINITY).bits, 0xfc00);
}

TEST(ElementTest, Bfloat16RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7f80; ++bits) {
    const float low = ToFloat(Bfloat16{static_cast<uint16_t>(bits)});
    ASSERT_EQ(ToBfloat16(low).bits, bits);
    const float middle = std::bit_cast<float>((bits << 16) | 0x8000u);
    ASSERT_EQ(ToBfloat16(std::bit_cast<float>((bits << 16) | 0x7fffu)).bits, bits);
    ASSERT_EQ(ToBfloat16(std::bit_cast<float>((bits << 16) | 0x8001u)).bits, bits + 1);
    ASSERT_EQ(ToBfloat16(middle).bits, bits % 2 == 0 ? bits : bits + 1);
  }
  EXPECT_TRUE(std::isnan(ToFloat(ToBfloat16(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_EQ(ToBfloat16(-INFINITY).bits, 0xff80);
}

}  // namespace
}  // namespace softgpu::dnn
