// The command line of stasis-schedd.
#include "scheduler/daemon/config.h"

#include <gtest/gtest.h>

namespace stasis::scheduler {
namespace {

TEST(SchedulerConfig, TakesWhatItIsTold) {
  SchedulerConfig config;
  const ConfigOutcome outcome =
      ParseConfig({"--state", "/s", "--listen", "unix:/s/sock", "--policy", "gandiva", "--lease", "2s",
                   "--settle", "500ms", "--pause-timeout", "90s", "--keep-ended", "30d", "--compact-after",
                   "7", "--metrics", "127.0.0.1:0"},
                  &config);
  ASSERT_FALSE(outcome.done) << outcome.text;
  EXPECT_EQ(config.lease, 2000);
  EXPECT_EQ(config.settle, 500);
  EXPECT_EQ(config.pause_timeout, 90 * kSecond);
  EXPECT_EQ(config.keep_ended, 30LL * 24 * 3600 * kSecond);
  EXPECT_EQ(config.compact_after, 7u);
  EXPECT_EQ(config.metrics, "127.0.0.1:0");
}

TEST(SchedulerConfig, HasDefaults) {
  SchedulerConfig config;
  ASSERT_FALSE(ParseConfig({"--state", "/s"}, &config).done);
  EXPECT_EQ(config.settle, 60 * kSecond);
  EXPECT_EQ(config.pause_timeout, 300 * kSecond);
  EXPECT_EQ(config.keep_ended, 7 * 24 * 3600 * kSecond);
  EXPECT_EQ(config.metrics, "");
}

TEST(SchedulerConfig, APauseMayTakeForEver) {
  SchedulerConfig config;
  ASSERT_FALSE(ParseConfig({"--state", "/s", "--pause-timeout", "0"}, &config).done);
  EXPECT_EQ(config.pause_timeout, 0);
}

TEST(SchedulerConfig, WhatMakesNoSenseIsRefused) {
  const std::vector<std::vector<std::string>> bad = {
      {"--metrics", "unix:/x"},    {"--metrics", "nowhere"},   {"--settle", "soon"},
      {"--keep-ended", "-1h"},     {"--keep-ended", "ever"},   {"--compact-after", "0"},
      {"--policy", "lottery"},     {"--state", "here"},        {"--web", "0.0.0.0:80"},
      {"--compact-after", "much"}, {"--pause-timeout", "-1s"}, {"--pause-timeout", "never"},
  };
  for (const std::vector<std::string>& arguments : bad) {
    SchedulerConfig config;
    const ConfigOutcome outcome = ParseConfig(arguments, &config);
    EXPECT_TRUE(outcome.done && outcome.exit_code == 2) << arguments[0] << " " << arguments[1];
    EXPECT_NE(outcome.text, "");
  }
}

}  // namespace
}  // namespace stasis::scheduler
