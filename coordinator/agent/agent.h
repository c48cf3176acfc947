// All parts of the agent, put together: from the database to the listeners.
#ifndef COORDINATOR_AGENT_AGENT_H_
#define COORDINATOR_AGENT_AGENT_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/sqlite/database.h"
#include "base/worker_pool.h"
#include "coordinator/agent/config.h"
#include "coordinator/agent/fence.h"
#include "coordinator/agent/incoming.h"
#include "coordinator/agent/log_hub.h"
#include "coordinator/agent/membership.h"
#include "coordinator/agent/metrics.h"
#include "coordinator/agent/node_facts.h"
#include "coordinator/agent/operations.h"
#include "coordinator/agent/peer_service.h"
#include "coordinator/agent/progress_book.h"
#include "coordinator/agent/reclaims.h"
#include "coordinator/agent/registry.h"
#include "coordinator/agent/schedule_slot.h"
#include "coordinator/agent/service.h"
#include "coordinator/agent/watch_hub.h"
#include "proto/rpc/audit.h"
#include "proto/rpc/doors.h"
#include "proto/rpc/gate.h"
#include "proto/rpc/server.h"

namespace stasis {

class Agent {
 public:
  // Serves when it returns. kFailedPrecondition: another agent has the state folder.
  static Result<std::unique_ptr<Agent>> Start(const AgentConfig& config, const Site& site);
  ~Agent() { schedules_.Empty(); }
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;
  // Takes nothing new, lets what runs come to an end for the config's patience, ends. What the agent has
  // started runs on.
  void Stop();

  const std::vector<Endpoint>& endpoints() const { return server_->endpoints(); }
  const std::string& metrics_address() const { return metrics_address_; }  // "": none

 private:
  Agent(const AgentConfig& config, const Site& site) : config_(config), site_(site) {}
  Status Begin();
  Status BeginState();
  Status BeginOperations();
  Status BeginServer();
  Status BeginMembership();
  Operations::Kinds MakeOperationKinds();
  Status SetSchedule(const std::string& job, const v1::Schedule& rules);
  Result<std::unique_ptr<PeerLink>> ConnectTo(const std::string& address) const;
  Status EndJob(const std::string& job);

  const AgentConfig config_;
  const Site site_;

  std::string metrics_address_;

  // In the order in which they begin; they end in the other.
  Metrics metrics_;
  std::unique_ptr<Database> database_;
  std::unique_ptr<Audit> audit_;
  std::unique_ptr<Fence> fence_;
  std::unique_ptr<Doors> doors_;
  std::optional<Gate> gate_;
  std::unique_ptr<Registry> registry_;
  std::optional<NodeFacts> node_;
  ScheduleSlot schedules_;
  std::unique_ptr<Reclaims> reclaims_;
  std::unique_ptr<Operations> operations_;
  std::unique_ptr<Operations::Subscription> counted_;
  std::unique_ptr<Incoming> incoming_;
  std::optional<WorkerPool> readers_;
  std::optional<WorkerPool> writers_;
  std::optional<WatchHub> watches_;
  std::unique_ptr<LogHub> logs_;
  std::optional<ProgressBook> progress_;
  std::optional<AgentService> service_;
  std::optional<PeerService> peers_;
  std::unique_ptr<RpcServer> server_;
  std::unique_ptr<Membership> membership_;  // where it joins a cluster
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_AGENT_H_
