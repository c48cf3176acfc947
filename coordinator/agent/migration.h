// The operation "migrate" to another node: the side that has the job and leads. docs/migration.md.
#ifndef COORDINATOR_AGENT_MIGRATION_H_
#define COORDINATOR_AGENT_MIGRATION_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "coordinator/agent/operations.h"
#include "coordinator/agent/peer_link.h"
#include "coordinator/agent/reclaim_table.h"
#include "coordinator/agent/registry.h"
#include "coordinator/node/site.h"
#include "stasis/v1/agent.pb.h"

namespace stasis {

struct MigrationOptions {
  Site site;
  Registry* registry = nullptr;  // outlives it
  std::string node;              // this one's name
  std::string agent_id;
  // How another agent is reached: "host:port", as the request names it.
  std::function<Result<std::unique_ptr<PeerLink>>(const std::string& node)> connect;
  // The rules by which this agent checkpoints the job and brings it back; nullopt: none. May be empty: none
  // for any job.
  std::function<std::optional<v1::Schedule>(const std::string& job)> schedule_of;
  // Sees to it that the node lets go of what was handed over: on stable storage when it returns OK.
  std::function<Status(const Reclaim&)> reclaim;
};

// Of MigrateRequests that name a node; KindOptions::node_migration.
std::unique_ptr<OperationKind> MakeNodeMigration(MigrationOptions options);

}  // namespace stasis

#endif  // COORDINATOR_AGENT_MIGRATION_H_
