// Doubles for the tests of kinds of operations.
#ifndef COORDINATOR_AGENT_OPERATION_TESTING_H_
#define COORDINATOR_AGENT_OPERATION_TESTING_H_

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "coordinator/agent/live_operation.h"
#include "coordinator/agent/operations.h"

namespace stasis {

// An operation without a table: what it remembers is kept as long as this is.
class FakeContext final : public OperationContext {
 public:
  FakeContext(std::string job, std::string request) : job_(std::move(job)), request_(std::move(request)) {}
  const std::string& id() const override { return id_; }
  const std::string& token() const override { return id_; }
  std::string job() const override { return job_; }
  const Actor& actor() const override { return actor_; }
  const std::string& request() const override { return request_; }
  Interrupt& interrupt() override { return interrupt_; }
  void SetJob(const std::string& name) override { job_ = name; }
  std::string overruled_by() const override {
    std::lock_guard lock(mutex_);
    return overruled_by_;
  }
  void RefuseOthers(const Status& why, const std::string&) override {
    std::lock_guard lock(mutex_);
    refuses_.push_back(why);
  }
  void Progress(const std::string&, uint64_t, uint64_t) override {}
  void Note(const std::string&) override {}
  uint32_t BeginSpan(std::string_view, uint32_t, std::string_view) override { return 0; }
  void EndSpan(uint32_t, uint64_t) override {}
  void TakeEvent(const std::string&, const Json&) override { events++; }
  Status Remember(const Json& state) override {
    remembered_ = state;
    return Status();
  }
  Json remembered() const override { return remembered_; }

  // For the operation it comes from another thread.
  void Overrule(const std::string& verb) {
    std::lock_guard lock(mutex_);
    overruled_by_ = verb;
  }
  std::vector<Status> refuses() const {
    std::lock_guard lock(mutex_);
    return refuses_;
  }

  std::atomic<int> events{0};

 private:
  const std::string id_ = "op-000001-1";
  std::string job_;
  const std::string request_;
  const Actor actor_{"test", Role::kOperator};
  OperationInterrupt interrupt_;
  Json remembered_ = Json::object();
  mutable std::mutex mutex_;
  std::string overruled_by_;     // guarded by mutex_
  std::vector<Status> refuses_;  // of each call; guarded by mutex_
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_OPERATION_TESTING_H_
