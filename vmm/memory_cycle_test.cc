#include "vmm/memory_cycle.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <random>

namespace stasis::vmm {
namespace {

void Note(MemoryCycle& cycle, std::initializer_list<uint64_t> values) {
  for (uint64_t value : values) cycle.Note(value);
}

// One iteration of a training: activations pile up, with temporary memory on the way, and go away again.
void Iterate(MemoryCycle& cycle, uint64_t low, int layers) {
  uint64_t bytes = low;
  for (int layer = 0; layer < layers; ++layer) {
    cycle.Note(bytes + 30);  // temporary
    cycle.Note(bytes);
    cycle.Note(bytes += 100);
  }
  for (int layer = 0; layer < layers; ++layer) {
    cycle.Note(bytes + 50);
    cycle.Note(bytes);
    cycle.Note(bytes -= 100);
  }
}

TEST(MemoryCycleTest, NothingIsLearnedFromAStart) {
  MemoryCycle cycle;
  EXPECT_FALSE(cycle.Learn());
  for (uint64_t bytes = 0; bytes < 10000; ++bytes) cycle.Note(bytes);
  EXPECT_FALSE(cycle.Learn());
  cycle.Boundary();
  EXPECT_FALSE(cycle.Learn()) << "what comes before the first boundary is no cycle";
}

TEST(MemoryCycleTest, IterationsAreCycles) {
  MemoryCycle cycle;
  Note(cycle, {5, 1000, 70});
  cycle.Boundary();
  Note(cycle, {100, 60, 90});
  cycle.Boundary();
  ASSERT_TRUE(cycle.Learn());
  EXPECT_EQ(cycle.Learn()->low, 60u);
  EXPECT_EQ(cycle.Learn()->high, 100u);
  EXPECT_EQ(cycle.boundaries(), 2u);
}

TEST(MemoryCycleTest, LowIsWhatEveryOneOfTheLatestIterationsHasComeDownTo) {
  MemoryCycle cycle;
  cycle.Boundary();
  for (uint64_t low : {1, 1, 20, 10, 15, 12}) {
    Note(cycle, {200, low, 100});
    cycle.Boundary();
  }
  EXPECT_EQ(cycle.Learn()->low, 20u);
  Note(cycle, {200, 3, 100});
  cycle.Boundary();
  EXPECT_EQ(cycle.Learn()->low, 15u) << "older ones are forgotten";
}

TEST(MemoryCycleTest, CyclesAreFoundWithoutBoundariesAfterALongRise) {
  for (int layers : {3, 20}) {
    MemoryCycle cycle;
    uint64_t low = 0;
    while (low < 100000) cycle.Note(low += 1000);
    for (int i = 0; i < 8; ++i) Iterate(cycle, low, layers);
    ASSERT_TRUE(cycle.Learn()) << layers;
    EXPECT_EQ(cycle.Learn()->low, low) << layers;
    EXPECT_GE(cycle.Learn()->high, low + 100 * static_cast<uint64_t>(layers)) << layers;
  }
}

TEST(MemoryCycleTest, IterationsLongerThanTheHistoryAreFoundToo) {
  MemoryCycle cycle;
  const int layers = 3 * static_cast<int>(MemoryCycle::kHistory);
  for (int i = 0; i < 12; ++i) Iterate(cycle, 500, layers);
  ASSERT_TRUE(cycle.Learn());
  EXPECT_LE(cycle.Learn()->low, 500u + 100 * layers / 20);
}

TEST(MemoryCycleTest, ManyShortCyclesDoNotCrowdOutWhatIsLearned) {
  MemoryCycle cycle;
  for (int i = 0; i < 50000; ++i) Iterate(cycle, 500, 2);
  ASSERT_TRUE(cycle.Learn());
  EXPECT_EQ(cycle.Learn()->low, 500u);
}

TEST(MemoryCycleTest, WhatHasStoppedLongAgoIsNoCycle) {
  MemoryCycle cycle;
  for (int i = 0; i < 5; ++i) Iterate(cycle, 500, 3);
  ASSERT_TRUE(cycle.Learn());
  for (uint64_t bytes = 500; bytes < 700; ++bytes) cycle.Note(bytes);
  EXPECT_FALSE(cycle.Learn());
}

TEST(MemoryCycleTest, ProgramsThatChangeHaveTheirNewCyclesLearned) {
  MemoryCycle cycle;
  for (int i = 0; i < 300; ++i) Iterate(cycle, 500, 3);
  for (int i = 0; i < 300; ++i) Iterate(cycle, 5000, 3);
  ASSERT_TRUE(cycle.Learn());
  EXPECT_EQ(cycle.Learn()->low, 5000u);
}

TEST(MemoryCycleTest, NothingMakesItFail) {
  std::mt19937 random(3);
  MemoryCycle cycle;
  for (int i = 0; i < 100000; ++i) {
    cycle.Note(random());
    if (i % 1000 != 0) continue;
    const auto learned = cycle.Learn().value_or(MemoryCycle::Learned());
    EXPECT_LE(learned.low, learned.high);
  }
}

}  // namespace
}  // namespace stasis::vmm
