#include "ghost/steps.h"

#include <gtest/gtest.h>

#include <set>

namespace stasis {
namespace {

struct Case {
  const char* name;
  std::vector<Step> plan;
  Phase start;
  Phase end;
};

std::vector<Case> Cases() {
  return {{"pause", PausePlan(), Phase::kRunning, Phase::kHeld},
          {"resume", ResumePlan(), Phase::kHeld, Phase::kRunning},
          {"checkpoint", CheckpointPlan(false, false), Phase::kRunning, Phase::kRunning},
          {"checkpoint --stop", CheckpointPlan(false, true), Phase::kRunning, Phase::kAbsent},
          {"checkpoint of a paused one", CheckpointPlan(true, false), Phase::kHeld, Phase::kHeld},
          {"checkpoint --stop of a paused one", CheckpointPlan(true, true), Phase::kHeld, Phase::kAbsent},
          {"migrate", MigratePlan(false), Phase::kRunning, Phase::kRunning},
          {"migrate a paused one", MigratePlan(true), Phase::kHeld, Phase::kHeld},
          {"restore", RestorePlan(), Phase::kAbsent, Phase::kRunning}};
}

// Follows the way back; the number of steps, or -1 when it ends somewhere else.
int StepsBack(Phase from, Phase goal, bool has_memory = false) {
  int count = 0;
  for (Step step; WayBack(from, goal, has_memory, &step); ++count) {
    if (!Allows(step, from) || count > 20) return -1;
    from = After(step, from);
  }
  return from == goal ? count : -1;
}

TEST(StepsTest, TheTableIsInOrderAndNamed) {
  std::set<std::string> names;
  for (size_t i = 0; i < StepTable().size(); ++i) {
    EXPECT_EQ(static_cast<size_t>(StepTable()[i].step), i);
    EXPECT_TRUE(names.insert(StepTable()[i].name).second);
    Step found;
    ASSERT_TRUE(FindStep(StepTable()[i].name, &found));
    EXPECT_EQ(found, StepTable()[i].step);
  }
  Phase phase;
  EXPECT_TRUE(FindPhase("held", &phase));
  EXPECT_FALSE(FindPhase("nowhere", &phase));
}

TEST(StepsTest, EveryPlanLeadsWhereItShould) {
  for (const Case& each : Cases()) {
    Phase phase = each.start;
    for (Step step : each.plan) {
      ASSERT_TRUE(Allows(step, phase)) << each.name << ": " << StepName(step) << " in " << PhaseName(phase);
      phase = After(step, phase);
    }
    EXPECT_EQ(phase, each.end) << each.name;
  }
}

// A failure before any step, and after any but those that end the task, finds its way back to the start.
TEST(StepsTest, EveryFailureOfEveryPlanFindsItsWayBack) {
  for (const Case& each : Cases()) {
    Phase phase = each.start;
    EXPECT_EQ(StepsBack(phase, each.start), 0) << each.name;
    for (Step step : each.plan) {
      phase = After(step, phase);
      if (phase == Phase::kAbsent) continue;
      // What runs is not paused again for the sake of an undo.
      if (each.start == Phase::kHeld && phase == Phase::kRunning) continue;
      EXPECT_GE(StepsBack(phase, each.start), 0) << each.name << " after " << StepName(step);
    }
  }
}

TEST(StepsTest, WhatCannotRunOnCanBeHeld) {
  for (Phase phase : {Phase::kDrained, Phase::kQuiesced, Phase::kHandedOver, Phase::kReleased,
                      Phase::kDetached, Phase::kStored}) {
    for (bool has_memory : {false, true})
      EXPECT_GE(StepsBack(phase, Phase::kHeld, has_memory), 0) << PhaseName(phase);
  }
  Step step;
  ASSERT_TRUE(WayBack(Phase::kQuiesced, Phase::kHeld, true, &step));
  EXPECT_EQ(step, Step::kUnattach);
  ASSERT_TRUE(WayBack(Phase::kQuiesced, Phase::kHeld, false, &step));
  EXPECT_EQ(step, Step::kHandOver);
}

TEST(StepsTest, EveryStepOfAPlanHasFaultPoints) {
  std::set<Step> used;
  for (const Case& each : Cases()) used.insert(each.plan.begin(), each.plan.end());
  for (Step step : used) {
    for (const char* side : {"-before", "-after"}) {
      FaultPoint point;
      std::string name = std::string(StepName(step)) + side;
      ASSERT_TRUE(FindFault(name, &point)) << name;
      ASSERT_TRUE(SetFault(name + ":fail").ok());
      Status status = std::string(side) == "-before" ? FaultBefore(step) : FaultAfter(step);
      EXPECT_EQ(status.code(), StatusCode::kInternal) << name;
      EXPECT_NE(status.message().find(name), std::string_view::npos);
      EXPECT_TRUE(FaultBefore(step).ok() && FaultAfter(step).ok()) << "a fault happens once";
    }
  }
  EXPECT_FALSE(SetFault("nowhere:kill").ok());
  EXPECT_FALSE(SetFault("dump-before:explode").ok());
  EXPECT_TRUE(SetFault("").ok());
}

}  // namespace
}  // namespace stasis
