#include "scheduler/daemon/request_checks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "base/field_checks.h"

namespace stasis::scheduler {
namespace {

v1::SubmitRequest GoodSubmit() {
  v1::SubmitRequest request;
  request.set_tenant("red");
  request.add_argv("/bin/train");
  request.add_environment("HOME=/root");
  request.set_folder("/tmp");
  request.set_gpus(2);
  return request;
}

template <typename Request>
std::string Refusal(const Request& request) {
  Status status = CheckRequest(request);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  return std::string(status.message());
}

// What is wrong with a good one after `spoil`.
std::string Spoiled(const std::function<void(v1::SubmitRequest&)>& spoil) {
  v1::SubmitRequest request = GoodSubmit();
  spoil(request);
  return Refusal(request);
}

bool Has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

TEST(SchedulerRequestChecks, WhatIsInOrderIsTaken) {
  EXPECT_TRUE(CheckRequest(v1::ClusterInfoRequest()).ok());
  EXPECT_TRUE(CheckRequest(v1::TenantsRequest()).ok());
  EXPECT_TRUE(CheckRequest(v1::NodesRequest()).ok());
  EXPECT_TRUE(CheckRequest(v1::QueueRequest()).ok());
  EXPECT_TRUE(CheckRequest(v1::EventsRequest()).ok());
  v1::SubmitRequest submit = GoodSubmit();
  EXPECT_TRUE(CheckRequest(submit).ok());
  submit.set_name("train");
  submit.set_ranks(2);
  submit.set_min_gpus(1);
  submit.set_max_gpus(4);
  submit.set_priority(-100);
  submit.set_weight(0.5);
  submit.set_checkpoint_interval_ms(60000);
  submit.set_max_restarts(3);
  submit.set_device("soft");
  submit.set_idempotency_key(std::string(kMaxKey, 'k'));
  EXPECT_TRUE(CheckRequest(submit).ok());
}

TEST(SchedulerRequestChecks, NamesThatLeadElsewhereAreRefused) {
  for (const char* name : {"../etc", "a/b", ".hidden", "-x", "a b", "a\nb"}) {
    EXPECT_TRUE(Has(Spoiled([&](auto& submit) { submit.set_name(name); }), "name: ")) << name;
    EXPECT_TRUE(Has(Spoiled([&](auto& submit) { submit.set_tenant(name); }), "tenant: ")) << name;
    v1::QueueRequest queue;
    queue.set_name(name);
    Refusal(queue);
    v1::CancelJobRequest cancel;
    cancel.set_name(name);
    Refusal(cancel);
    v1::SetTenantRequest tenant;
    tenant.set_name(name);
    tenant.set_weight(1);
    Refusal(tenant);
  }
  Refusal(v1::CancelJobRequest());
  Refusal(v1::SubmitRequest());
}

TEST(SchedulerRequestChecks, ProgramsAndFoldersAreAbsolute) {
  EXPECT_TRUE(Has(Spoiled([](auto& submit) { submit.clear_argv(); }), "no program"));
  EXPECT_TRUE(Has(Spoiled([](auto& submit) { submit.set_argv(0, "train"); }), "no absolute path"));
  EXPECT_TRUE(Has(Spoiled([](auto& submit) { submit.clear_folder(); }), "no absolute path"));
  EXPECT_TRUE(Has(Spoiled([](auto& submit) { submit.add_argv(std::string("a\0b", 3)); }), "zero byte"));
  EXPECT_TRUE(
      Has(Spoiled([](auto& submit) { submit.add_argv(std::string(kMaxRequestString, 'x')); }), "length"));
  EXPECT_TRUE(Has(Spoiled([](auto& submit) {
                    for (size_t i = 0; i <= kMaxRequestStrings; i++) submit.add_environment("A=");
                  }),
                  "number"));
  EXPECT_TRUE(Has(Spoiled([](auto& submit) { submit.add_environment("A"); }), "KEY=VALUE"));
  EXPECT_TRUE(Has(Spoiled([](auto& submit) { submit.set_device("fpga"); }), "none of auto, nvidia, soft"));
}

TEST(SchedulerRequestChecks, NumbersAreWithinTheirRanges) {
  EXPECT_TRUE(Has(Spoiled([](auto& submit) { submit.set_gpus(0); }), "gpus is 0"));
  EXPECT_TRUE(Has(Spoiled([](auto& submit) { submit.set_gpus(65); }), "gpus is 65"));
  EXPECT_TRUE(Has(Spoiled([](auto& submit) { submit.set_ranks(3); }), "as many as gpus"));
  EXPECT_TRUE(Has(Spoiled([](auto& submit) { submit.set_min_gpus(3); }), "min_gpus"));
  EXPECT_TRUE(Has(Spoiled([](auto& submit) { submit.set_max_gpus(1); }), "max_gpus"));
  EXPECT_TRUE(Has(Spoiled([](auto& submit) { submit.set_priority(101); }), "priority"));
  EXPECT_TRUE(Has(Spoiled([](auto& submit) { submit.set_priority(INT32_MIN); }), "priority"));
  for (double weight : {-1.0, 1e300, std::numeric_limits<double>::infinity(), std::nan("")}) {
    EXPECT_TRUE(Has(Spoiled([&](auto& submit) { submit.set_weight(weight); }), "weight")) << weight;
    v1::SetTenantRequest tenant;
    tenant.set_name("red");
    tenant.set_weight(weight);
    EXPECT_TRUE(Has(Refusal(tenant), "weight")) << weight;
  }
  v1::SetTenantRequest nothing;
  nothing.set_name("red");
  EXPECT_TRUE(Has(Refusal(nothing), "weight"));
  EXPECT_TRUE(Has(Spoiled([](auto& submit) { submit.set_estimate_ms(UINT64_MAX); }), "estimate_ms"));
  EXPECT_TRUE(Has(Spoiled([](auto& submit) { submit.set_checkpoint_interval_ms(1); }), "less than a second"));
  EXPECT_TRUE(Has(Spoiled([](auto& submit) { submit.set_max_restarts(10001); }), "max_restarts"));
  EXPECT_TRUE(Has(Spoiled([](auto& submit) { submit.set_memory_bytes(UINT64_MAX); }), "memory_bytes"));
  for (double part : {-0.1, 1.1, std::nan("")})
    EXPECT_TRUE(Has(Spoiled([&](auto& submit) { submit.set_utilization(part); }), "utilization")) << part;
  EXPECT_TRUE(Has(Spoiled([](auto& submit) { submit.set_idempotency_key("a\nb"); }), "idempotency_key"));
}

TEST(SchedulerRequestChecks, Nodes) {
  v1::JoinRequest join;
  join.set_address("node-1:7470");
  join.set_node("node-1");
  join.set_agent_id("0123");
  EXPECT_TRUE(CheckRequest(join).ok());
  for (const char* node : {"", "a b", "a\n"}) {
    v1::JoinRequest bad = join;
    bad.set_node(node);
    EXPECT_TRUE(Has(Refusal(bad), "no name of a node")) << node;
    v1::UndrainRequest undrain;
    undrain.set_node(node);
    Refusal(undrain);
  }
  v1::JoinRequest nowhere = join;
  nowhere.clear_address();
  EXPECT_TRUE(Has(Refusal(nowhere), "address"));
  v1::JoinRequest nobody = join;
  nobody.clear_agent_id();
  EXPECT_TRUE(Has(Refusal(nobody), "agent_id"));
  v1::DrainRequest drain;
  drain.set_node("node-1");
  drain.set_reason(std::string(1001, 'x'));
  EXPECT_TRUE(Has(Refusal(drain), "reason"));
  drain.clear_reason();
  drain.set_notice_ms(30'000);
  EXPECT_TRUE(CheckRequest(drain).ok());
  drain.set_notice_ms(UINT64_MAX);
  EXPECT_TRUE(Has(Refusal(drain), "notice_ms"));
}

TEST(SchedulerRequestChecks, MaintenanceIsAWindow) {
  v1::SetMaintenanceRequest window;
  window.set_node("node-1");
  EXPECT_TRUE(CheckRequest(window).ok());
  window.set_start_ms(1000);
  EXPECT_TRUE(Has(Refusal(window), "end_ms"));
  window.set_end_ms(1000);
  EXPECT_TRUE(Has(Refusal(window), "end_ms"));
  window.set_end_ms(1001);
  EXPECT_TRUE(CheckRequest(window).ok());
  window.set_start_ms(INT64_MIN);
  EXPECT_TRUE(Has(Refusal(window), "start_ms"));
  window.set_start_ms(INT64_MAX);
  window.set_end_ms(INT64_MAX);
  EXPECT_TRUE(Has(Refusal(window), "start_ms"));
}

TEST(SchedulerRequestChecks, EventsAndGangs) {
  v1::EventsRequest events;
  events.set_last(10001);
  EXPECT_TRUE(Has(Refusal(events), "last"));
  events.set_last(1);
  events.set_after(1);
  EXPECT_TRUE(Has(Refusal(events), "which of them"));
  EXPECT_TRUE(Has(Refusal(v1::DefragmentRequest()), "gpus"));
}

}  // namespace
}  // namespace stasis::scheduler
