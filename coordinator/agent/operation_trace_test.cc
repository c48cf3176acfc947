#include "coordinator/agent/operation_trace.h"

#include <gtest/gtest.h>

namespace stasis {
namespace {

Json Event(const char* phase, int done = 0, int total = 0) {
  return {{"phase", phase}, {"done", done}, {"total", total}};
}

v1::Operation Filled(const OperationTrace& trace) {
  v1::Operation operation;
  trace.Fill(&operation, true);
  return operation;
}

TEST(OperationTraceTest, PhasesOfAGhostAreSpansOneAfterTheOther) {
  ManualClock clock;
  OperationTrace trace(clock);
  trace.Start();
  trace.TakeEvent("", Event("begin"));
  trace.TakeEvent("", Event("quiesce"));
  clock.Advance(std::chrono::milliseconds(3));
  trace.TakeEvent("", Event("dump", 10, 40));
  clock.Advance(std::chrono::milliseconds(2));
  trace.TakeEvent("", Event("dump", 30, 40));
  v1::Operation running = Filled(trace);
  ASSERT_EQ(running.spans_size(), 2);
  EXPECT_EQ(running.spans(0).name(), "quiesce");
  EXPECT_EQ(running.spans(0).end_us(), 3000);
  EXPECT_EQ(running.spans(1).start_us(), 3000);
  EXPECT_EQ(running.spans(1).end_us(), 0);
  EXPECT_EQ(running.spans(1).bytes(), 30u);
  EXPECT_EQ(running.phase(), "dump");
  EXPECT_DOUBLE_EQ(running.percent(), 75);
  trace.Finish();
  EXPECT_EQ(Filled(trace).spans(1).end_us(), 5000);
}

TEST(OperationTraceTest, PhasesLieInTheSpanThatGoesOnAndEndWithIt) {
  ManualClock clock;
  OperationTrace trace(clock);
  trace.Start();
  uint32_t outer = trace.BeginSpan("transfer", 0, "");
  trace.TakeEvent("job.0", Event("read"));
  clock.Advance(std::chrono::milliseconds(3));
  trace.EndSpan(outer, 7);
  clock.Advance(std::chrono::milliseconds(2));
  trace.TakeEvent("job.0", Event("write"));
  v1::Operation operation = Filled(trace);
  EXPECT_EQ(operation.spans(0).bytes(), 7u);
  EXPECT_EQ(operation.spans(1).parent(), outer);
  EXPECT_EQ(operation.spans(1).rank(), "job.0");
  EXPECT_EQ(operation.spans(1).end_us(), 3000);
  EXPECT_EQ(operation.spans(2).parent(), 0u);
}

TEST(OperationTraceTest, RanksInOnePhaseAreAddedUpAndTheSlowerDoNotTakeItBack) {
  OperationTrace trace;
  trace.Start();
  trace.TakeEvent("a", Event("save", 10, 100));
  trace.TakeEvent("b", Event("save", 20, 100));
  EXPECT_EQ(Filled(trace).done_bytes(), 30u);
  trace.TakeEvent("a", Event("commit"));
  trace.TakeEvent("b", Event("save", 90, 100));
  EXPECT_EQ(Filled(trace).phase(), "commit");
  // Another attempt.
  trace.TakeEvent("a", Event("begin"));
  trace.TakeEvent("a", Event("save", 5, 100));
  EXPECT_EQ(Filled(trace).phase(), "save");
}

TEST(OperationTraceTest, TooManySpansAreNotKept) {
  OperationTrace trace;
  trace.Start();
  for (int i = 0; i < 20000; i++) trace.EndSpan(trace.BeginSpan("s", 0, ""), 0);
  EXPECT_EQ(trace.BeginSpan("one more", 0, ""), 0u);
  EXPECT_EQ(Filled(trace).spans_size(), 16384);
}

}  // namespace
}  // namespace stasis
