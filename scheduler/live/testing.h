// A cluster whose facts are kept in memory, for tests.
#ifndef SCHEDULER_LIVE_TESTING_H_
#define SCHEDULER_LIVE_TESTING_H_

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/live/cluster.h"

namespace stasis::scheduler {

inline constexpr Time kLease = 60 * kSecond;

inline std::unique_ptr<Cluster> MakeCluster(std::string_view policy) {
  Cluster::Options options;
  options.lease = kLease;
  options.starvation = 600 * kSecond;
  return std::make_unique<Cluster>(options, std::move(*MakePolicy(policy)));
}

inline JobRequest Request(const std::string& name, const std::string& tenant, int gpus, int priority = 0) {
  JobRequest request;
  request.name = name;
  request.tenant = tenant;
  request.argv = {"/bin/train"};
  request.folder = "/";
  request.gpus = gpus;
  request.priority = priority;
  return request;
}

// Stores what happens, as the daemon does.
class Keeper {
 public:
  explicit Keeper(std::string_view policy) : policy_(policy), cluster_(MakeCluster(policy)) {}

  Cluster& cluster() { return *cluster_; }
  void Happens(Time at, const Fact& fact) {
    ASSERT_TRUE(cluster_->Check(fact).ok()) << cluster_->Check(fact).ToString() << FactText(fact);
    log_.emplace_back(at, FactText(fact));
    cluster_->Take(log_.size(), at, fact);
    if (twin_ != nullptr) twin_->Take(log_.size(), at, fact);
  }
  void Decide(Time now) {
    int decisions = 0;
    for (std::vector<Fact> facts = cluster_->Decide(now);; facts = cluster_->Decide(now)) {
      ASSERT_LT(++decisions, 1000) << "decisions at " << now << " do not come to rest";
      if (twin_ != nullptr) {
        ASSERT_EQ(Texts(twin_->Decide(now)), Texts(facts));
      }
      if (facts.empty()) return;
      for (const Fact& fact : facts) Happens(now, fact);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
  // As after a kill: everything out of the log.
  void Restart() {
    std::unique_ptr<Cluster> again = Replay();
    ASSERT_EQ(Text(*again), Text(*cluster_));
    cluster_ = std::move(again);
    twin_ = nullptr;
  }
  // The same where the facts up to now have gone for a snapshot. From then on one that has taken all facts
  // goes beside it.
  void Compact() {
    const Snapshot news = cluster_->Save(snapshot_.number);
    std::map<uint64_t, Snapshot::Job> jobs;
    std::map<uint64_t, std::string> requests;
    for (Snapshot::Job& job : snapshot_.jobs) {
      requests[job.number] = job.request;
      if (job.ended != 0 && job.ended >= news.forgotten) jobs[job.number] = std::move(job);
    }
    for (const Snapshot::Job& job : news.jobs) {
      const std::string request = job.request.empty() ? requests.at(job.number) : job.request;
      jobs[job.number] = {job.number, job.ended, request, job.state};
    }
    snapshot_ = {news.number, news.cluster, {}, news.forgotten};
    for (const auto& [number, job] : jobs) snapshot_.jobs.push_back(job);
    std::unique_ptr<Cluster> again = MakeCluster(policy_);
    const Status restored = again->Restore(snapshot_);
    ASSERT_TRUE(restored.ok()) << restored.ToString();
    twin_ = Replay();
    ASSERT_EQ(Text(*again), Text(*cluster_));
    ASSERT_EQ(Text(*again), Text(*twin_));
    cluster_ = std::move(again);
  }
  size_t facts() const { return log_.size(); }

 private:
  static std::vector<std::string> Texts(const std::vector<Fact>& facts) {
    std::vector<std::string> texts;
    for (const Fact& fact : facts) texts.push_back(FactText(fact));
    return texts;
  }
  // All that it is.
  static std::string Text(const Cluster& cluster) {
    const Snapshot all = cluster.Save(0);
    std::string text = all.cluster;
    for (const Snapshot::Job& job : all.jobs)
      text += "\n" + std::to_string(job.number) + " " + job.request + " " + job.state;
    return text;
  }
  std::unique_ptr<Cluster> Replay() const {
    std::unique_ptr<Cluster> again = MakeCluster(policy_);
    for (size_t i = 0; i < log_.size(); ++i) {
      const Result<Fact> fact = ParseFact(log_[i].second);
      EXPECT_TRUE(fact.ok()) << log_[i].second;
      again->Take(i + 1, log_[i].first, *fact);
    }
    return again;
  }

  const std::string policy_;
  std::unique_ptr<Cluster> cluster_, twin_;
  Snapshot snapshot_;
  std::vector<std::pair<Time, std::string>> log_;
};

}  // namespace stasis::scheduler

#endif  // SCHEDULER_LIVE_TESTING_H_
