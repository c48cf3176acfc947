// What it means that an agent tells this of a job.
#ifndef SCHEDULER_DAEMON_CONCLUSION_H_
#define SCHEDULER_DAEMON_CONCLUSION_H_

#include <optional>
#include <string>

#include "scheduler/daemon/agent_link.h"
#include "scheduler/live/cluster.h"

namespace stasis::scheduler {

// The node from whose image a job comes back that is not on `without` any more: the reachable one with the
// newest copy; "" where there is none.
std::string ImageNodeOf(const Cluster& cluster, const Cluster::Entry& entry, const std::string& without);

// Whether the job is on that node, as far as ended orders tell.
bool IsAt(const Cluster::Entry& entry, const std::string& node);

struct Conclusion {
  std::optional<Fact> fact;            // to be recorded
  std::optional<AgentRequest> remedy;  // to be asked of the node's agent
  bool forget = false;  // it has nothing to do there: what lives of it is cancelled, its record removed
};

// Whether what an agent has of that name is this job, or what is left of it: somebody else's may have the
// name.
bool IsOurs(const Cluster::Entry& entry, const v1::Job& job);

// `job`: what the agent of `node` tells, nothing where it has no such job; no order on it is being carried
// out.
Conclusion Conclude(const Cluster& cluster, const std::string& name, const std::string& node,
                    const std::optional<v1::Job>& job);

}  // namespace stasis::scheduler

#endif  // SCHEDULER_DAEMON_CONCLUSION_H_
