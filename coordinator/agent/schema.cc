#include "coordinator/agent/schema.h"

#include "coordinator/agent/copy_table.h"
#include "coordinator/agent/handover_table.h"
#include "coordinator/agent/operation_table.h"
#include "coordinator/agent/reclaim_table.h"
#include "coordinator/agent/schedule_table.h"
#include "proto/rpc/audit.h"

namespace stasis {
namespace {

// `agent_id` names this state folder's registry for the life of it (NodeInfo.agent_id).
constexpr char kMeta[] = R"(
CREATE TABLE meta (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO meta (key, value) VALUES ('agent_id', lower(hex(randomblob(16))));
)";

}  // namespace

const std::vector<std::string>& SchemaSteps() {
  static const std::vector<std::string> steps = {
      kMeta, kOperationsSchema, kHandOverSchema, kScheduleSchema, kAuditSchema, kCopySchema, kReclaimSchema};
  return steps;
}

}  // namespace stasis
