// Checkpoints that nobody has to ask for, and jobs that come back after failures: docs/schedules.md.
#ifndef COORDINATOR_AGENT_SCHEDULES_H_
#define COORDINATOR_AGENT_SCHEDULES_H_

#include <memory>
#include <string>
#include <vector>

#include "base/sqlite/database.h"
#include "base/status.h"
#include "coordinator/agent/operations.h"
#include "coordinator/agent/registry.h"
#include "coordinator/node/layout.h"
#include "stasis/v1/agent.pb.h"

namespace stasis {

struct ScheduleOptions {
  Folders folders;
  double default_mtbf_ms = 0;  // of this node, for what is only suggested; 0: not known
};

// Thread-safe. Has two threads: one that decides, one that removes old images.
class Schedules {
 public:
  // Takes up what is on record. All that is given must outlive it: it ends before the operations are stopped.
  static Result<std::unique_ptr<Schedules>> Start(Database& database, Registry& registry,
                                                  Operations& operations, const ScheduleOptions& options);
  virtual ~Schedules() = default;

  // As ScheduleBook. Set() waits for the disk, List() does not.
  virtual Result<v1::Schedule> Set(const v1::Schedule& schedule) = 0;
  virtual std::vector<v1::Schedule> List(const std::string& job) const = 0;
};

}  // namespace stasis

#endif  // COORDINATOR_AGENT_SCHEDULES_H_
