#include "softgpu/nccl/reduce.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include "softgpu/nccl/small_float.h"

namespace softgpu::nccl {
namespace {

template <typename T>
std::vector<T> ReduceVectors(ncclDataType_t type, Reduction op, const std::vector<std::vector<T>>& inputs,
                             const std::vector<T>& scalars = {}) {
  std::vector<Part> parts(inputs.size());
  for (size_t rank = 0; rank < inputs.size(); rank++) {
    parts[rank].data = inputs[rank].data();
    if (!scalars.empty()) std::memcpy(&parts[rank].scalar, &scalars[rank], sizeof(T));
  }
  std::vector<T> out(inputs[0].size());
  Reduce(type, op, parts.data(), static_cast<int>(parts.size()), out.data(), out.size());
  return out;
}

uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }
void ExpectSame(float ours, float theirs, uint32_t pattern) {
  if (std::isnan(theirs)) {
    EXPECT_TRUE(std::isnan(ours)) << pattern;
  } else {
    EXPECT_EQ(Bits(ours), Bits(theirs)) << pattern;
  }
}

// The conversions of NVIDIA's headers, for every pattern of the small type.
TEST(SmallFloat, ToFloatAgreesWithTheToolkit) {
  for (uint32_t pattern = 0; pattern < 0x10000; pattern++) {
    const auto bits = static_cast<uint16_t>(pattern);
    ExpectSame(Half::ToFloat(pattern), __half2float(__half(__half_raw{bits})), pattern);
    ExpectSame(Bfloat16::ToFloat(pattern), __bfloat162float(__nv_bfloat16(__nv_bfloat16_raw{bits})), pattern);
  }
  for (uint32_t pattern = 0; pattern < 0x100; pattern++) {
    const auto bits = static_cast<__nv_fp8_storage_t>(pattern);
    const auto e4m3 = __half(__nv_cvt_fp8_to_halfraw(bits, __NV_E4M3));
    const auto e5m2 = __half(__nv_cvt_fp8_to_halfraw(bits, __NV_E5M2));
    ExpectSame(Float8E4M3::ToFloat(pattern), __half2float(e4m3), pattern);
    ExpectSame(Float8E5M2::ToFloat(pattern), __half2float(e5m2), pattern);
  }
}

TEST(SmallFloat, FromFloatAgreesWithTheToolkit) {
  // Every exponent with fractions around each rounding boundary, and both signs.
  for (uint32_t high = 0; high < 0x10000; high++) {
    for (uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const float value = std::bit_cast<float>(high << 16 | low);
      if (std::isnan(value)) continue;
      ASSERT_EQ(Half::FromFloat(value), __half_raw(__float2half_rn(value)).x) << value;
      ASSERT_EQ(Bfloat16::FromFloat(value), __nv_bfloat16_raw(__float2bfloat16_rn(value)).x) << value;
      ASSERT_EQ(Float8E4M3::FromFloat(value), __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3))
          << value;
      ASSERT_EQ(Float8E5M2::FromFloat(value), __nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E5M2))
          << value;
    }
  }
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(Half::ToFloat(Half::FromFloat(nan))));
  EXPECT_TRUE(std::isnan(Bfloat16::ToFloat(Bfloat16::FromFloat(nan))));
  EXPECT_TRUE(std::isnan(Float8E4M3::ToFloat(Float8E4M3::FromFloat(nan))));
  EXPECT_TRUE(std::isnan(Float8E5M2::ToFloat(Float8E5M2::FromFloat(nan))));
}

TEST(Reduce, IntegersWrapAround) {
  EXPECT_EQ(ReduceVectors<int8_t>(ncclInt8, Reduction::kSum, {{127, -128, 5}, {1, -1, -7}}),
            (std::vector<int8_t>{-128, 127, -2}));
  EXPECT_EQ(ReduceVectors<uint8_t>(ncclUint8, Reduction::kProd, {{16, 3}, {17, 5}}),
            (std::vector<uint8_t>{16, 15}));
  const int32_t low = std::numeric_limits<int32_t>::min();
  EXPECT_EQ(ReduceVectors<int32_t>(ncclInt32, Reduction::kProd, {{low}, {-1}}), (std::vector<int32_t>{low}));
  EXPECT_EQ(ReduceVectors<int64_t>(ncclInt64, Reduction::kAvg, {{-7, 8}, {-8, 9}, {0, 0}}),
            (std::vector<int64_t>{-5, 5}));
  EXPECT_EQ(ReduceVectors<uint64_t>(ncclUint64, Reduction::kAvg, {{~uint64_t{0} - 1}, {1}}),
            (std::vector<uint64_t>{~uint64_t{0} / 2}));
}

