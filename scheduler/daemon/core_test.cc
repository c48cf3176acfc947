// The core against its store: the same after a restart at any point, and what it refuses.
#include "scheduler/daemon/core.h"

#include <gtest/gtest.h>

#include "base/testing.h"

namespace stasis::scheduler {
namespace {

constexpr Time kStart = 1'700'000'000'000;
constexpr Time kLease = 60 * kSecond;

class CoreTest : public ::testing::Test {
 protected:
  CoreTest() { Open(); }
  void Open() {
    Result<std::unique_ptr<Store>> store = Store::Open(folder_ / "schedd.db");
    ASSERT_OK(store.status());
    store_ = *std::move(store);
    SchedulerCore::Options options;
    options.cluster.lease = kLease;
    options.now = [this] { return now_; };
    options.compact_after = 3;  // each start is from a snapshot and a few facts
    options.broken = [this](const Status& why) { broken_ = why; };
    Result<std::unique_ptr<SchedulerCore>> core = SchedulerCore::Open(*store_, std::move(options));
    ASSERT_OK(core.status());
    core_ = *std::move(core);
  }
  // As after a kill.
  void Restart() {
    const uint64_t reign = core_->reign();
    const std::string before = Picture();
    core_.reset();
    store_.reset();
    Open();
    EXPECT_GT(core_->reign(), reign);
    EXPECT_EQ(Picture(), before);
  }
  std::string Picture() const {
    v1::QueueRequest all;
    all.set_ended(true);
    std::string picture =
        (*core_->Queue(all)).DebugString() + core_->Tenants().DebugString() + core_->Nodes().DebugString();
    for (const v1::ClusterEvent& event : core_->EventsAfter(0, 1000)) picture += event.DebugString();
    for (const Order& order : core_->Ready())
      picture +=
          std::to_string(order.number) + OrderKindName(order.kind) + order.job + order.node + order.target;
    return picture;
  }
  // Recorded, with a restart before and after it.
  void Happens(const Fact& fact) {
    now_ += kSecond;
    ASSERT_OK(core_->Record(fact).status());
    Restart();
  }
  v1::SubmitRequest Request(const std::string& name, int gpus, const std::string& key = "") {
    v1::SubmitRequest request;
    request.set_name(name);
    request.set_tenant("a");
    request.add_argv("/bin/train");
    request.set_folder("/");
    request.set_gpus(static_cast<uint32_t>(gpus));
    request.set_idempotency_key(key);
    return request;
  }
  void MakeCluster() {
    Happens(TenantSet{"a", 1});
    Happens(TenantSet{"b", 1});
    Happens(NodeJoined{"n0", "here:1", 2, "id0", "soft"});
    Happens(NodeJoined{"n1", "there:1", 2, "id1", "soft"});
  }
  Order Only() {
    const std::vector<Order> ready = core_->Ready();
    EXPECT_EQ(ready.size(), 1u);
    return ready.empty() ? Order() : ready[0];
  }
  v1::QueueState StateOf(const std::string& job) {
    v1::QueueRequest request;
    request.set_name(job);
    return (*core_->Queue(request)).jobs(0).state();
  }

