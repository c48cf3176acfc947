#include "coordinator/agent/cron.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <random>
#include <string>

namespace stasis {
namespace {

// Local time is that of `zone` while it lives.
class Zone {
 public:
  explicit Zone(const char* zone) {
    const char* before = getenv("TZ");
    if (before != nullptr) before_ = before;
    setenv("TZ", zone, 1);
    tzset();
  }
  ~Zone() {
    if (before_) {
      setenv("TZ", before_->c_str(), 1);
    } else {
      unsetenv("TZ");
    }
    tzset();
  }

 private:
  std::optional<std::string> before_;
};

// Rules are written out, so that no time zone files are needed.
constexpr char kBerlin[] = "CET-1CEST,M3.5.0,M10.5.0/3";
constexpr char kLordHowe[] = "<+1030>-10:30<+11>-11,M10.1.0,M4.1.0";
constexpr char kMidnightGap[] = "EET-2EEST,M3.5.0/0,M10.5.0/0";  // as in Beirut

int64_t Utc(const char* text) {
  tm time{};
  EXPECT_NE(strptime(text, "%Y-%m-%d %H:%M:%S", &time), nullptr) << text;
  return timegm(&time);
}

std::string Text(int64_t seconds) {
  auto time = static_cast<time_t>(seconds);
  tm local{};
  localtime_r(&time, &local);
  char buffer[64];
  strftime(buffer, sizeof buffer, "%Y-%m-%d %H:%M:%S %Z", &local);
  return buffer;
}

CronExpression Cron(std::string_view text) {
  Result<CronExpression> cron = CronExpression::Parse(text);
  EXPECT_TRUE(cron.ok()) << text << ": " << cron.status().ToString();
  return cron.ok() ? *cron : *CronExpression::Parse("* * * * *");
}

std::string NextText(std::string_view expression, int64_t after) {
  std::optional<int64_t> next = Cron(expression).Next(after);
  return next ? Text(*next) : "never";
}

TEST(CronTest, NamesTheNextMinute) {
  Zone zone("UTC0");
  int64_t now = Utc("2026-11-30 07:09:16");  // a Monday
  EXPECT_EQ(NextText("* * * * *", now), "2026-11-30 07:10:00 UTC");
  EXPECT_EQ(NextText("*/15 * * * *", now), "2026-11-30 07:15:00 UTC");
  EXPECT_EQ(NextText("7 * * * *", now), "2026-11-30 08:07:00 UTC");
  EXPECT_EQ(NextText("0 3 * * *", now), "2026-12-01 03:00:00 UTC");
  EXPECT_EQ(NextText("30 6,18 * * *", now), "2026-11-30 18:30:00 UTC");
  EXPECT_EQ(NextText("5-10/5 7 * * *", now), "2026-11-30 07:10:00 UTC");
  EXPECT_EQ(NextText("50/4 7 * * *", now), "2026-11-30 07:50:00 UTC");
  EXPECT_EQ(NextText("0 0 * * fri", now), "2026-12-04 00:00:00 UTC");
  EXPECT_EQ(NextText("0 0 1 JAN *", now), "2027-01-01 00:00:00 UTC");
  EXPECT_EQ(NextText("0 12 * * 7", now), "2026-12-06 12:00:00 UTC");
  EXPECT_EQ(NextText("0 0 29 2 *", now), "2028-02-29 00:00:00 UTC");
  EXPECT_EQ(NextText("@weekly", now), "2026-12-06 00:00:00 UTC");
  EXPECT_EQ(NextText("@Hourly", now), "2026-11-30 08:00:00 UTC");
}

TEST(CronTest, AMinuteThatHasBegunIsOver) {
  Zone zone("UTC0");
  EXPECT_EQ(NextText("0 3 * * *", Utc("2026-11-30 03:00:00")), "2026-12-01 03:00:00 UTC");
  EXPECT_EQ(NextText("0 3 * * *", Utc("2026-11-30 02:59:59")), "2026-11-30 03:00:00 UTC");
}

TEST(CronTest, EitherDayIsEnoughWhereBothAreRestricted) {
  Zone zone("UTC0");
  int64_t now = Utc("2026-11-30 07:09:16");
  EXPECT_EQ(NextText("0 0 13 * fri", now), "2026-12-04 00:00:00 UTC");
  EXPECT_EQ(NextText("0 0 3 * fri", now), "2026-12-03 00:00:00 UTC");
  EXPECT_EQ(NextText("0 0 */2 * fri", now), "2026-12-11 00:00:00 UTC");  // both: the step is no restriction
}

TEST(CronTest, ALeapDayEightYearsAway) {
  Zone zone("UTC0");
  EXPECT_EQ(NextText("0 0 29 2 *", Utc("2096-02-29 00:00:00")), "2104-02-29 00:00:00 UTC");
}

TEST(CronTest, WhatFallsIntoAGapOfTheClocksIsDueAtItsEnd) {
  Zone zone(kBerlin);  // 29 March 2026, 02:00 is 03:00
  EXPECT_EQ(NextText("30 2 * * *", Utc("2026-03-28 12:00:00")), "2026-03-29 03:00:00 CEST");
  EXPECT_EQ(NextText("30 2 * * *", Utc("2026-03-29 01:00:00")), "2026-03-30 02:30:00 CEST");
  EXPECT_EQ(NextText("30 * * * *", Utc("2026-03-29 00:30:00")), "2026-03-29 03:30:00 CEST");
  EXPECT_EQ(NextText("15 0 30 3 *", Utc("2026-03-28 12:00:00")), "2026-03-30 00:15:00 CEST");
}

TEST(CronTest, OfMinutesThatComeTwiceTheFirstCounts) {
  Zone zone(kBerlin);  // 25 October 2026, 03:00 is 02:00
  EXPECT_EQ(NextText("30 2 * * *", Utc("2026-10-24 12:00:00")), "2026-10-25 02:30:00 CEST");
  EXPECT_EQ(NextText("30 2 * * *", Utc("2026-10-25 00:30:00")), "2026-10-26 02:30:00 CET");
  EXPECT_EQ(NextText("30 * * * *", Utc("2026-10-25 00:30:00")), "2026-10-25 02:30:00 CET");
  EXPECT_EQ(NextText("15 0 26 10 *", Utc("2026-10-24 22:00:00")), "2026-10-26 00:15:00 CET");
}

TEST(CronTest, GapsOfHalfAnHourAndAtMidnight) {
  {
    Zone zone(kLordHowe);
    EXPECT_EQ(NextText("10 2 * * *", Utc("2026-10-03 03:00:00")), "2026-10-04 02:30:00 +11");
  }
  Zone zone(kMidnightGap);
  EXPECT_EQ(NextText("20 0 29 3 *", Utc("2026-03-28 10:00:00")), "2026-03-29 01:00:00 EEST");
}

// Every minute of some days that an expression names, and no other: compared with the definition.
TEST(CronTest, AgreesWithTheDefinitionMinuteByMinute) {
  Zone zone("UTC0");
  std::mt19937 random(7);
  auto number = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  for (int round = 0; round < 40; round++) {
    int step = number(1, 40), hour = number(0, 23), day = number(1, 7), weekday = number(0, 6);
    std::string text = "*/" + std::to_string(step) + " " + std::to_string(hour) + "-23/3 " +
                       std::to_string(day) + " * " + std::to_string(weekday);
    CronExpression cron = Cron(text);
    int64_t begin = Utc("2026-11-30 00:00:00"), time = begin;
    for (int64_t minute = begin + 60; minute < begin + 8 * 86400; minute += 60) {
      auto when = static_cast<time_t>(minute);
      tm utc{};
      gmtime_r(&when, &utc);
      bool named = utc.tm_min % step == 0 && utc.tm_hour >= hour && (utc.tm_hour - hour) % 3 == 0 &&
                   (utc.tm_mday == day || utc.tm_wday == weekday);
      if (!named) continue;
      ASSERT_EQ(cron.Next(time), minute) << text << " after " << Text(time);
      time = minute;
    }
  }
}

TEST(CronTest, RefusesWhatIsNoExpression) {
  for (const char* text : {"",
                           "*",
                           "* * * *",
                           "* * * * * *",
                           "60 * * * *",
                           "* 24 * * *",
                           "* * 0 * *",
                           "* * 32 * *",
                           "* * * 13 *",
                           "* * * * 8",
                           "-1 * * * *",
                           "5-1 * * * *",
                           "*/0 * * * *",
                           "*/ * * * *",
                           "1, * * * *",
                           ",1 * * * *",
                           "1-2-3 * * * *",
                           "a * * * *",
                           "* * * juno *",
                           "@reboot",
                           "@",
                           "1.5 * * * *",
                           "+1 * * * *",
                           "99999999999999999999 * * * *",
                           "0 0 30 2 *",
                           "0 0 31 4,6,9,11 *"}) {
    Result<CronExpression> cron = CronExpression::Parse(text);
    ASSERT_FALSE(cron.ok()) << text;
    EXPECT_EQ(cron.status().code(), StatusCode::kInvalidArgument) << text;
  }
  EXPECT_FALSE(CronExpression::Parse(std::string(300, '*')).ok());
}

TEST(CronTest, TakesBlanksAndTabs) {
  Zone zone("UTC0");
  EXPECT_EQ(NextText(" \t0\t3  * * * ", Utc("2026-11-30 07:09:16")), "2026-12-01 03:00:00 UTC");
}

}  // namespace
}  // namespace stasis