TEST(Reduce, TheOrderIsThatOfTheRanks) {
  // (1 + 2^-24) + 2^-24 is 1 in float, 2^-24 + 2^-24 + 1 is not.
  EXPECT_EQ(ReduceVectors<float>(ncclFloat32, Reduction::kSum, {{1}, {0x1p-24f}, {0x1p-24f}}),
            (std::vector<float>{1}));
  EXPECT_EQ(ReduceVectors<float>(ncclFloat32, Reduction::kSum, {{0x1p-24f}, {0x1p-24f}, {1}}),
            (std::vector<float>{1 + 0x1p-23f}));
}

TEST(Reduce, SmallTypesAreRoundedOnce) {
  auto half = [](float value) { return Half::FromFloat(value); };
  EXPECT_EQ(
      ReduceVectors<uint16_t>(ncclFloat16, Reduction::kSum, {{half(1)}, {half(0x1p-11f)}, {half(0x1p-11f)}}),
      (std::vector<uint16_t>{half(1 + 0x1p-10f)}));
  // Too large on the way, not at the end.
  EXPECT_EQ(ReduceVectors<uint16_t>(ncclFloat16, Reduction::kAvg, {{half(60000)}, {half(60000)}}),
            (std::vector<uint16_t>{half(60000)}));
  const uint8_t large = Float8E4M3::FromFloat(448);
  EXPECT_EQ(ReduceVectors<uint8_t>(ncclFloat8e4m3, Reduction::kSum, {{large}, {large}}),
            (std::vector<uint8_t>{large}));
}

TEST(Reduce, MinimumAndMaximumPreferNumbers) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(ReduceVectors<double>(ncclFloat64, Reduction::kMax, {{nan, 2, -1}, {1, nan, 4}}),
            (std::vector<double>{1, 2, 4}));
  EXPECT_EQ(ReduceVectors<double>(ncclFloat64, Reduction::kMin, {{nan, 2, -1}, {1, nan, 4}}),
            (std::vector<double>{1, 2, -1}));
  const auto zeros = ReduceVectors<double>(ncclFloat64, Reduction::kMin, {{0.0}, {-0.0}});
  EXPECT_FALSE(std::signbit(zeros[0]));
}

TEST(Reduce, EachRankHasAFactorOfItsOwn) {
  EXPECT_EQ(ReduceVectors<float>(ncclFloat32, Reduction::kPreMulSum, {{1, 2}, {3, 4}}, {0.5f, 2}),
            (std::vector<float>{6.5f, 9}));
  EXPECT_EQ(ReduceVectors<int32_t>(ncclInt32, Reduction::kPreMulSum, {{1, 2}, {3, 4}}, {10, -1}),
            (std::vector<int32_t>{7, 16}));
}

TEST(Reduce, InPlaceAndLongerThanABlock) {
  std::vector<float> a(1001), b(1001), expected(1001);
  for (size_t i = 0; i < a.size(); i++) {
    a[i] = static_cast<float>(i);
    b[i] = static_cast<float>(2 * i);
    expected[i] = a[i] + b[i];
  }
  const Part parts[] = {{a.data(), 0}, {b.data(), 0}};
  Reduce(ncclFloat32, Reduction::kSum, parts, 2, b.data(), b.size());
  EXPECT_EQ(b, expected);
}

TEST(Types, BytesAndNames) {
  EXPECT_EQ(ElementBytes(ncclFloat64), 8u);
  EXPECT_EQ(ElementBytes(ncclFloat8e5m2), 1u);
  EXPECT_EQ(ElementBytes(ncclNumTypes), 0u);
  EXPECT_EQ(ElementBytes(-1), 0u);
  EXPECT_STREQ(TypeName(ncclBfloat16), "bfloat16");
}

}  // namespace
}  // namespace softgpu::nccl
