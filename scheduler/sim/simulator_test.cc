#include "scheduler/sim/simulator.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <sstream>

#include "scheduler/sim/plot.h"
#include "scheduler/sim/report.h"
#include "scheduler/state.h"

namespace stasis::scheduler {
namespace {

JobSpec MakeJob(TenantId tenant, double submit, int gpus, double duration) {
  JobSpec job;
  job.name = std::to_string(submit);
  job.tenant = tenant;
  job.submit = static_cast<Time>(submit * kSecond);
  job.gpus = gpus;
  job.duration = static_cast<Time>(duration * kSecond);
  return job;
}

double End(const SimResult& result, size_t job) {
  return static_cast<double>(result.jobs[job].finished) / kSecond;
}

SimOptions OneNode(const std::string& policy) {
  SimOptions options;
  options.shape = {1, 4, 1};
  options.policy = policy;
  return options;
}

TEST(SimulatorTest, FifoByHand) {
  const Trace trace{{{"a", 1}}, {MakeJob(0, 0, 4, 100), MakeJob(0, 10, 2, 50), MakeJob(0, 20, 2, 10)}, 0};
  const Result<SimResult> result = Simulate(trace, OneNode("fifo"));
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(End(*result, 0), 100);
  EXPECT_EQ(End(*result, 1), 150);
  EXPECT_EQ(End(*result, 2), 110);
  const Figures figures = Summarize(*result, OneNode("fifo"));
  EXPECT_DOUBLE_EQ(figures.jct_mean, (100.0 + 140 + 90) / 3);
  EXPECT_DOUBLE_EQ(figures.jct_median, 100);
  EXPECT_DOUBLE_EQ(figures.utilization, 1);
  // Deserved 4 devices for 110 s and 2 for 40 s; used 4 for 100 s, 4 for 10 s and 2 for 40 s.
  EXPECT_NEAR(figures.tenant_min, 1, 1e-9);
}

TEST(SimulatorTest, PausingAndResumingCostWhatTheModelSays) {
  const Trace trace{{{"a", 1}}, {MakeJob(0, 0, 4, 100), MakeJob(0, 10, 4, 5)}, 0};
  SimOptions options = OneNode("srtf");
  options.costs.pause = {2, 0};
  options.costs.resume = {3, 0};
  const Result<SimResult> result = Simulate(trace, options);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(End(*result, 1), 10 + 2 + 5);   // waits for the other to leave
  EXPECT_EQ(End(*result, 0), 17 + 3 + 90);  // ten of its hundred seconds were done
  EXPECT_DOUBLE_EQ(result->overhead, 4.0 * (2 + 3) * kSecond);
  EXPECT_EQ(result->lost, 0);
}

TEST(SimulatorTest, AJobThatComesBackOnAnotherNodeMoves) {
  const Trace trace{{{"a", 1}}, {MakeJob(0, 0, 4, 100), MakeJob(0, 0, 4, 50), MakeJob(0, 10, 4, 45)}, 0};
  SimOptions options = OneNode("srtf");
  options.shape = {2, 4, 2};
  options.costs.resume = {3, 0};
  options.costs.migrate = {7, 0};
  const Result<SimResult> result = Simulate(trace, options);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(End(*result, 1), 50);
  EXPECT_EQ(End(*result, 2), 55);
  EXPECT_EQ(End(*result, 0), 50 + 7 + 90);
}

TEST(StateTest, ALeaseBeginsWhenTheJobHasCome) {
  Settings settings;
  settings.shape = {1, 4, 1};
  settings.lease = 10 * kSecond;
  State state(settings);
  JobSpec spec = MakeJob(state.AddTenant({"a", 1}), 0, 4, 100);
  const JobId job = *state.Submit(spec);
  state.Apply({ActionKind::kStart, job, {{0, 0xf}}, kNoJob}, 25 * kSecond);
  EXPECT_EQ(state.NextLeaseEnd(state.job(job)), 35 * kSecond);
  // Where nobody knows how long it takes.
  state.HoldLease(job);
  state.AdvanceTo(100 * kSecond);
  EXPECT_FALSE(state.LeaseEndedSince(state.job(job), 0));
  state.BeginLease(job);
  EXPECT_EQ(state.NextLeaseEnd(state.job(job)), 110 * kSecond);
  state.AdvanceTo(104 * kSecond);
  state.BeginLease(job);
  EXPECT_EQ(state.NextLeaseEnd(state.job(job)), 110 * kSecond) << "it has begun";
}

TEST(SimulatorTest, ADeviceIsFreeWhenWhoMigratesHasGone) {
  // Two devices of each node are free, and one of the two that are left makes room for who wants four.
  const Trace trace{
      {{"a", 1}},
      {MakeJob(0, 0, 2, 10), MakeJob(0, 0, 2, 100), MakeJob(0, 0, 2, 100), MakeJob(0, 11, 4, 20)},
      0};
  SimOptions options = OneNode("fifo");
  options.shape = {2, 4, 2};
  options.few_nodes = true;
  options.costs.migrate = {7, 0};
  const Result<SimResult> result = Simulate(trace, options);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(End(*result, 1) + End(*result, 2), 100 + 107);
  EXPECT_EQ(End(*result, 3), 11 + 7 + 20);
}

TEST(SimulatorTest, ARunningLeaseIsLostWhereTheRulesSaySo) {
  const Trace trace{{{"a", 1}}, {MakeJob(0, 0, 4, 100), MakeJob(0, 10, 4, 5)}, 0};
  SimOptions options = OneNode("srtf");
  options.lose_running_lease = true;
  const Result<SimResult> result = Simulate(trace, options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(End(*result, 0), 15 + 100);
  EXPECT_DOUBLE_EQ(result->lost, 4.0 * 10 * kSecond);
}

TEST(SimulatorTest, EventsTakeEffectOnTicks) {
  const Trace trace{{{"a", 1}}, {MakeJob(0, 3, 4, 11), MakeJob(0, 4, 4, 11)}, 0};
  SimOptions options = OneNode("fifo");
  options.tick = 10 * kSecond;
  const Result<SimResult> result = Simulate(trace, options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(End(*result, 0), 30);  // starts at 10, has done at 21
  EXPECT_EQ(End(*result, 1), 50);
}

TEST(SimulatorTest, AJobLargerThanTheClusterIsLeftOutAndCounted) {
  const Trace trace{{{"a", 1}}, {MakeJob(0, 0, 5, 10), MakeJob(0, 1, 1, 10)}, 0};
  const Result<SimResult> result = Simulate(trace, OneNode("astraea"));
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->dropped, 1u);
  EXPECT_EQ(result->jobs.size(), 1u);
}

Trace Busy() {
  Trace trace{{{"a", 1}, {"b", 2}}, {}, 0};
  for (int i = 0; i < 300; ++i)
    trace.jobs.push_back(MakeJob(static_cast<TenantId>(i % 3 == 0), i * 60, 1 << i % 4, 300 + i * 37 % 4000));
  return trace;
}

TEST(SimulatorTest, NodesFailAndEveryJobFinishesAllTheSame) {
  SimOptions options;
  options.shape = {4, 4, 2};
  options.failures.mean_time_between = 4 * 3600 * kSecond;
  options.failures.repair = 600 * kSecond;
  const Trace trace = Busy();
  const Result<SimResult> result = Simulate(trace, options);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_GT(result->node_failures, 5);
  EXPECT_GT(result->lost, 0);
  for (const Job& job : result->jobs) {
    EXPECT_EQ(job.phase, JobPhase::kDone);
    EXPECT_GE(job.finished - job.spec.submit, job.spec.duration);
  }
  // A device is never held by two, and never by anybody twice the time there is.
  double held = 0;
  for (const Span& span : result->spans)
    held += CountDevices(span.placement) * static_cast<double>(span.end - span.begin);
  EXPECT_LE(held, 16.0 * static_cast<double>(result->end));
}

TEST(SimulatorTest, ImagesCostTimeWhereNodesFail) {
  const Trace trace{{{"a", 1}}, {MakeJob(0, 0, 4, 100)}, 0};
  SimOptions options = OneNode("fifo");
  options.costs.checkpoint = {2, 0};
  options.failures.mean_time_between = Time{1} << 50;
  options.failures.checkpoint_interval = 30 * kSecond;
  const Result<SimResult> result = Simulate(trace, options);
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_EQ(result->node_failures, 0);
  EXPECT_EQ(End(*result, 0), 100 + 3 * 2);
  EXPECT_DOUBLE_EQ(result->overhead, 4.0 * 6 * kSecond);
}

TEST(SimulatorTest, TheSameSeedGivesTheSameReport) {
  SimOptions options;
  options.shape = {4, 4, 2};
  options.lease_budget = 0.05;
  options.costs = CostModel::Default();
  options.failures.mean_time_between = 8 * 3600 * kSecond;
  const Trace trace = Busy();
  for (const std::string_view policy : PolicyNames()) {
    options.policy = policy;
    const Result<SimResult> first = Simulate(trace, options), second = Simulate(trace, options);
    ASSERT_TRUE(first.ok() && second.ok()) << policy;
    EXPECT_EQ(FormatJobs(*first), FormatJobs(*second)) << policy;
    EXPECT_EQ(PlotFairness(*first), PlotFairness(*second)) << policy;
  }
}

TEST(SimulatorTest, OptionsThatMakeNoSenseAreRefused) {
  const Trace trace = Busy();
  SimOptions options;
  options.shape.nodes = 0;
  EXPECT_EQ(Simulate(trace, options).status().code(), StatusCode::kInvalidArgument);
  options = {};
  options.policy = "lottery";
  EXPECT_EQ(Simulate(trace, options).status().code(), StatusCode::kInvalidArgument);
  options = {};
  options.lease_budget = 1;
  EXPECT_EQ(Simulate(trace, options).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Simulate(Trace{}, SimOptions{}).status().code(), StatusCode::kInvalidArgument);
}

TEST(CostModelTest, FitsALineAndReadsItBack) {
  std::vector<CostSample> samples;
  for (const char* operation : {"pause", "resume", "migrate", "checkpoint"}) {
    for (const double bytes : {1e9, 2e9, 4e9}) samples.push_back({operation, bytes, 0.5 + bytes / 2e9});
  }
  samples.push_back({"restart", 1e9, 3});
  const Result<CostModel> model = FitCosts(samples);
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_NEAR(model->pause.fixed, 0.5, 1e-9);
  EXPECT_NEAR(model->pause.bytes_per_second, 2e9, 1);
  EXPECT_EQ(model->restart.bytes_per_second, 0);
  const Result<CostModel> again = CostModel::FromJson(model->ToJson(), "m.json");
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(again->migrate.Of(2'000'000'000), 1500);
  samples.resize(3);
  EXPECT_EQ(FitCosts(samples).status().code(), StatusCode::kInvalidArgument);
}

TEST(CostModelTest, DamagedModelsAreRefusedByName) {
  for (const char* text :
       {"", "[]", "{}", "{\"pause\": 1}", "{\"pause\": {\"fixed_s\": -1, \"bytes_per_s\": 0}}"})
    EXPECT_EQ(CostModel::FromJson(text, "m.json").status().code(), StatusCode::kInvalidArgument) << text;
}

TEST(CostModelTest, ALeaseKeepsToItsBudget) {
  CostModel costs;
  costs.pause = {1, 1e9};
  costs.resume = {1, 1e9};
  EXPECT_EQ(LeaseFor(costs, 1'000'000'000, 0.01, kSecond), 400 * kSecond);
  EXPECT_EQ(LeaseFor(CostModel::Free(), 1'000'000'000, 0.01, 60 * kSecond), 60 * kSecond);
}

TEST(ReportTest, PlotsAreWellFormedAndEscaped) {
  Trace trace = Busy();
  trace.tenants[0].name = "<a&b>";
  SimOptions options;
  options.shape = {4, 4, 2};
  const Result<SimResult> result = Simulate(trace, options);
  ASSERT_TRUE(result.ok());
  for (const std::string& svg :
       {PlotFairness(*result), PlotUtilization(*result, 16),
        PlotGantt(*result, options.shape, 0, 3600 * kSecond), PlotCompletionTimes({{"astraea", &*result}})}) {
    EXPECT_EQ(svg.find("<a&b>"), std::string::npos);
    EXPECT_EQ(svg.find(",nan"), std::string::npos);
    EXPECT_TRUE(svg.ends_with("</svg>\n"));
  }
}

TEST(SimulatorTest, SharingAndGrowingShortenARunOfJobsThatLeaveRoom) {
  Trace trace;
  trace.tenants = {{"a", 1}};
  std::mt19937 random(5);
  for (int i = 0; i < 150; ++i)
    trace.jobs.push_back(MakeJob(0, i * 20, 1 << random() % 3, 200 + random() % 2000));
  SimOptions plain;
  plain.shape = {4, 4, 4};
  plain.policy = "gandiva";
  plain.costs = CostModel::Default();
  plain.habits = {0.2, 0.7, 0.05, 0.3, 1};
  SimOptions shared = plain;
  shared.device_bytes = 2 * shared.active_bytes_per_gpu;
  const Result<SimResult> before = Simulate(trace, plain), after = Simulate(trace, shared);
  ASSERT_TRUE(before.ok() && after.ok());
  EXPECT_EQ(before->packed, 0);
  EXPECT_GT(after->packed, 10);
  EXPECT_LT(after->end, before->end);
  EXPECT_EQ(Simulate(trace, shared)->end, after->end);
}

TEST(SimulatorTest, GangsThatWantFewNodesGetThem) {
  Trace trace;
  trace.tenants = {{"a", 1}};
  std::mt19937 random(11);
  for (int i = 0; i < 200; ++i) {
    JobSpec spec;
    spec.name = std::to_string(i);
    spec.gpus = 1 << random() % 5;  // of nodes with four
    spec.submit = i * 60 * kSecond;
    spec.duration = (1 + static_cast<Time>(random() % 3000)) * kSecond;
    trace.jobs.push_back(spec);
  }
  for (const std::string_view policy : PolicyNames()) {
    SimOptions options;
    options.shape = {6, 4, 3};
    options.policy = policy;
    options.few_nodes = true;
    options.costs = CostModel::Default();
    const Result<SimResult> result = Simulate(trace, options);
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    for (const Span& span : result->spans) {
      const int gpus = result->jobs[span.job].spec.gpus;
      EXPECT_LE(span.placement.size(), static_cast<size_t>((gpus + 3) / 4)) << policy;
    }
  }
}

}  // namespace
}  // namespace stasis::scheduler
