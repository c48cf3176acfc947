// A scheduler with a driver and two fake agents, "n0" and "n1", of two devices each; time is what a test
// says.
#ifndef SCHEDULER_DAEMON_DRIVER_TESTING_H_
#define SCHEDULER_DAEMON_DRIVER_TESTING_H_

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/testing.h"
#include "scheduler/daemon/driver.h"
#include "scheduler/daemon/fake_agents.h"

namespace stasis::scheduler {

class DriverTest : public ::testing::Test {
 protected:
  static constexpr Time kPauseTimeout = 600 * kSecond;  // by the clock that tests set

  DriverTest() {
    agents_.Add("n0", 2);
    agents_.Add("n1", 2);
    Start();
    EXPECT_TRUE(core_->Record(TenantSet{"a", 1}).ok());
    EXPECT_TRUE(core_->Record(TenantSet{"b", 1}).ok());
  }
  ~DriverTest() override { End(); }

  void Start(Time lease = 3600 * kSecond) {
    Result<std::unique_ptr<Store>> store = Store::Open(folder_ / "schedd.db");
    STASIS_CHECK(store.ok());
    store_ = *std::move(store);
    SchedulerCore::Options options;
    options.cluster.lease = lease;
    options.now = [this] { return now_.load(); };
    Result<std::unique_ptr<SchedulerCore>> core = SchedulerCore::Open(*store_, std::move(options));
    STASIS_CHECK(core.ok());
    core_ = *std::move(core);
    Driver::Options driver;
    driver.connect = agents_.Connector();
    driver.node_timeout = std::chrono::milliseconds(300);
    driver.checkpoint_interval = 1000;
    driver.pause_timeout = kPauseTimeout;
    driver.fenced_off = [this](const Status&) { fenced_off_ = true; };
    driver_ = std::make_unique<Driver>(*core_, std::move(driver));
  }
  void End() {
    driver_.reset();
    core_.reset();
    store_.reset();
  }
  void Join(const std::string& node) {
    v1::JoinRequest request;
    request.set_address("unix:/" + node);
    request.set_node(node);
    request.set_agent_id("id-" + node);
    ASSERT_OK(driver_->Join(request));
    ASSERT_TRUE(agents_.Await([&] { return Reachable(node); }));
  }
  bool Reachable(const std::string& node) {
    const v1::NodesReply reply = core_->Nodes();
    for (const v1::ClusterNode& each : reply.nodes()) {
      if (each.name() == node) return each.reachable();
    }
    return false;
  }
  void Submit(const std::string& name, int gpus, int max_restarts = 0, int priority = 0) {
    v1::SubmitRequest request;
    request.set_name(name);
    request.set_tenant("a");
    request.add_argv("/bin/train");
    request.set_folder("/");
    request.set_gpus(static_cast<uint32_t>(gpus));
    request.set_max_restarts(static_cast<uint32_t>(max_restarts));
    request.set_priority(priority);
    ASSERT_OK(core_->Submit(request).status());
  }
  v1::QueuedJob Job(const std::string& name) {
    v1::QueueRequest request;
    request.set_name(name);
    return (*core_->Queue(request)).jobs(0);
  }
  // Until it is in that state; at which node.
  std::string AwaitState(const std::string& name, v1::QueueState state) {
    EXPECT_TRUE(agents_.Await([&] {
      now_ += 10;
      core_->Tick();
      return Job(name).state() == state;
    })) << Job(name).ShortDebugString();
    return Job(name).node();
  }
  std::string Run(const std::string& name, int gpus, int max_restarts = 0) {
    Submit(name, gpus, max_restarts);
    return AwaitState(name, v1::QUEUE_STATE_RUNNING);
  }
  v1::ClusterNode Node(const std::string& name) {
    const v1::NodesReply reply = core_->Nodes();
    for (const v1::ClusterNode& each : reply.nodes()) {
      if (each.name() == name) return each;
    }
    return {};
  }
  // What has happened to it: "started", "moved".
  std::vector<std::string> Events(const std::string& job) {
    std::vector<std::string> kinds;
    for (const v1::ClusterEvent& event : core_->EventsAfter(0, SIZE_MAX)) {
      if (event.job() == job) kinds.push_back(event.kind());
    }
    return kinds;
  }
  static std::string Other(const std::string& node) { return node == "n0" ? "n1" : "n0"; }

  TempFolder folder_;
  FakeAgents agents_;
  std::atomic<Time> now_{1'000'000};
  std::atomic<bool> fenced_off_{false};
  std::unique_ptr<Store> store_;
  std::unique_ptr<SchedulerCore> core_;
  std::unique_ptr<Driver> driver_;
};

}  // namespace stasis::scheduler

#endif  // SCHEDULER_DAEMON_DRIVER_TESTING_H_
