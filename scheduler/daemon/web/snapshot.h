// The cluster at one moment, as the page asks for it.
#ifndef SCHEDULER_DAEMON_WEB_SNAPSHOT_H_
#define SCHEDULER_DAEMON_WEB_SNAPSHOT_H_

#include <string>

#include "scheduler/daemon/core.h"

namespace stasis::scheduler {

// A JSON object of "now_ms", "info", "nodes", "tenants", "jobs", "omitted", "events": messages of
// proto/stasis/v1/scheduler.proto with the names that fields have there. Of jobs and events there are as many
// as a page can show: those that live, then those that ended last; "omitted" says how many are left out.
// Events are those after `after`.
std::string SnapshotJson(const SchedulerCore& core, uint64_t after);
// One line.
std::string EventJson(const v1::ClusterEvent& event);

}  // namespace stasis::scheduler

#endif  // SCHEDULER_DAEMON_WEB_SNAPSHOT_H_
