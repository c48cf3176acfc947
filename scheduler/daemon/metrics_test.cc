// What is counted of a small cluster.
#include "scheduler/daemon/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/testing.h"

namespace stasis::scheduler {
namespace {

class MetricsTest : public ::testing::Test {
 protected:
  MetricsTest() {
    store_ = *Store::Open(folder_ / "schedd.db");
    SchedulerCore::Options options;
    options.now = [this] { return now_; };
    options.happens = [this](const Cluster& before, const StoredFact& fact) {
      metrics_.Happens(before, fact);
    };
    options.decided = [this](Duration took) { metrics_.Decided(took); };
    core_ = *SchedulerCore::Open(*store_, std::move(options));
    metrics_.SetCore(core_.get());
    Happens(NodeJoined{"n1", "unix:/nowhere", 4});
    Happens(NodeJoined{"n2", "unix:/nowhere", 2});
    Happens(TenantSet{"red", 1});
    Happens(TenantSet{"blue", 1});
  }
  ~MetricsTest() override { metrics_.SetCore(nullptr); }
  void Happens(const Fact& fact) { ASSERT_OK(core_->Record(fact).status()); }
  void Submit(const std::string& name, int gpus, int priority = 0) {
    JobRequest request;
    request.name = name;
    request.tenant = "red";
    request.argv = {"/bin/train"};
    request.gpus = gpus;
    request.priority = priority;
    Happens(JobSubmitted{request});
  }
  // A gauge's or counter's value, or how often a histogram has observed something; -1: there is none.
  static double In(const std::vector<prometheus::MetricFamily>& families, const std::string& name,
                   const std::string& label) {
    for (const prometheus::MetricFamily& family : families) {
      if (family.name != name) continue;
      for (const prometheus::ClientMetric& metric : family.metric) {
        std::string text;
        for (const prometheus::ClientMetric::Label& each : metric.label)
          text += (text.empty() ? "" : ",") + each.name + "=" + each.value;
        if (text == label)
          return metric.gauge.value + metric.counter.value +
                 static_cast<double>(metric.histogram.sample_count);
      }
    }
    return -1;
  }
  double Value(const std::string& name, const std::string& label = "") {
    const double looked_up = In(metrics_.Collect(), name, label);
    return looked_up >= 0 ? looked_up : In(metrics_.Counted(), name, label);
  }

  TempFolder folder_;
  Time now_ = 1'000'000;
  SchedulerMetrics metrics_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<SchedulerCore> core_;
};

TEST_F(MetricsTest, WhatThereIs) {
  Submit("one", 2);
  Submit("two", 4);
  Submit("three", 1);
  EXPECT_EQ(Value("stasis_sched_jobs", "state=starting"), 2);
  EXPECT_EQ(Value("stasis_sched_jobs", "state=pending"), 1);
  EXPECT_EQ(Value("stasis_sched_jobs", "state=failed"), 0);
  EXPECT_EQ(Value("stasis_sched_devices", "state=held"), 6);
  EXPECT_EQ(Value("stasis_sched_devices", "state=free"), 0);
  EXPECT_EQ(Value("stasis_sched_tenant_demand", "tenant=red"), 7);
  EXPECT_EQ(Value("stasis_sched_tenant_quota", "tenant=blue"), 3);
  EXPECT_EQ(Value("stasis_sched_orders_outstanding", "order=run"), 2);
  for (const Order& order : core_->Ready()) Happens(OrderEnded{order.number, true, ""});
  EXPECT_EQ(Value("stasis_sched_jobs", "state=running"), 2);
  EXPECT_EQ(Value("stasis_sched_orders_total", "order=run,outcome=done"), 2);
  EXPECT_EQ(Value("stasis_sched_order_seconds", "order=run"), 2);
  EXPECT_EQ(Value("stasis_sched_decisions_total", "action=start"), 2);
  EXPECT_GT(Value("stasis_sched_decision_seconds"), 2);
  EXPECT_GT(Value("stasis_sched_facts_total"), 8);
  now_ += 100 * kSecond;
  EXPECT_DOUBLE_EQ(Value("stasis_sched_tenant_fairness_all", "tenant=red"), 2) << "6 devices of a share of 3";
  Happens(JobEnded{"two", true, 0, ""});
  Happens(NodeChanged{"n2", false, false, "gone"});
  EXPECT_EQ(Value("stasis_sched_nodes", "state=unreachable"), 1);
  EXPECT_EQ(Value("stasis_sched_nodes", "state=ready"), 1);
}

TEST_F(MetricsTest, AVictimThatDoesNotPauseIsSeen) {
  Submit("low", 4);
  for (const Order& order : core_->Ready()) Happens(OrderEnded{order.number, true, ""});
  EXPECT_EQ(Value("stasis_sched_oldest_order_seconds", "order=pause"), 0);
  now_ += 10 * kSecond;
  Submit("high", 4, 5);
  EXPECT_EQ(Value("stasis_sched_jobs", "state=pausing"), 1);
  now_ += 1000 * kSecond;
  EXPECT_EQ(Value("stasis_sched_orders_outstanding", "order=pause"), 1);
  EXPECT_EQ(Value("stasis_sched_oldest_order_seconds", "order=pause"), 1000);
  EXPECT_EQ(Value("stasis_sched_oldest_order_seconds", "order=run"), 0) << "it is not its turn yet";
  ASSERT_EQ(core_->Ready().size(), 1u);
  EXPECT_EQ(Value("stasis_sched_pause_timeouts_total"), 0);
  Happens(OrderEnded{core_->Ready()[0].number, false, "a kernel does not end", false, /*late=*/true});
  EXPECT_EQ(Value("stasis_sched_pause_timeouts_total"), 1);
  EXPECT_EQ(Value("stasis_sched_orders_total", "order=pause,outcome=failed"), 1);
  EXPECT_EQ(Value("stasis_sched_oldest_order_seconds", "order=pause"), 0);
}

TEST_F(MetricsTest, JobsThatCameBackAreCounted) {
  Submit("one", 1);
  for (const Order& order : core_->Ready()) Happens(OrderEnded{order.number, true, ""});
  Happens(JobLost{"one", "", "its node is lost"});
  Happens(JobLost{"one", "", "its node is drained", false, true});
  EXPECT_EQ(Value("stasis_sched_jobs_lost_total"), 1);
}

}  // namespace
}  // namespace stasis::scheduler
