// The operations that an agent carries out on its own node, by the verbs of the interface.
#ifndef COORDINATOR_AGENT_KINDS_H_
#define COORDINATOR_AGENT_KINDS_H_

#include <functional>
#include <memory>
#include <string>

#include "coordinator/agent/operations.h"
#include "coordinator/node/site.h"
#include "stasis/v1/agent.pb.h"

namespace stasis {

struct KindOptions {
  Site site;
  // Of a MigrateRequest that names a node; null: such a one is refused.
  std::unique_ptr<OperationKind> node_migration;
  // Of CopyImageRequests; null: there is no such operation.
  std::unique_ptr<OperationKind> image_copy;
  // Of a RunRequest that has a schedule, once the job is there; may be empty: such a one is refused.
  std::function<Status(const std::string& job, const v1::Schedule& schedule, const Actor& actor)>
      set_schedule;
  // kind_ghost.h's SetMovedTo; may be empty.
  std::function<void(const std::string& job, const std::string& node)> set_moved_to;
};

Operations::Kinds MakeKinds(KindOptions options);

}  // namespace stasis

#endif  // COORDINATOR_AGENT_KINDS_H_
