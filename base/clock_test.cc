#include "base/clock.h"

#include <gtest/gtest.h>

namespace stasis {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST(ClockTest, RealClockMovesForward) {
  MonotonicTime before = Clock::Real().Now();
  EXPECT_GT(before, MonotonicTime::zero());
  EXPECT_GE(Clock::Real().Now(), before);
}

TEST(DeadlineTest, ExpiresWhenItsClockReachesIt) {
  ManualClock clock;
  Deadline deadline = Deadline::After(milliseconds(10), clock);
  EXPECT_FALSE(deadline.Expired());
  EXPECT_EQ(deadline.Remaining(), milliseconds(10));
  clock.Advance(milliseconds(9));
  EXPECT_FALSE(deadline.Expired());
  clock.Advance(milliseconds(1));
  EXPECT_TRUE(deadline.Expired());
  EXPECT_EQ(deadline.Remaining(), Duration::zero());
  clock.Advance(milliseconds(5));
  EXPECT_EQ(deadline.Remaining(), Duration::zero());
}

TEST(DeadlineTest, PollTimeoutIsRoundedUp) {
  ManualClock clock;
  EXPECT_EQ(Deadline::After(microseconds(1), clock).PollTimeout(), 1);
  EXPECT_EQ(Deadline::After(microseconds(1001), clock).PollTimeout(), 2);
  EXPECT_EQ(Deadline::After(Duration::zero(), clock).PollTimeout(), 0);
  EXPECT_EQ(Deadline::After(std::chrono::hours(24 * 365), clock).PollTimeout(), INT_MAX);
}

TEST(DeadlineTest, NeverNeverExpires) {
  EXPECT_FALSE(Deadline::Never().Expired());
  EXPECT_EQ(Deadline::Never().PollTimeout(), -1);
  ManualClock clock;
  EXPECT_TRUE(Deadline::After(Duration::max(), clock).never());
}

}  // namespace
}  // namespace stasis
