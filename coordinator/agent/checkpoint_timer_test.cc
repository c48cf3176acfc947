#include "coordinator/agent/checkpoint_timer.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <time.h>

#include <cmath>

#include "coordinator/agent/schedule_rules.h"

namespace stasis {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr int64_t kMidnight = 1767225600000;  // 2026-01-01 00:00:00 UTC

v1::Schedule Rules(uint64_t interval_ms, const char* cron = "", uint64_t mtbf_ms = 0, double budget = 0) {
  v1::Schedule schedule;
  schedule.set_interval_ms(interval_ms);
  schedule.set_cron(cron);
  schedule.set_mtbf_ms(mtbf_ms);
  schedule.set_overhead_budget(budget);
  return RulesOf(schedule);
}

// A timer, and both clocks.
class TimerTest : public testing::Test {
 protected:
  TimerTest() {
    setenv("TZ", "UTC0", 1);
    tzset();
    now_.monotonic = seconds(5000);
    now_.wall_ms = kMidnight;
  }

  void Use(const v1::Schedule& rules, double default_mtbf_ms = 0) {
    timer_.emplace(rules, default_mtbf_ms);
    timer_->Begin(now_.monotonic, now_);
  }
  void Pass(Duration time) {
    now_.monotonic += time;
    now_.wall_ms += std::chrono::duration_cast<milliseconds>(time).count();
  }
  bool Due() { return timer_->Due(now_, cost_); }
  Duration Wait() { return timer_->Wait(now_, cost_).value_or(Duration::max()); }
  // Waits as long as it says, and makes a checkpoint that takes `taken`. Returns the time between starts.
  Duration Next(Duration taken = Duration::zero()) {
    Moment before = now_;
    EXPECT_FALSE(Due());
    Pass(Wait());
    EXPECT_TRUE(Due());
    timer_->Started(now_);
    Pass(taken);
    timer_->Succeeded();
    return now_.monotonic - before.monotonic;
  }

