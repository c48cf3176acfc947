#include "scheduler/daemon/conclusion.h"

#include <algorithm>
#include <utility>

namespace stasis::scheduler {
namespace {

using Where = Cluster::Where;

constexpr int kSignalBase = 128;  // of the exit codes that stand for signals

Fact Lost(const Cluster& cluster, const Cluster::Entry& entry, const std::string& node, std::string why) {
  return JobLost{entry.request.name, ImageNodeOf(cluster, entry, node), std::move(why)};
}

// A program that has failed: it comes back from its newest image, as often as it may.
Fact Failed(const Cluster& cluster, const Cluster::Entry& entry, const std::string& node, const v1::Job& job,
            int exit_code, std::string why) {
  if (entry.program_failures >= entry.request.max_restarts)
    return JobEnded{entry.request.name, false, exit_code, std::move(why)};
  const std::string image = job.last_image().empty() ? ImageNodeOf(cluster, entry, node) : node;
  return JobLost{entry.request.name, image, std::move(why), /*program_failed=*/true};
}

Fact EndOf(const Cluster& cluster, const Cluster::Entry& entry, const std::string& node, const v1::Job& job) {
  if (job.condition() == v1::CONDITION_EXITED) {
    if (job.exit_code() == 0) return JobEnded{entry.request.name, true, 0, ""};
    return Failed(cluster, entry, node, job, job.exit_code(),
                  "its program has ended with exit code " + std::to_string(job.exit_code()));
  }
  if (job.ranked() && job.has_failed_rank()) {
    const v1::Rank& rank = job.ranks(static_cast<int>(job.failed_rank()));
    if (!rank.cancelled() && (rank.exit_code() != 0 || rank.signal() != 0))
      return Failed(cluster, entry, node, job,
                    rank.signal() != 0 ? kSignalBase + rank.signal() : rank.exit_code(),
                    "rank " + std::to_string(rank.rank()) + " has failed");
  }
  const int exit_code = kSignalBase + job.signal();
  if (job.ended_by() == "cancel")
    return JobEnded{entry.request.name, false, exit_code, "cancelled on its node"};
  // Nobody has seen it end: its node went down under it.
  if (job.signal() == 0) return Lost(cluster, entry, node, "its node " + node + " went down");
  return Failed(cluster, entry, node, job, exit_code,
                "its program was ended by signal " + std::to_string(job.signal()));
}

// A paused program is in the memory of a node that is to be empty.
Conclusion LeaveDrained(const Cluster& cluster, const Cluster::Entry& entry) {
  if (!cluster.IsToLeave(entry) || !entry.orders.empty()) return {};
  v1::CheckpointRequest checkpoint;
  checkpoint.set_job(entry.request.name);
  checkpoint.set_stop(true);
  return {std::nullopt, AgentRequest(std::move(checkpoint)), false};
}

// It has an end, or is not what the last order made of it.
Conclusion ConcludeHere(const Cluster& cluster, const Cluster::Entry& entry, const std::string& node,
                        const v1::Job& job) {
  const std::string& name = entry.request.name;
  switch (job.condition()) {
    case v1::CONDITION_EXITED:
    case v1::CONDITION_KILLED:
      return {EndOf(cluster, entry, node, job), std::nullopt, false};
    case v1::CONDITION_CHECKPOINTED: {
      // Nothing of what it has done is lost.
      const char* why = cluster.FindNode(node)->draining ? "its node is drained" : "it was made an image";
      return {JobLost{name, node, why, /*program_failed=*/false, /*planned=*/true}, std::nullopt, false};
    }
    case v1::CONDITION_MIGRATED:
      if (!job.moved_to().empty() && cluster.FindNode(job.moved_to()) == nullptr)
        return {
            JobEnded{name, false, 0,
                     "somebody else has moved it to " + job.moved_to() + ", which is not of this cluster"},
            std::nullopt, false};
      return {Lost(cluster, entry, node, "somebody else has moved it to " + job.moved_to()), std::nullopt,
              false};
    case v1::CONDITION_BROKEN: {
      v1::CancelRequest cancel;
      cancel.set_job(name);
      return {std::nullopt, AgentRequest(std::move(cancel)), false};
    }
    case v1::CONDITION_PAUSED: {
      if (entry.where == Where::kPaused) return LeaveDrained(cluster, entry);
      v1::ResumeRequest resume;
      resume.set_job(name);
      return {std::nullopt, AgentRequest(std::move(resume)), false};
    }
    case v1::CONDITION_RUNNING: {
      if (entry.where != Where::kPaused) return {};
      v1::PauseRequest pause;
      pause.set_job(name);
      pause.set_residency("host");
      return {std::nullopt, AgentRequest(std::move(pause)), false};
    }
    default:
      return {};
  }
}

bool Concerns(const Cluster& cluster, const Cluster::Entry& entry, const std::string& node) {
  for (const uint64_t number : entry.orders) {
    const Order order = *cluster.FindOrder(number);
    if (order.node == node || order.target == node) return true;
  }
  return false;
}

// It was ours once, and is not to be here. What has ended there, or came there as a copy, does no harm.
bool IsStale(const Cluster& cluster, const Cluster::Entry& entry, const std::string& node,
             const v1::Job& job) {
  return job.live() && IsOurs(entry, job) && !Concerns(cluster, entry, node);
}

// What would begin anew has an image after all.
bool IsAwaited(const Cluster::Entry& entry, const v1::Job& job) {
  return entry.where == Where::kNowhere && entry.lost && entry.orders.empty() && !job.live() &&
         !job.last_image().empty() && IsOurs(entry, job);
}

}  // namespace

std::string ImageNodeOf(const Cluster& cluster, const Cluster::Entry& entry, const std::string& without) {
  for (auto copy = entry.copies.rbegin(); copy != entry.copies.rend(); ++copy) {
    if (*copy != without && cluster.FindNode(*copy)->reachable) return *copy;
  }
  return "";
}

bool IsOurs(const Cluster::Entry& entry, const v1::Job& job) {
  const bool has_run = entry.restarts > 0 || !entry.node.empty();
  const std::vector<std::string>& argv = entry.request.argv;
  return has_run && std::equal(argv.begin(), argv.end(), job.argv().begin(), job.argv().end());
}

bool IsAt(const Cluster::Entry& entry, const std::string& node) {
  return (entry.where == Where::kRunning || entry.where == Where::kPaused) && entry.node == node;
}

Conclusion Conclude(const Cluster& cluster, const std::string& name, const std::string& node,
                    const std::optional<v1::Job>& job) {
  const Cluster::Entry* entry = cluster.Find(name);
  if (entry == nullptr) return {};
  if (!IsAt(*entry, node)) {
    if (job && IsAwaited(*entry, *job))
      return {JobLost{name, node, "its image on node " + node + " is there again", /*program_failed=*/false,
                      /*planned=*/true},
              std::nullopt, false};
    return {std::nullopt, std::nullopt, job && IsStale(cluster, *entry, node, *job)};
  }
  if (job && !job->operation().empty()) return {};
  if (!job)
    return {Lost(cluster, *entry, node, "its node " + node + " does not know it any more"), std::nullopt,
            false};
  return ConcludeHere(cluster, *entry, node, *job);
}

}  // namespace stasis::scheduler
