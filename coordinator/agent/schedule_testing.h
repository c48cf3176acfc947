// What schedules work with, for tests: operations and images that do what the test says.
#ifndef COORDINATOR_AGENT_SCHEDULE_TESTING_H_
#define COORDINATOR_AGENT_SCHEDULE_TESTING_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "coordinator/agent/image_shelf.h"
#include "coordinator/agent/operations.h"

namespace stasis {

// Who wants to be told. Not thread-safe.
template <typename Base, typename... Told>
class Listeners {
 public:
  using Function = std::function<void(Told...)>;
  std::unique_ptr<Base> Add(Function function) {
    functions_.push_back(std::move(function));
    return std::make_unique<Ticket>(&functions_, std::prev(functions_.end()));
  }
  void Tell(Told... told) {
    for (const Function& function : functions_) function(told...);
  }

 private:
  using List = std::list<Function>;
  class Ticket final : public Base {
   public:
    Ticket(List* list, typename List::iterator at) : list_(list), at_(at) {}
    ~Ticket() override { list_->erase(at_); }

   private:
    List* const list_;
    const typename List::iterator at_;
  };
  List functions_;
};

class ScheduleOperations final : public Operations {
 public:
  struct Submitted {
    OperationRequest request;
    v1::Operation operation;
  };

  Result<v1::Operation> Submit(const OperationRequest& request) override {
    std::lock_guard lock(mutex_);
    changed_.notify_all();
    if (!refusal_.ok()) return refusal_;
    for (const Submitted& each : submitted_) {
      if (each.request.key != request.key) continue;
      EXPECT_EQ(each.request.request, request.request) << "another request with the same key";
      return each.operation;
    }
    v1::Operation operation;
    operation.set_id("op-" + std::to_string(submitted_.size() + 1));
    operation.set_verb(request.verb);
    operation.set_job(request.job);
    operation.set_actor(request.actor.name);
    operation.set_state(v1::OPERATION_STATE_RUNNING);
    submitted_.push_back({request, operation});
    return operation;
  }
  Result<v1::Operation> Get(const std::string& id, bool) const override {
    std::lock_guard lock(mutex_);
    for (const Submitted& each : submitted_) {
      if (each.operation.id() == id) return each.operation;
    }
    return Status(StatusCode::kNotFound, "no operation " + id);
  }
  Result<std::vector<v1::Operation>> List(const v1::ListOperationsRequest&) const override {
    return std::vector<v1::Operation>();
  }
  Result<v1::Operation> Cancel(const std::string& id) override { return Get(id, false); }
  Result<v1::Operation> Await(const std::string& id) override { return Get(id, false); }
  std::unique_ptr<Subscription> Subscribe(const std::string&,
                                          std::function<void(const v1::Operation&)> changed) override {
    return listeners_.Add(std::move(changed));
  }
  void Stop(Duration) override {}

  // Only while nobody submits.
  const std::deque<Submitted>& submitted() const { return submitted_; }
  // Until so many have been submitted.
  bool AwaitSubmitted(size_t count, Duration longest) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, longest, [&] { return submitted_.size() >= count; });
  }
  void Refuse(const Status& status) { refusal_ = status; }
  // Ends the newest one. `told`: the subscribers hear of it.
  void End(v1::OperationState state, const Json& result, int64_t started_ms, bool told = true) {
    std::unique_lock lock(mutex_);
    ASSERT_FALSE(submitted_.empty());
    v1::Operation& operation = submitted_.back().operation;
    ASSERT_EQ(operation.state(), v1::OPERATION_STATE_RUNNING);
    operation.set_state(state);
    operation.set_started_ms(started_ms);
    operation.set_result_json(result.dump());
    v1::Operation ended = operation;
    lock.unlock();
    if (told) listeners_.Tell(ended);
  }
  // One that somebody else has asked for.
  void Tell(const v1::Operation& operation) { listeners_.Tell(operation); }

 private:
  mutable std::mutex mutex_;  // for what a thread of the schedules uses
  std::condition_variable changed_;
  std::deque<Submitted> submitted_;
  Status refusal_;
  Listeners<Subscription, const v1::Operation&> listeners_;
};

class ScheduleImages final : public ImageShelf {
 public:
  Result<std::vector<std::string>> List(const std::string& job) const override {
    auto found = images_.find(job);
    return found == images_.end() ? std::vector<std::string>() : found->second;
  }
  Status Remove(const std::string& job, const std::vector<std::string>& ids) override {
    for (const std::string& id : ids) std::erase(images_[job], id);
    return Status();
  }
  void Add(const std::string& job, const std::string& id) { images_[job].push_back(id); }

 private:
  std::map<std::string, std::vector<std::string>> images_;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_SCHEDULE_TESTING_H_
