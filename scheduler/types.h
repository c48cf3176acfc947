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
inline constexpr JobId kNoJob = std::numeric_limits<JobId>::max();
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
  int64_t memory_per_gpu = 0;  // that it may come to need of each device; 0: active_bytes_per_gpu
  int max_nodes = 0;           // its gang runs on no more of them; 0: on any number
  // A job that has opted in runs on as few as min_gpus and as many as max_gpus devices; 0: on `gpus` only.
  int min_gpus = 0, max_gpus = 0;
  // How busy it keeps its devices when it has them for itself, 0 to 1, as measured or told. A hint: which
  // jobs are tried on shared devices first.
  double utilization = 1;
  Time lease = 0;  // its own lease term, from what pausing it costs; 0: the cluster's
};

enum class ActionKind : uint8_t {
  kStart,
  kPause,
  kResume,
  kMigrate,
  kPack,    // a job that waits runs on the devices of the running job `with`, beside it
  kResize,  // a running job goes on with another number of devices
};

// One step of a decision. Actions are carried out in their order: what a pause frees a later start may take.
struct Action {
  ActionKind kind = ActionKind::kStart;
  JobId job = 0;
  Placement to;         // empty for a pause; of kPack: where `with` is
  JobId with = kNoJob;  // of a pause: the two have shared devices, and it did not pay
};

}  // namespace stasis::scheduler

#endif  // SCHEDULER_TYPES_H_
