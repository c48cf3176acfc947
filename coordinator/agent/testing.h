// Doubles for the tests of what stands on the registry.
#ifndef COORDINATOR_AGENT_TESTING_H_
#define COORDINATOR_AGENT_TESTING_H_

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/agent/registry.h"

namespace stasis {

// Holds the jobs that a test puts in. Subscribers are called by the thread that makes the change, before it
// returns. Thread-safe; ends after its subscriptions.
class FakeRegistry final : public Registry {
 public:
  // A job of that name, new or instead of the one that is there.
  void Put(v1::Job job) {
    std::lock_guard lock(mutex_);
    Publish(std::make_shared<v1::Job>(std::move(job)));
  }
  void Put(const std::string& name, v1::Condition condition) {
    v1::Job job;
    job.set_name(name);
    job.set_condition(condition);
    Put(std::move(job));
  }
  void Remove(const std::string& name) {
    std::lock_guard lock(mutex_);
    auto found = jobs_.find(name);
    if (found == jobs_.end()) return;
    auto gone = std::make_shared<v1::Job>(*found->second);
    gone->set_gone(true);
    Publish(gone);
  }
  // How often that was asked for.
  int refreshed(const std::string& name) const {
    std::lock_guard lock(mutex_);
    auto found = refreshed_.find(name);
    return found == refreshed_.end() ? 0 : found->second;
  }

  std::vector<JobPicture> List() const override {
    std::lock_guard lock(mutex_);
    std::vector<JobPicture> jobs;
    for (const auto& [name, job] : jobs_) jobs.push_back(job);
    return jobs;
  }
  JobPicture Find(const std::string& name) const override {
    std::lock_guard lock(mutex_);
    auto found = jobs_.find(name);
    return found == jobs_.end() ? nullptr : found->second;
  }
  uint64_t revision() const override {
    std::lock_guard lock(mutex_);
    return revision_;
  }
  std::unique_ptr<Subscription> Subscribe(std::function<void(const JobPicture&)> changed) override {
    std::lock_guard lock(mutex_);
    auto subscription = std::make_unique<Subscriber>(this, std::move(changed));
    subscribers_.insert(subscription.get());
    return subscription;
  }
  void Refresh(const std::string& name) override {
    std::lock_guard lock(mutex_);
    refreshed_[name]++;
  }
  void SetOperation(const std::string& name, const std::string& operation) override {
    Change(name, [&](v1::Job& job) { job.set_operation(operation); });
  }
  void SetMovedTo(const std::string& name, const std::string& node) override {
    Change(name, [&](v1::Job& job) { job.set_moved_to(node); });
  }

 private:
  class Subscriber final : public Subscription {
   public:
    Subscriber(FakeRegistry* registry, std::function<void(const JobPicture&)> changed)
        : registry_(registry), changed_(std::move(changed)) {}
    ~Subscriber() override {
      std::lock_guard lock(registry_->mutex_);
      registry_->subscribers_.erase(this);
    }
    void Tell(const JobPicture& job) const { changed_(job); }

   private:
    FakeRegistry* const registry_;
    const std::function<void(const JobPicture&)> changed_;
  };

  template <typename Edit>
  void Change(const std::string& name, Edit edit) {
    std::lock_guard lock(mutex_);
    auto found = jobs_.find(name);
    if (found == jobs_.end()) return;
    auto job = std::make_shared<v1::Job>(*found->second);
    edit(*job);
    Publish(job);
  }
  void Publish(const std::shared_ptr<v1::Job>& job) {
    job->set_revision(++revision_);
    if (job->gone())
      jobs_.erase(job->name());
    else
      jobs_[job->name()] = job;
    std::set<Subscriber*> told = subscribers_;
    for (Subscriber* subscriber : told) {
      if (subscribers_.count(subscriber) != 0) subscriber->Tell(job);
    }
  }

  mutable std::recursive_mutex mutex_;  // subscribers may ask
  std::map<std::string, JobPicture> jobs_;
  std::map<std::string, int> refreshed_;
  std::set<Subscriber*> subscribers_;
  uint64_t revision_ = 0;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_TESTING_H_
