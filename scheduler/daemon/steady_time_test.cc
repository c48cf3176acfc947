#include "scheduler/daemon/steady_time.h"

#include <gtest/gtest.h>

namespace stasis::scheduler {
namespace {

class SteadyTimeTest : public ::testing::Test {
 protected:
  void Pass(Time time) {
    wall_ += time;
    boot_ += time;
  }
  Time wall_ = 1'000'000'000'000, boot_ = 5000;
  SteadyTime time_{{[this] { return wall_; }, [this] { return boot_; }}};
};

TEST_F(SteadyTimeTest, IsTheWallClocksWhileThatGoesAsItShould) {
  Pass(1234);
  EXPECT_EQ(time_.Now(), wall_);
}

TEST_F(SteadyTimeTest, GoesOnWhenTheWallClockIsSetBack) {
  const Time before = time_.Now();
  wall_ -= 86'400 * kSecond;
  Pass(1000);
  EXPECT_EQ(time_.Now(), before + 1000);
  Pass(1000);
  EXPECT_EQ(time_.Now(), before + 2000);
}

TEST_F(SteadyTimeTest, FollowsSmallStepsForwards) {
  wall_ += 10 * kSecond;
  EXPECT_EQ(time_.Now(), wall_);
}

TEST_F(SteadyTimeTest, DoesNotFollowLargeStepsForwards) {
  const Time before = time_.Now();
  wall_ += 86'400 * kSecond;
  Pass(1000);
  EXPECT_EQ(time_.Now(), before + 1000);
  wall_ -= 86'400 * kSecond;
  EXPECT_EQ(time_.Now(), before + 1000);
}

}  // namespace
}  // namespace stasis::scheduler