  TempFolder folder_;
  Time now_ = kStart;
  Status broken_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<SchedulerCore> core_;
};

TEST_F(CoreTest, IsTheSameAfterARestartAtAnyPoint) {
  MakeCluster();
  ASSERT_OK(core_->Submit(Request("j", 2, "key")).status());
  Restart();
  EXPECT_EQ(StateOf("j"), v1::QUEUE_STATE_STARTING);
  Happens(OrderEnded{Only().number, true, ""});
  EXPECT_EQ(StateOf("j"), v1::QUEUE_STATE_RUNNING);
  Happens(ImageKept{"j", "n1"});
  ASSERT_OK(core_->Submit(Request("k", 2)).status());
  Happens(OrderEnded{Only().number, true, ""});
  ASSERT_OK(core_->Submit(Request("l", 2)).status());
  Restart();
  now_ += kLease;
  core_->Tick();
  Restart();
  EXPECT_EQ(Only().kind, OrderKind::kPause);
  Happens(OrderEnded{Only().number, true, ""});
  Happens(OrderEnded{Only().number, true, ""});
  v1::DrainRequest drain;
  drain.set_node("n0");
  drain.set_reason("why");
  ASSERT_OK(core_->Drain(drain).status());
  Restart();
  Happens(JobEnded{"l", false, 3, "its program has ended with exit code 3"});
  EXPECT_EQ(StateOf("l"), v1::QUEUE_STATE_FAILED);
  ASSERT_OK(core_->Cancel("j").status());
  Restart();
}

TEST_F(CoreTest, AKeyIsForOneJob) {
  MakeCluster();
  const Result<v1::QueuedJob> first = core_->Submit(Request("", 1, "once"));
  ASSERT_OK(first.status());
  EXPECT_TRUE(first->name().starts_with("train-")) << first->name();
  Restart();
  const Result<v1::QueuedJob> again = core_->Submit(Request("", 1, "once"));
  ASSERT_OK(again.status());
  EXPECT_EQ(again->name(), first->name());
  EXPECT_EQ(core_->Submit(Request("", 2, "once")).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(core_->Submit(Request("other", 1, "once")).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(core_->Submit(Request(first->name(), 1)).status().code(), StatusCode::kAlreadyExists);
}

TEST_F(CoreTest, WhatIsRefusedIsNotRecorded) {
  MakeCluster();
  const uint64_t last = core_->last_event();
  EXPECT_EQ(core_->Submit(Request("big", 3)).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(core_->Cancel("nobody").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(core_->Undrain("nowhere").status().code(), StatusCode::kNotFound);
  v1::QueueRequest request;
  request.set_tenant("nobody");
  EXPECT_EQ(core_->Queue(request).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(core_->last_event(), last);
  Restart();
}

TEST_F(CoreTest, TimeGoesOnWhenTheClockIsSetBack) {
  MakeCluster();
  ASSERT_OK(core_->Submit(Request("j", 1)).status());
  now_ -= 3600 * kSecond;
  Happens(OrderEnded{Only().number, true, ""});
  const std::vector<v1::ClusterEvent> events = core_->EventsAfter(0, 1000);
  for (size_t i = 1; i < events.size(); ++i) EXPECT_GE(events[i].at_ms(), events[i - 1].at_ms());
  now_ += kLease;
  ASSERT_OK(core_->Record(TenantSet{"a", 1}).status());
  EXPECT_EQ(core_->EventsAfter(core_->last_event() - 1, 1)[0].at_ms(), events.back().at_ms() + kLease);
}

TEST_F(CoreTest, ANodeIsDrainedForItsMaintenanceAndComesBack) {
  MakeCluster();
  v1::SetMaintenanceRequest window;
  window.set_node("n0");
  window.set_start_ms(now_ + 600 * kSecond);
  window.set_end_ms(now_ + 1200 * kSecond);
  ASSERT_OK(core_->SetMaintenance(window).status());
  Restart();
  EXPECT_FALSE(core_->Nodes().nodes(0).draining());
  EXPECT_EQ(core_->Tick(), std::chrono::seconds(540));
  now_ += 541 * kSecond;
  EXPECT_LE(core_->Tick(), std::chrono::seconds(660));
  EXPECT_TRUE(core_->Nodes().nodes(0).draining());
  Restart();
  now_ += 660 * kSecond;
  core_->Tick();
  EXPECT_FALSE(core_->Nodes().nodes(0).draining());
  EXPECT_EQ(core_->Nodes().nodes(0).maintenance_end_ms(), 0);
  window.set_start_ms(1);
  window.set_end_ms(2);
  EXPECT_EQ(core_->SetMaintenance(window).status().code(), StatusCode::kInvalidArgument) << "in the past";
}

TEST_F(CoreTest, WhoWatchesIsToldUntilHeHasGone) {
  int told = 0;
  std::shared_ptr<void> subscription = core_->Subscribe([&] { ++told; });
  ASSERT_OK(core_->Record(TenantSet{"a", 1}).status());
  EXPECT_EQ(told, 1);
  subscription.reset();
  ASSERT_OK(core_->Record(TenantSet{"a", 2}).status());
  EXPECT_EQ(told, 1);
}

TEST_F(CoreTest, MakesRoomForAGangWhenAskedTo) {
  MakeCluster();
  for (const char* name : {"j", "k"}) {
    ASSERT_OK(core_->Submit(Request(name, 1)).status());
    Happens(OrderEnded{Only().number, true, ""});
  }
  // Both have gone where it was tightest.
  v1::DefragmentRequest request;
  request.set_gpus(2);
  request.set_dry_run(true);
  Result<v1::DefragmentReply> reply = core_->Defragment(request);
  ASSERT_OK(reply.status());
  EXPECT_TRUE(reply->possible());
  EXPECT_EQ(reply->moves_size(), 0);
  // One on each node.
  Happens(
      Decided{ActionKind::kMigrate, "k", {{core_->Nodes().nodes(0).jobs(0).empty() ? "n0" : "n1", 1}}, ""});
  Happens(OrderEnded{Only().number, true, ""});
  reply = core_->Defragment(request);
  ASSERT_OK(reply.status());
  EXPECT_TRUE(reply->possible());
  EXPECT_EQ(reply->moves_size(), 1);
  EXPECT_TRUE(core_->Ready().empty()) << "it was only asked";
  request.set_dry_run(false);
  ASSERT_OK(core_->Defragment(request).status());
  EXPECT_EQ(Only().kind, OrderKind::kMigrate);
  Restart();
  request.set_gpus(3);
  EXPECT_FALSE((*core_->Defragment(request)).possible());
}

TEST(StoreTest, SaysWhichFactIsDamaged) {
  TempFolder folder;
  {
    const Result<std::unique_ptr<Store>> store = Store::Open(folder / "schedd.db");
    ASSERT_OK(store.status());
    ASSERT_OK((*store)->Append({{1, 5, TenantSet{"a", 1}}, {2, 6, TenantSet{"b", 1}}}));
    EXPECT_FALSE((*store)->Append({{3, 7, TenantSet{"c", 1}}, {2, 7, TenantSet{"d", 1}}}).ok());
    ASSERT_OK((*store)->database().Execute("UPDATE facts SET fact = 'x' WHERE number = 2"));
  }
  const Result<std::unique_ptr<Store>> store = Store::Open(folder / "schedd.db");
  ASSERT_OK(store.status());
  int count = 0;
  const Status read = (*store)->ForEach([&](const StoredFact& stored) -> Status {
    EXPECT_EQ(stored.number, 1u);
    EXPECT_EQ(stored.at, 5);
    ++count;
    return Status();
  });
  EXPECT_EQ(read.code(), StatusCode::kCorrupt);
  EXPECT_NE(read.ToString().find("fact 2"), std::string::npos) << read.ToString();
  EXPECT_EQ(count, 1);
}

TEST(StoreTest, EachReignIsHigherThanAllBefore) {
  TempFolder folder;
  uint64_t last = 0;
  for (const uint64_t least : {100u, 50u, 101u, 500u}) {
    const Result<std::unique_ptr<Store>> store = Store::Open(folder / "schedd.db");
    ASSERT_OK(store.status());
    const Result<uint64_t> reign = (*store)->BeginReign(least);
    ASSERT_OK(reign.status());
    EXPECT_GT(*reign, last);
    EXPECT_GE(*reign, least);
    last = *reign;
  }
}

}  // namespace
}  // namespace stasis::scheduler
