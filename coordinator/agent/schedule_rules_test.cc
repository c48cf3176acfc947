#include "coordinator/agent/schedule_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace stasis {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

v1::Schedule Good() {
  v1::Schedule schedule;
  schedule.set_job("train");
  schedule.set_interval_ms(20000);
  return schedule;
}

// The job's time lost for each millisecond of it, were failures exponential: a checkpoint for each interval,
// and after a failure what is done again. Daly's model without the time of the restart.
double LostShare(double interval, double cost, double mtbf) {
  double work = interval - cost;
  return mtbf * std::expm1(interval / mtbf) / work - 1;
}

TEST(ScheduleRulesTest, SuggestedIntervalIsWhereLeastIsLost) {
  for (auto [cost, mtbf] : {std::pair{100.0, 3.6e6}, {1000.0, 3.6e6}, {5000.0, 60000.0}, {1000.0, 8.64e7}}) {
    double suggested = SuggestedIntervalMs(cost, mtbf);
    double least = std::numeric_limits<double>::max();
    for (double interval = cost * 1.01; interval < 4 * mtbf; interval *= 1.0005) {
      least = std::min(least, LostShare(interval, cost, mtbf));
    }
    EXPECT_LT(LostShare(suggested, cost, mtbf), least * 1.001 + 1e-9) << cost << " " << mtbf;
    EXPECT_GE(suggested, std::sqrt(2 * cost * mtbf));  // Young's
  }
}

TEST(ScheduleRulesTest, ACheckpointThatCostsMoreThanAFailureIsMadeOnceForEachFailure) {
  EXPECT_DOUBLE_EQ(SuggestedIntervalMs(5000, 2000), 7000);
}

TEST(ScheduleRulesTest, BudgetIsAShareOfAllTime) {
  EXPECT_DOUBLE_EQ(BudgetIntervalMs(200, 0.01), 20000);
  EXPECT_DOUBLE_EQ(BudgetIntervalMs(200, 1), 200);
}

TEST(ScheduleRulesTest, BackoffDoublesAndHasAnEnd) {
  EXPECT_DOUBLE_EQ(BackoffMs(1000, 0), 1000);
  EXPECT_DOUBLE_EQ(BackoffMs(1000, 3), 8000);
  EXPECT_DOUBLE_EQ(BackoffMs(1000, 30), 600000);
  EXPECT_DOUBLE_EQ(BackoffMs(1000, 4000000000u), 600000);
  EXPECT_DOUBLE_EQ(BackoffMs(3600000, 2), 3600000);
}

TEST(ScheduleRulesTest, KeepsTheLast) {
  std::vector<ScheduleImage> images = {{"1", 10}, {"2", 20}, {"3", 30}, {"4", 40}};
  EXPECT_THAT(ImagesToRemove(images, 2, 0), ElementsAre("1", "2"));
  EXPECT_THAT(ImagesToRemove(images, 4, 0), IsEmpty());
  EXPECT_THAT(ImagesToRemove(images, 1, 0), ElementsAre("1", "2", "3"));
  EXPECT_THAT(ImagesToRemove(images, 0, 0), ElementsAre("1", "2", "3"));
  EXPECT_THAT(ImagesToRemove({}, 2, 0), IsEmpty());
}

TEST(ScheduleRulesTest, KeepsTheNewestOfEachPeriodBeyondThem) {
  std::vector<ScheduleImage> images = {{"1", 110}, {"2", 190}, {"3", 210}, {"4", 250},
                                       {"5", 290}, {"6", 310}, {"7", 320}};
  EXPECT_THAT(ImagesToRemove(images, 2, 100), ElementsAre("1", "3", "4"));
}

TEST(ScheduleRulesTest, WhatIsKeptOfAPeriodStaysKept) {
  std::vector<ScheduleImage> kept;
  for (int64_t second = 0; second < 500; second += 7) {
    kept.push_back({std::to_string(second), second * 1000});
    for (const std::string& id : ImagesToRemove(kept, 3, 60000)) {
      std::erase_if(kept, [&](const ScheduleImage& image) { return image.id == id; });
    }
  }
  std::vector<std::string> ids;
  for (const ScheduleImage& image : kept) ids.push_back(image.id);
  EXPECT_THAT(ids, ElementsAre("56", "119", "175", "238", "294", "357", "413", "476", "483", "490", "497"));
}

TEST(ScheduleRulesTest, TakesWhatMakesSense) {
  EXPECT_TRUE(CheckSchedule(Good()).ok());
  v1::Schedule cron = Good();
  cron.clear_interval_ms();
  cron.set_cron("0 * * * *");
  cron.set_overhead_budget(1);
  EXPECT_TRUE(CheckSchedule(cron).ok());
}

TEST(ScheduleRulesTest, NamesTheFieldThatMakesNone) {
  auto refused = [](auto change) {
    v1::Schedule schedule = Good();
    change(schedule);
    Status status = CheckSchedule(schedule);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_THAT(refused([](auto& s) { s.set_interval_ms(999); }), HasSubstr("interval_ms"));
  EXPECT_THAT(refused([](auto& s) { s.set_interval_ms(~0ULL); }), HasSubstr("interval_ms"));
  EXPECT_THAT(refused([](auto& s) { s.set_mtbf_ms(1); }), HasSubstr("mtbf_ms"));
  EXPECT_THAT(refused([](auto& s) { s.set_keep_last(10001); }), HasSubstr("keep_last"));
  EXPECT_THAT(refused([](auto& s) { s.set_keep_every_ms(1); }), HasSubstr("keep_every_ms"));
  EXPECT_THAT(refused([](auto& s) { s.set_max_restarts(~0u); }), HasSubstr("max_restarts"));
  EXPECT_THAT(refused([](auto& s) { s.set_restart_backoff_ms(~0u); }), HasSubstr("restart_backoff_ms"));
  EXPECT_THAT(refused([](auto& s) { s.set_overhead_budget(1.01); }), HasSubstr("overhead_budget"));
  EXPECT_THAT(refused([](auto& s) { s.set_overhead_budget(-0.1); }), HasSubstr("overhead_budget"));
  EXPECT_THAT(refused([](auto& s) { s.set_overhead_budget(std::nan("")); }), HasSubstr("overhead_budget"));
  EXPECT_THAT(refused([](auto& s) { s.set_cron("0 * * * *"); }), HasSubstr("not both"));
  EXPECT_THAT(refused([](auto& s) {
                s.clear_interval_ms();
                s.set_cron("0 * * *");
              }),
              HasSubstr("cron"));
}

TEST(ScheduleRulesTest, RulesAreTheUsersPartWithDefaults) {
  v1::Schedule schedule = Good();
  schedule.set_restarts(7);
  schedule.set_next_ms(1);
  schedule.set_state("given-up");
  v1::Schedule rules = RulesOf(schedule);
  EXPECT_EQ(rules.restarts(), 0u);
  EXPECT_EQ(rules.next_ms(), 0);
  EXPECT_EQ(rules.state(), "");
  EXPECT_EQ(rules.keep_last(), 3u);
  EXPECT_EQ(rules.restart_backoff_ms(), 1000u);
  EXPECT_EQ(rules.interval_ms(), 20000u);
}

TEST(ScheduleRulesTest, ScheduleWithoutAnyRule) {
  v1::Schedule schedule;
  schedule.set_job("train");
  schedule.set_keep_last(3);
  EXPECT_TRUE(HasNoRule(schedule));
  schedule.set_max_restarts(1);
  EXPECT_FALSE(HasNoRule(schedule));
}

}  // namespace
}  // namespace stasis
