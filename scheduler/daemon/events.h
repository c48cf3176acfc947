// What people are told of a fact.
#ifndef SCHEDULER_DAEMON_EVENTS_H_
#define SCHEDULER_DAEMON_EVENTS_H_

#include <optional>

#include "scheduler/live/cluster.h"
#include "stasis/v1/scheduler.pb.h"

namespace stasis::scheduler {

// `before`: the cluster that has not taken the fact yet. Number and time are the caller's to set. Nothing:
// the fact tells people nothing.
std::optional<v1::ClusterEvent> EventOf(const Cluster& before, const Fact& fact);

}  // namespace stasis::scheduler

#endif  // SCHEDULER_DAEMON_EVENTS_H_