  Moment now_;
  CheckpointCost cost_;
  std::optional<CheckpointTimer> timer_;
};

TEST_F(TimerTest, IntervalsAreFromStartToStart) {
  Use(Rules(20000));
  EXPECT_EQ(Wait(), seconds(20));
  EXPECT_EQ(Next(seconds(3)), seconds(23));
  EXPECT_EQ(Wait(), seconds(17));
  EXPECT_EQ(Next(seconds(2)), seconds(19));
}

TEST_F(TimerTest, WhatTakesLongerThanItsIntervalFollowsAtOnce) {
  Use(Rules(20000));
  Next(seconds(25));
  EXPECT_TRUE(Due());
}

TEST_F(TimerTest, IntervalsDoNotCareForTheWallClock) {
  Use(Rules(20000));
  now_.wall_ms -= 3600000;
  EXPECT_EQ(Wait(), seconds(20));
  now_.wall_ms += 7200000;
  EXPECT_FALSE(Due());
}

TEST_F(TimerTest, NothingIsDueOfAJobThatHasNotBegun) {
  timer_.emplace(Rules(1000), 0);
  Pass(hours(1));
  EXPECT_FALSE(Due());
  EXPECT_EQ(Wait(), Duration::max());
}

TEST_F(TimerTest, WithoutRuleForCheckpointsThereAreNone) {
  Use(Rules(0), 3.6e6);
  Pass(hours(100));
  EXPECT_FALSE(Due());
  EXPECT_EQ(Wait(), Duration::max());
}

TEST_F(TimerTest, AnIntervalThatEndsWhileTheJobStandsIsNotForgotten) {
  Use(Rules(20000));
  Pass(seconds(25));
  timer_->Skip(now_);
  Pass(seconds(5));
  EXPECT_TRUE(Due());
}

TEST_F(TimerTest, BudgetStretchesTheInterval) {
  Use(Rules(20000, "", 0, 0.01));
  EXPECT_EQ(Wait(), seconds(20));  // nothing was measured
  cost_.Learn(500);
  EXPECT_EQ(Wait(), seconds(50));
  cost_.standstill_ms = 100;
  EXPECT_EQ(Wait(), seconds(20));
}

TEST_F(TimerTest, CostIsAMovingAverage) {
  cost_.Learn(100);
  EXPECT_DOUBLE_EQ(cost_.standstill_ms, 100);
  cost_.Learn(200);
  EXPECT_DOUBLE_EQ(cost_.standstill_ms, 130);
  cost_.Learn(-5);
  cost_.Learn(std::nan(""));
  EXPECT_DOUBLE_EQ(cost_.standstill_ms, 130);
}

TEST_F(TimerTest, YoungDalyFollowsTheMeasuredCost) {
  Use(Rules(0, "", 3600000));
  EXPECT_EQ(Wait(), milliseconds(static_cast<int64_t>(std::ceil(SuggestedIntervalMs(1000, 3.6e6)))));
  EXPECT_DOUBLE_EQ(timer_->SuggestedMs(cost_), 0);
  cost_.Learn(50);
  EXPECT_EQ(Wait(), milliseconds(static_cast<int64_t>(std::ceil(SuggestedIntervalMs(50, 3.6e6)))));
  EXPECT_DOUBLE_EQ(timer_->SuggestedMs(cost_), SuggestedIntervalMs(50, 3.6e6));
}

TEST_F(TimerTest, YoungDalyOnlySuggestsBesideAnInterval) {
  Use(Rules(20000, "", 60000));
  cost_.Learn(50);
  EXPECT_EQ(Wait(), seconds(20));
  EXPECT_DOUBLE_EQ(timer_->SuggestedMs(cost_), SuggestedIntervalMs(50, 60000));
  Use(Rules(20000), 5000);
  EXPECT_DOUBLE_EQ(timer_->SuggestedMs(cost_), SuggestedIntervalMs(50, 5000));
}

TEST_F(TimerTest, AFailedCheckpointIsTriedAgainSoonAndThenLater) {
  Use(Rules(20000));
  Pass(seconds(20));
  for (int delay : {1, 2, 4, 8, 16, 20, 20}) {
    ASSERT_TRUE(Due());
    timer_->Started(now_);
    Pass(seconds(1));
    timer_->Failed(now_);
    EXPECT_EQ(Wait(), seconds(delay));
    EXPECT_FALSE(Due());
    Pass(Wait());
  }
  ASSERT_TRUE(Due());
  timer_->Started(now_);
  timer_->Succeeded();
  EXPECT_EQ(Wait(), seconds(20));
}

TEST_F(TimerTest, CronIsByTheWallClock) {
  Use(Rules(0, "*/10 * * * *"));
  EXPECT_EQ(Next(), minutes(10));
  EXPECT_EQ(Next(seconds(3)), minutes(10) + seconds(3));
  EXPECT_EQ(Wait(), minutes(10) - seconds(3));
  now_.wall_ms += 540000;
  EXPECT_EQ(Wait(), seconds(57));
}

TEST_F(TimerTest, CronAfterTheClockWasPutBack) {
  Use(Rules(0, "0 * * * *"));
  Next();
  now_.wall_ms -= 45 * 60000;  // 00:15
  EXPECT_FALSE(Due());
  EXPECT_EQ(Wait(), minutes(45));
  EXPECT_EQ(Next(), minutes(45));
}

TEST_F(TimerTest, CronAfterTheClockWasPutFarForwardIsDueOnce) {
  Use(Rules(0, "0 * * * *"));
  now_.wall_ms += 72 * 3600000 + 60000;
  EXPECT_TRUE(Due());
  timer_->Started(now_);
  timer_->Succeeded();
  EXPECT_FALSE(Due());
  EXPECT_EQ(Wait(), minutes(59));
}

TEST_F(TimerTest, CronPassesOverWhatIsNamedWhileTheJobStands) {
  Use(Rules(0, "*/10 * * * *"));
  Pass(minutes(12));
  timer_->Skip(now_);
  EXPECT_FALSE(Due());
  EXPECT_EQ(Wait(), minutes(8));
}

TEST_F(TimerTest, BudgetSkipsTimesOfACronExpression) {
  Use(Rules(0, "* * * * *", 0, 0.01));
  cost_.Learn(1500);  // 150 s
  EXPECT_EQ(Wait(), minutes(3));
  Pass(minutes(1));
  EXPECT_FALSE(Due());
  Pass(minutes(2));
  EXPECT_TRUE(Due());
}

TEST_F(TimerTest, AFailedCheckpointOfACronExpressionIsTriedAgain) {
  Use(Rules(0, "0 * * * *"));
  Pass(hours(1));
  ASSERT_TRUE(Due());
  timer_->Started(now_);
  timer_->Failed(now_);
  EXPECT_FALSE(Due());
  EXPECT_EQ(Wait(), seconds(1));
  Pass(seconds(1));
  ASSERT_TRUE(Due());
  timer_->Started(now_);
  timer_->Succeeded();
  EXPECT_EQ(Wait(), minutes(60) - seconds(1));
}

}  // namespace
}  // namespace stasis
