// What a simulation shows: figures, as a table, CSV and JSON.
#ifndef SCHEDULER_SIM_REPORT_H_
#define SCHEDULER_SIM_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/sim/simulator.h"

namespace stasis::scheduler {

// Times in seconds, device-time in hours.
struct Figures {
  std::string policy;
  size_t jobs = 0, dropped = 0;
  double jct_mean = 0, jct_median = 0, jct_p95 = 0, jct_p99 = 0;
  double makespan = 0;     // end of the last job
  double utilization = 0;  // of all devices, while jobs are being submitted
  // F_t of the whole run, over tenants that deserved anything.
  double tenant_min = 0, tenant_mean = 0, tenant_max = 0, tenant_jain = 0;
  double tenant_sliding_min = 0;         // over full windows
  size_t jobs_fair = 0, jobs_below = 0;  // F_j in [0.95, 1.05], below 0.95
  int64_t pauses = 0, migrations = 0, packed = 0, lease_cuts = 0, node_failures = 0;
  double overhead_hours = 0, lost_hours = 0;
  int64_t events = 0, decisions = 0;
  double wall_seconds = 0;
};

Figures Summarize(const SimResult& result, const SimOptions& options);

// One column a policy.
std::string FormatTable(const std::vector<Figures>& figures);
// One row a policy.
std::string FormatCsv(const std::vector<Figures>& figures);
std::string FormatJson(const std::vector<Figures>& figures);
// One row a job: job_id, tenant, submit_s, start_s, end_s, gpus, fairness, pauses, migrations.
std::string FormatJobs(const SimResult& result);

}  // namespace stasis::scheduler

#endif  // SCHEDULER_SIM_REPORT_H_
