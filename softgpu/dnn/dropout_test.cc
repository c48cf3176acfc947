#include "softgpu/dnn/dropout.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "softgpu/dnn/dnn_testing.h"

namespace softgpu::dnn {
namespace {

std::vector<uint8_t> Draw(float dropout, size_t count, DropoutStates* states) {
  std::vector<uint8_t> reserve((count + 7) / 8);
  DrawMask(dropout, count, states, reserve.data());
  return reserve;
}

size_t Kept(const std::vector<uint8_t>& reserve) {
  size_t kept = 0;
  for (const uint8_t byte : reserve) kept += static_cast<size_t>(__builtin_popcount(byte));
  return kept;
}

TEST(DropoutTest, TheSeedSaysWhatIsDropped) {
  DropoutStates a, b, c;
  SeedStates(7, &a);
  SeedStates(7, &b);
  SeedStates(8, &c);
  EXPECT_EQ(Draw(0.5f, 10000, &a), Draw(0.5f, 10000, &b));
  EXPECT_NE(Draw(0.5f, 10000, &b), Draw(0.5f, 10000, &c));
}

TEST(DropoutTest, ACopyOfTheStatesGoesOn) {
  DropoutStates states;
  SeedStates(1, &states);
  const auto first = Draw(0.25f, 5000, &states);
  const DropoutStates copy = states;
  const auto second = Draw(0.25f, 5000, &states);
  EXPECT_NE(first, second);
  DropoutStates restored = copy;
  EXPECT_EQ(Draw(0.25f, 5000, &restored), second);
  EXPECT_EQ(std::memcmp(&restored, &states, sizeof states), 0);
}

TEST(DropoutTest, TheShareIsKept) {
  DropoutStates states;
  SeedStates(3, &states);
  constexpr size_t kCount = 1000000;
  for (const float dropout : {0.1f, 0.25f, 0.5f, 0.9f}) {
    const double expected = (1 - dropout) * kCount;
    const double deviation = std::sqrt(kCount * dropout * (1 - dropout));
    EXPECT_NEAR(static_cast<double>(Kept(Draw(dropout, kCount, &states))), expected, 5 * deviation);
  }
  EXPECT_EQ(Kept(Draw(0, kCount, &states)), kCount);
  EXPECT_EQ(Kept(Draw(1, kCount, &states)), 0u);
}

TEST(DropoutTest, NeighboursAndCallsAreIndependent) {
  DropoutStates states;
  SeedStates(4, &states);
  constexpr size_t kCount = 400000;
  const auto a = Draw(0.5f, kCount, &states);
  const auto b = Draw(0.5f, kCount, &states);
  size_t same_call = 0;
  size_t same_neighbour = 0;
  const auto bit = [](const std::vector<uint8_t>& bits, size_t i) { return (bits[i / 8] >> (i % 8)) & 1; };
  for (size_t i = 0; i + DropoutStates::kLanes < kCount; ++i) {
    same_call += bit(a, i) == bit(b, i);
    same_neighbour += bit(a, i) == bit(a, i + 1);
    same_neighbour += bit(a, i) == bit(a, i + DropoutStates::kLanes);
  }
  const double pairs = kCount - DropoutStates::kLanes;
  EXPECT_NEAR(static_cast<double>(same_call), pairs / 2, 5 * std::sqrt(pairs) / 2);
  EXPECT_NEAR(static_cast<double>(same_neighbour), pairs, 5 * std::sqrt(2 * pairs) / 2);
}

TEST(DropoutTest, WhatIsKeptIsScaled) {
  for (const int type : kTypes) {
    for (const Order order : kOrders) {
      SCOPED_TRACE(NameOf(type, order));
      HostTensor x(MakeShape(type, {2, 3, 4, 5}, order)), y(x.shape());
      x.FillRandom(1);
      DropoutStates states;
      SeedStates(5, &states);
      const auto reserve = Draw(0.75f, x.shape().Count(), &states);
      Arena arena;
      ApplyMask(0.75f, x.AsSource(), reserve.data(), y.AsTarget(), &arena);
      size_t i = 0;
      ForEachPlace(x.shape(), [&](const Place& place) {
        const bool kept = (reserve[i / 8] >> (i % 8)) & 1;
        ++i;
        ASSERT_EQ(y.At(place), kept ? 4 * x.At(place) : 0);
      });
    }
  }
}

}  // namespace
}  // namespace softgpu::dnn
