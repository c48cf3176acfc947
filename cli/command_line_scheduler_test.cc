// What the verbs through a scheduler take.
#include <gtest/gtest.h>

#include "cli/command_line.h"
#include "cli/completion.h"
#include "cli/exit_codes.h"
#include "cli/node_choice.h"

namespace stasis {
namespace {

TEST(SchedulerCommandLine, SubmitTakesAProgram) {
  CommandLine line;
  ASSERT_FALSE(line.Parse({"submit",
                           "--gpus",
                           "4",
                           "--ranks",
                           "--min-gpus",
                           "2",
                           "--max-gpus",
                           "8",
                           "--priority",
                           "-5",
                           "--checkpoint-every",
                           "10m",
                           "--estimate",
                           "2h",
                           "--device-memory",
                           "8GiB",
                           "--utilization",
                           "0.4",
                           "--wait",
                           "--",
                           "./train",
                           "--gpus"})
                   .done);
  const Options& options = line.options();
  EXPECT_EQ(options.gpu_count, 4);
  EXPECT_TRUE(options.ranked);
  EXPECT_EQ(options.priority, -5);
  EXPECT_EQ(options.device_memory, 8ull << 30);
  EXPECT_DOUBLE_EQ(options.utilization, 0.4);
  EXPECT_EQ(*options.every, std::chrono::minutes(10));
  EXPECT_EQ(*options.estimate, std::chrono::hours(2));
  EXPECT_EQ(options.program, std::vector<std::string>({"./train", "--gpus"}));
}

TEST(SchedulerCommandLine, DrainTakesATimeAfterWhichTheNodeIsGone) {
  CommandLine line;
  ASSERT_FALSE(line.Parse({"drain", "node-1", "--deadline", "90s"}).done);
  EXPECT_EQ(*line.options().notice, std::chrono::seconds(90));
}

TEST(SchedulerCommandLine, WhatMakesNoSenseIsRefused) {
  const std::vector<std::vector<std::string>> bad = {
      {"submit"},
      {"submit", "--gpus", "0", "--", "x"},
      {"submit", "--device-memory", "much", "--", "x"},
      {"submit", "--utilization", "2", "--", "x"},
      {"submit", "--gpus", "65", "--", "x"},
      {"submit", "--gpus", "2", "--min-gpus", "3", "--", "x"},
      {"submit", "--gpus", "2", "--max-gpus", "1", "--", "x"},
      {"submit", "--priority", "101", "--", "x"},
      {"submit", "--tenant", "a/b", "--", "x"},
      {"submit", "--name", "../x", "--", "x"},
      {"submit", "--env", "A", "--", "x"},
      {"tenants", "set", "red"},
      {"tenants", "set", "red", "0"},
      {"tenants", "drop"},
      {"drain"},
      {"drain", "n", "--deadline", "soon"},
      {"drain", "n", "--deadline", "-1s"},
      {"defrag"},
      {"maintenance", "node-1"},
      {"maintenance", "node-1", "--clear", "--start", "now"},
      {"maintenance", "node-1", "--start", "now"},
      {"maintenance", "node-1", "--start", "now", "--for", "1h", "--end", "+1h"},
      {"maintenance", "node-1", "--start", "+2h", "--end", "+1h"},
      {"maintenance", "node-1", "--start", "soon", "--for", "1h"},
      {"events", "--last", "0"},
      {"events", "--last", "5", "--after", "3"},
      {"queue", "a/b"}};
  for (const std::vector<std::string>& arguments : bad) {
    CommandLine line;
    CommandLine::Outcome outcome = line.Parse(arguments);
    EXPECT_TRUE(outcome.done) << arguments.back();
    EXPECT_EQ(outcome.exit_code, kExitUsage) << arguments.back();
  }
}

TEST(SchedulerCommandLine, TheOthers) {
  CommandLine tenants;
  ASSERT_FALSE(tenants.Parse({"tenants"}).done);
  EXPECT_EQ(tenants.options().below, "");
  CommandLine set;
  ASSERT_FALSE(set.Parse({"tenants", "set", "red", "2.5"}).done);
  EXPECT_EQ(set.options().below, "set");
  EXPECT_EQ(set.options().weight, 2.5);
  CommandLine window;
  ASSERT_FALSE(window.Parse({"maintenance", "node-1", "--start", "2026-12-24T18:00Z", "--for", "4h"}).done);
  EXPECT_EQ(window.options().start_ms, 1798135200000);
  EXPECT_EQ(window.options().end_ms, 1798135200000 + 4 * 3600000);
  CommandLine cancel;
  ASSERT_FALSE(cancel.Parse({"cancel", "train", "--scheduler", "login1:7480"}).done);
  EXPECT_EQ(cancel.options().scheduler, "login1:7480");
}

TEST(SchedulerCommandLine, CompletionKnowsThem) {
  CommandLine line;
  for (const char* shell : {"bash", "zsh", "fish"}) {
    std::string script = CompletionScript(line.app(), shell);
    for (const char* part : {"submit", "undrain", "tenants", "complete-queue", "complete-nodes"}) {
      EXPECT_NE(script.find(part), std::string::npos) << shell << " " << part;
    }
  }
}

TEST(SchedulerChoice, ANamedNodeIsNotTheScheduler) {
  unsetenv("STASIS_SCHEDULER");
  Folders folders{"/nowhere/state", "/nowhere/run"};
  Options options;
  EXPECT_EQ(NamedScheduler(options), "");
  EXPECT_EQ(ChooseScheduler(options, folders).status().code(), StatusCode::kUnavailable);
  setenv("STASIS_SCHEDULER", "login1:7480", 1);
  EXPECT_EQ(NamedScheduler(options), "login1:7480");
  options.node = "node7:7470";
  EXPECT_EQ(NamedScheduler(options), "");
  options.scheduler = "login2:7480";
  EXPECT_EQ(ChooseScheduler(options, folders).status().code(), StatusCode::kInvalidArgument);
  options.node.clear();
  EXPECT_EQ(*ChooseScheduler(options, folders), "login2:7480");
  options.scheduler = "?";
  EXPECT_EQ(ChooseScheduler(options, folders).status().code(), StatusCode::kInvalidArgument);
  unsetenv("STASIS_SCHEDULER");
}

}  // namespace
}  // namespace stasis
