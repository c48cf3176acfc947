// A discrete-event simulation of one policy over one trace.
#ifndef SCHEDULER_SIM_SIMULATOR_H_
#define SCHEDULER_SIM_SIMULATOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "scheduler/policy.h"
#include "scheduler/sim/cost_model.h"
#include "scheduler/sim/trace.h"
#include "scheduler/state.h"

namespace stasis::scheduler {

struct Failures {
  Time mean_time_between = 0;  // of one node; 0: nodes do not fail
  Time repair = 3600 * kSecond;
  // What a job loses is at most this; where nodes fail, each of its images costs CostModel::checkpoint.
  Time checkpoint_interval = 1800 * kSecond;
  uint64_t seed = 1;
};

// What a trace does not tell of jobs, drawn by a seed.
struct Habits {
  // How busy jobs keep their devices: evenly between the two. Two that share get what both want as long as
  // that is no more than there is, else equal parts of it by what they want; `sharing_loss` of it is lost.
  double least_utilization = 1, most_utilization = 1;
  double sharing_loss = 0.05;
  // So large a part of the jobs runs on half or twice as many devices, too.
  double elastic = 0;
  uint64_t seed = 1;
};

struct SimOptions {
  ClusterShape shape;
  std::string policy = "astraea";
  Time lease = 900 * kSecond;
  // Per job the shortest lease that keeps pausing under this part of its time, at least `least_lease`; 0:
  // `lease` for all.
  double lease_budget = 0;
  Time least_lease = 60 * kSecond;
  CostModel costs;
  int64_t active_bytes_per_gpu = 4'000'000'000;
  bool few_nodes = false;           // each gang runs on as few nodes as can hold it, or waits
  Time tick = 0;                    // events take effect at multiples of it; 0: when they happen
  bool lose_running_lease = false;  // a job that is paused within its lease loses what it did in it
  int64_t device_bytes = 0;         // memory of a device; 0: none is shared
  Habits habits;
  Failures failures;
  Time fairness_window = 24 * 3600 * kSecond;  // of the sliding figures
  Time sample = 60 * kSecond;                  // how often sliding fairness is looked at
};

// What one job held, for plots.
struct Span {
  JobId job = 0;
  Time begin = 0, end = 0;
  Placement placement;
};

struct Sample {
  Time at = 0;
  int busy = 0, waiting = 0;
  std::vector<double> fairness;  // of each tenant over the window; NaN where it deserved next to nothing
};

struct SimResult {
  std::vector<TenantSpec> tenants;
  std::vector<Job> jobs;
  std::vector<Ledger::Totals> all_time;  // by tenant, to the end
  std::vector<Sample> samples;
  std::vector<Span> spans;
  size_t dropped = 0;  // larger than the cluster
  Time end = 0, last_submit = 0;
  double busy = 0;      // device-milliseconds up to last_submit
  double overhead = 0;  // device-milliseconds held without progress
  double lost = 0;      // device-milliseconds of work done twice
  int64_t events = 0, decisions = 0, lease_cuts = 0, node_failures = 0, packed = 0;
  double wall_seconds = 0;
};

// kInvalidArgument for options that make no sense. Deterministic: the same trace and options give the same
// result, `wall_seconds` aside.
Result<SimResult> Simulate(const Trace& trace, const SimOptions& options);

}  // namespace stasis::scheduler

#endif  // SCHEDULER_SIM_SIMULATOR_H_
