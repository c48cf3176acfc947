// What agents tell of jobs, and what follows from it.
#include <algorithm>
#include <utility>

#include "base/log/log.h"
#include "scheduler/daemon/driver.h"
#include "scheduler/daemon/job_log.h"

namespace stasis::scheduler {
namespace {

// After something that could not be put right, doubled with each time.
constexpr Duration kFirstRemedyRetry = std::chrono::seconds(2), kLastRemedyRetry = std::chrono::seconds(60);
constexpr Duration kForever = std::chrono::hours(24);

}  // namespace

void Driver::Told(const std::string& node, const v1::Job& job) {
  {
    std::lock_guard lock(mutex_);
    const auto found = nodes_.find(node);
    if (found == nodes_.end()) return;
    Pictures& jobs = found->second.jobs;
    const auto known = jobs.find(job.name());
    // What was asked meanwhile may have had the same answer: nobody has looked at that yet.
    if (known != jobs.end() && known->second.revision() > job.revision()) return;
    if (job.gone()) {
      jobs.erase(job.name());
    } else {
      jobs[job.name()] = job;
    }
  }
  Examine(node, job.name());
  if (!job.gone()) images_.Copy(node, job);
}

void Driver::Progressed(const std::string& node, const v1::ProgressResponse& progress) {
  std::map<std::string, Cluster::Progress> told;
  core_.Look([&](const Cluster& cluster) {
    for (const v1::JobProgress& job : progress.jobs()) {
      const Cluster::Entry* entry = cluster.Find(job.job());
      if (entry == nullptr || entry->node != node || job.over_ms() == 0) continue;
      told[job.job()] = {job.rate(), job.unit(), static_cast<Time>(job.over_ms())};
    }
  });
  core_.Tell(told);
}

void Driver::ExamineAll(const std::string& node) {
  std::set<std::string> names;
  Pictures jobs;
  core_.Look([&](const Cluster& cluster) {
    for (const auto& [name, entry] : cluster.jobs()) {
      if (IsAt(entry, node)) names.insert(name);
    }
  });
  {
    std::lock_guard lock(mutex_);
    jobs = nodes_.at(node).jobs;
  }
  for (const auto& [name, job] : jobs) names.insert(name);
  for (const std::string& name : names) Examine(node, name);
}

void Driver::ExamineEverywhere(const std::string& job) {
  std::set<std::string> nodes;
  core_.Look([&](const Cluster& cluster) {
    const Cluster::Entry* entry = cluster.Find(job);
    if (entry != nullptr && !entry->node.empty()) nodes.insert(entry->node);
  });
  {
    std::lock_guard lock(mutex_);
    for (const auto& [name, node] : nodes_) {
      if (node.jobs.contains(job)) nodes.insert(name);
    }
  }
  for (const std::string& node : nodes) Examine(node, job);
}

Conclusion Driver::ConcludeOf(const std::string& node, const std::string& job, bool in_errand,
                              uint64_t* revision) {
  std::optional<v1::Job> picture;
  {
    std::lock_guard lock(mutex_);
    const auto found = nodes_.find(node);
    // Nothing is concluded from the past.
    if (found == nodes_.end() || found->second.link == nullptr) return {};
    if (!in_errand && errands_.Busy(job)) return {};
    const auto known = found->second.jobs.find(job);
    if (known != found->second.jobs.end()) picture = known->second;
  }
  *revision = picture ? picture->revision() : 0;
  Conclusion conclusion;
  core_.Look([&](const Cluster& cluster) { conclusion = Conclude(cluster, job, node, picture); });
  return conclusion;
}

// For who is the job's errand. Between a conclusion and what is done about it an order may have been carried
// out: the job may have moved, and come back.
Result<Conclusion> Driver::ConcludeAgain(const std::string& node, const std::string& job) {
  if (!Refresh(node, job)) return Status(StatusCode::kUnavailable, "node " + node + " does not answer");
  uint64_t revision = 0;
  return ConcludeOf(node, job, /*in_errand=*/true, &revision);
}

// Nothing else is to be done with the job there, and the node is not given up. Whoever does not look at this
// keeps the job from everything else.
bool Driver::IsLeftAlone(const std::string& node, const std::string& job) const {
  bool alone = false;
  core_.Look([&](const Cluster& cluster) {
    const Cluster::Node* known = cluster.FindNode(node);
    const Cluster::Entry* entry = cluster.Find(job);
    if (known == nullptr || !known->reachable || entry == nullptr) return;
    alone = true;
    for (const uint64_t number : entry->orders) {
      const Order order = *cluster.FindOrder(number);
      alone = alone && order.node != node && order.target != node;
    }
  });
  return alone;
}

void Driver::Examine(const std::string& node, const std::string& job) {
  std::lock_guard one(examine_);
  // That a job is nowhere to be seen may be because nobody has told of it yet.
  if (!IsKnown(node, job) && !Refresh(node, job)) return;
  uint64_t revision = 0;
  const Conclusion conclusion = ConcludeOf(node, job, /*in_errand=*/false, &revision);
  if (conclusion.fact) Record(*conclusion.fact);
  if (!conclusion.forget && !conclusion.remedy) {
    if (!errands_.Busy(job)) put_right_.erase({node, job});
    return;
  }
  Remedied& remedied = put_right_[{node, job}];
  const bool news = remedied.revision != revision;
  if (!news && Clock::Real().Now() < remedied.again) return;
  const int failed = news ? 0 : remedied.failed;
  const std::string key =
      job + "-" + std::to_string(revision) + (failed == 0 ? "" : "-" + std::to_string(failed));
  const auto work = [=, this] {
    const Status done =
        conclusion.forget ? Forget(node, job, key) : PutRight(node, job, key, *conclusion.remedy);
    if (!done.ok()) HasFailed(node, job, revision);
  };
  if (StartJobErrand(job, work)) remedied = {revision, failed, MonotonicTime::max()};
}

void Driver::HasFailed(const std::string& node, const std::string& job, uint64_t revision) {
  std::lock_guard one(examine_);
  const auto known = put_right_.find({node, job});
  if (known == put_right_.end() || known->second.revision != revision) return;
  Remedied& remedied = known->second;
  const int doublings = std::min(remedied.failed++, 10);
  remedied.again = Clock::Real().Now() + std::min(kFirstRemedyRetry * (1 << doublings), kLastRemedyRetry);
}

// After what time to call again.
Duration Driver::PutRightAgain() {
  std::vector<std::pair<std::string, std::string>> due;
  Duration next = kForever;
  {
    std::lock_guard one(examine_);
    const MonotonicTime now = Clock::Real().Now();
    for (const auto& [where, remedied] : put_right_) {
      if (remedied.again == MonotonicTime::max()) continue;
      if (remedied.again <= now) {
        due.push_back(where);
      } else {
        next = std::min<Duration>(next, remedied.again - now);
      }
    }
  }
  for (const auto& [node, job] : due) Examine(node, job);
  return next;
}

// A job is not as the last order has left it: somebody else has had a hand in it.
Status Driver::PutRight(const std::string& node, const std::string& job, const std::string& key,
                        const AgentRequest& remedy) {
  ASSIGN_OR_RETURN(const Conclusion still, ConcludeAgain(node, job));
  if (!still.remedy || still.remedy->index() != remedy.index()) return Status();
  const Status done =
      Perform({node, remedy, "", false}, "remedy-" + key, [=, this] { return IsLeftAlone(node, job); });
  Log(LogLevel::kWarning, "driver", std::string("put right: ") + VerbOf(remedy), Facts(node, job, done));
  Refresh(node, job);
  return done;
}

// Its record stays: images that are there may be needed.
Status Driver::Forget(const std::string& node, const std::string& job, const std::string& key) {
  ASSIGN_OR_RETURN(const Conclusion still, ConcludeAgain(node, job));
  if (!still.forget) return Status();
  Log(LogLevel::kInfo, "driver", "ends a copy that was given up", {{"node", node}, {"job", job}});
  v1::CancelRequest cancel;
  cancel.set_job(job);
  const Status done =
      Perform({node, cancel, "", true}, "stale-" + key, [=, this] { return IsLeftAlone(node, job); });
  Refresh(node, job);
  return done;
}

}  // namespace stasis::scheduler
