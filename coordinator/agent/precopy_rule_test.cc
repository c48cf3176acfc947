#include "coordinator/agent/precopy_rule.h"

#include <gtest/gtest.h>

namespace stasis {
namespace {

constexpr double kGigabit = 125e6;
constexpr uint64_t kMiB = 1 << 20;

PrecopyFacts Facts(uint64_t stable_bytes) {
  PrecopyFacts facts;
  facts.bytes_per_second = kGigabit;
  facts.standstill = 0.1;
  facts.stable_bytes = stable_bytes;
  return facts;
}

TEST(PrecopyRule, LooksOnlyWhereTheWayTakesLonger) {
  EXPECT_FALSE(WorthLooking(Precopy::kAuto, 20 * kMiB, kGigabit));
  EXPECT_TRUE(WorthLooking(Precopy::kAuto, 200 * kMiB, kGigabit));
  EXPECT_FALSE(WorthLooking(Precopy::kAuto, 200 * kMiB, 100 * kGigabit));
  EXPECT_TRUE(WorthLooking(Precopy::kAlways, 1, 100 * kGigabit));
  EXPECT_FALSE(WorthLooking(Precopy::kNever, 1 << 30, 1));
}

TEST(PrecopyRule, SendsWhatSavesMoreThanItsImagesCost) {
  EXPECT_TRUE(WorthSending(Precopy::kAuto, Facts(100 * kMiB)));
  EXPECT_FALSE(WorthSending(Precopy::kAuto, Facts(10 * kMiB)));
  PrecopyFacts slow = Facts(100 * kMiB);
  slow.standstill = 0.5;
  EXPECT_FALSE(WorthSending(Precopy::kAuto, slow));
  EXPECT_FALSE(WorthSending(Precopy::kAuto, Facts(0)));
  EXPECT_FALSE(WorthSending(Precopy::kNever, Facts(1000 * kMiB)));
}

TEST(PrecopyRule, EndsWhereRoundsDoNotShrink) {
  PrecopyFacts facts = Facts(100 * kMiB);
  facts.rounds = 1;
  facts.sent_before = 120 * kMiB;
  EXPECT_FALSE(WorthSending(Precopy::kAuto, facts));
  EXPECT_FALSE(WorthSending(Precopy::kAlways, facts));
  facts.sent_before = 300 * kMiB;
  EXPECT_TRUE(WorthSending(Precopy::kAuto, facts));
  facts.rounds = kMaxPrecopyRounds;
  EXPECT_FALSE(WorthSending(Precopy::kAuto, facts));
}

TEST(PrecopyRule, AlwaysSendsOnceWhateverItSaves) {
  PrecopyFacts facts = Facts(1);
  EXPECT_TRUE(WorthSending(Precopy::kAlways, facts));
  facts.rounds = 1;
  facts.sent_before = 1000;
  EXPECT_FALSE(WorthSending(Precopy::kAlways, facts));
}

}  // namespace
}  // namespace stasis
