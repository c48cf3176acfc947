// A scheduler without agents, for tests of who uses it.
#ifndef SCHEDULER_DAEMON_TESTING_H_
#define SCHEDULER_DAEMON_TESTING_H_

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>

#include "base/testing.h"
#include "scheduler/daemon/core.h"

namespace stasis::scheduler {

// A core over a store in a folder of its own, at a time that the test sets. One node of four devices, "n1",
// and two tenants, "red" and "blue".
class TestCluster {
 public:
  TestCluster() {
    store_ = *Store::Open(folder_ / "schedd.db");
    SchedulerCore::Options options;
    options.now = [this] { return now.load(); };
    core_ = *SchedulerCore::Open(*store_, std::move(options));
    EXPECT_TRUE(core_->Record(NodeJoined{"n1", "unix:/nowhere", 4}).ok());
    for (const char* tenant : {"red", "blue"}) EXPECT_TRUE(core_->Record(TenantSet{tenant, 1}).ok());
  }
  SchedulerCore& core() { return *core_; }
  Store& store() { return *store_; }
  std::string File(const std::string& name) const { return folder_ / name; }

  // As a user would ask.
  static v1::SubmitRequest Submission(const std::string& name, int gpus = 1) {
    v1::SubmitRequest request;
    request.set_name(name);
    request.set_tenant("red");
    request.add_argv("/bin/train");
    request.set_folder("/");
    request.set_gpus(static_cast<uint32_t>(gpus));
    return request;
  }
  // Lets the order of the job that is ready be done.
  void CarryOut(const std::string& job) {
    for (const Order& order : core_->Ready()) {
      if (order.job != job) continue;
      EXPECT_TRUE(core_->Record(OrderEnded{order.number, true, ""}).ok());
    }
  }

  std::atomic<Time> now = 1000000;

 private:
  TempFolder folder_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<SchedulerCore> core_;
};

}  // namespace stasis::scheduler

#endif  // SCHEDULER_DAEMON_TESTING_H_
