#include "coordinator/agent/precopy_rule.h"

#include <gtest/gtest.h>

namespace stasis {
namespace {

constexpr double kGigabit = 125e6;
constexpr uint64_t kMiB = 1 << 20;

PrecopyFacts Facts(uint64_t unsent_bytes, int images, double standstill = 0.1) {
  PrecopyFacts facts;
  facts.bytes_per_second = kGigabit;
  facts.images = images;
  facts.standstill = standstill;
  facts.unsent_bytes = unsent_bytes;
  facts.unsent_before = 10 * unsent_bytes;
  return facts;
}

TEST(PrecopyRule, LooksOnlyWhereTheWayTakesLongerThanTwoImages) {
  EXPECT_FALSE(WorthImage(Precopy::kAuto, Facts(100 * kMiB, 0)));
  EXPECT_TRUE(WorthImage(Precopy::kAuto, Facts(200 * kMiB, 0)));
  PrecopyFacts fast = Facts(200 * kMiB, 0);
  fast.bytes_per_second = 100 * kGigabit;
  EXPECT_FALSE(WorthImage(Precopy::kAuto, fast));
  EXPECT_FALSE(WorthImage(Precopy::kNever, Facts(1000 * kMiB, 0)));
}

TEST(PrecopyRule, TheFirstImageTellsWhetherASecondCanPay) {
  EXPECT_TRUE(WorthImage(Precopy::kAuto, Facts(100 * kMiB, 1)));
  EXPECT_FALSE(WorthImage(Precopy::kAuto, Facts(10 * kMiB, 1)));
  EXPECT_FALSE(WorthImage(Precopy::kAuto, Facts(100 * kMiB, 1, 0.5)));
  EXPECT_FALSE(WorthImage(Precopy::kAuto, Facts(0, 1)));
}

TEST(PrecopyRule, EndsWhereNoLessIsLeft) {
  PrecopyFacts facts = Facts(100 * kMiB, 2);
  facts.unsent_before = 120 * kMiB;
  EXPECT_FALSE(WorthImage(Precopy::kAuto, facts));
  EXPECT_FALSE(WorthImage(Precopy::kAlways, facts));
  facts.unsent_before = 300 * kMiB;
  EXPECT_TRUE(WorthImage(Precopy::kAuto, facts));
  facts.images = kMaxPrecopyImages;
  EXPECT_FALSE(WorthImage(Precopy::kAuto, facts));
}

TEST(PrecopyRule, AlwaysMakesTwoWhateverTheySave) {
  EXPECT_TRUE(WorthImage(Precopy::kAlways, Facts(1, 0)));
  EXPECT_TRUE(WorthImage(Precopy::kAlways, Facts(1, 1)));
  EXPECT_FALSE(WorthImage(Precopy::kAlways, Facts(1, 2)));
}

}  // namespace
}  // namespace stasis
