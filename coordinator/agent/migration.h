// The operation "migrate" to another node: the side that has the job and leads. docs/migration.md.
#ifndef COORDINATOR_AGENT_MIGRATION_H_
#define COORDINATOR_AGENT_MIGRATION_H_

#include <functional>
#include <memory>
#include <string>

#include "coordinator/agent/operations.h"
#include "coordinator/agent/peer_link.h"
#include "coordinator/agent/registry.h"
#include "coordinator/node/site.h"

namespace stasis {

struct MigrationOptions {
  Site site;
  Registry* registry = nullptr;  // outlives it
  std::string node;              // this one's name
  std::string agent_id;
  // How another agent is reached: "host:port", as the request names it.
  std::function<Result<std::unique_ptr<PeerLink>>(const std::string& node)> connect;
};

// Of MigrateRequests that name a node; KindOptions::node_migration.
std::unique_ptr<OperationKind> MakeNodeMigration(MigrationOptions options);

}  // namespace stasis

#endif  // COORDINATOR_AGENT_MIGRATION_H_
