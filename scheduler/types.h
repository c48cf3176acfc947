// What jobs, tenants and decisions are made of. Plain values; nothing here knows a clock, a socket or a
// driver.
#ifndef SCHEDULER_TYPES_H_
#define SCHEDULER_TYPES_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace stasis::scheduler {

// Milliseconds since a moment that the caller has chosen; never of a wall clock inside of a policy.
using Time = int64_t;
inline constexpr Time kSecond = 1000;
inline constexpr Time kNever = std::numeric_limits<Time>::max();

using JobId = uint32_t;
using TenantId = uint32_t;
using NodeId = uint32_t;

// Devices of one node as a bit mask.
using DeviceMask = uint64_t;
inline constexpr unsigned kMaxDevicesPerNode = 64;

struct NodeShare {
  NodeId node = 0;
  DeviceMask devices = 0;
};
// The devices of a gang, in order of nodes, each node once.
using Placement = std::vector<NodeShare>;

struct TenantSpec {
  std::string name;
  double weight = 1;  // > 0; quotas go by weights
};

struct JobSpec {
  std::string name;
  TenantId tenant = 0;
  int gpus = 1;
  Time submit = 0;
  // Run time on its GPUs, consolidated and undisturbed. Only the oracle policies and the simulator look at
  // it.
  Time duration = 0;
  int priority = 0;   // a higher class preempts lower ones within their lease
  double weight = 1;  // among its tenant's jobs
  int64_t active_bytes_per_gpu = 0;
  int max_nodes = 0;  // its gang runs on no more of them; 0: on any number
  Time lease = 0;     // its own lease term, from what pausing it costs; 0: the cluster's
};

enum class ActionKind : uint8_t { kStart, kPause, kResume, kMigrate };

// One step of a decision. Actions are carried out in their order: what a pause frees a later start may take.
struct Action {
  ActionKind kind = ActionKind::kStart;
  JobId job = 0;
  Placement to;  // empty for a pause
};

}  // namespace stasis::scheduler

#endif  // SCHEDULER_TYPES_H_
