// A cluster as others are told of it (proto/stasis/v1/scheduler.proto). Reads only.
#ifndef SCHEDULER_DAEMON_VIEWS_H_
#define SCHEDULER_DAEMON_VIEWS_H_

#include <map>
#include <string>
#include <vector>

#include "scheduler/live/cluster.h"
#include "stasis/v1/scheduler.pb.h"

namespace stasis::scheduler {

// At the time `now`, which is not before the cluster's last fact.
class Views {
 public:
  Views(const Cluster& cluster, Time now) : cluster_(cluster), now_(now) {}

  // The job is there.
  v1::QueuedJob JobOf(const std::string& name) const;
  // In order of submission.
  v1::QueueReply Queue(const v1::QueueRequest& request) const;
  // The tenant is there.
  v1::Tenant TenantOf(const std::string& name) const;
  v1::TenantsReply Tenants() const;
  // The node is there.
  v1::ClusterNode NodeOf(const std::string& name) const;
  v1::NodesReply Nodes() const;
  // Its devices and jobs.
  void Count(v1::ClusterInfoReply* reply) const;

  v1::QueueState StateOf(const Cluster::Entry& entry) const;

 private:
  std::string ReasonOf(const Cluster::Entry& entry, const Job& job) const;
  v1::QueuedJob Describe(const Cluster::Entry& entry) const;
  v1::Tenant Describe(const std::string& name, TenantId id) const;
  // By node and device: the name of the job, or "".
  using Holders = std::map<std::string, std::vector<std::string>>;
  Holders HoldersOfAll() const;
  v1::ClusterNode Describe(const Cluster::Node& node, const std::vector<std::string>& holders) const;
  void DescribeSaves(const Cluster::Node& node, v1::ClusterNode* told) const;

  const Cluster& cluster_;
  const Time now_;
};

}  // namespace stasis::scheduler

#endif  // SCHEDULER_DAEMON_VIEWS_H_
