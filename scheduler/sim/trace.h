// Job traces: CSV files with named columns.
#ifndef SCHEDULER_SIM_TRACE_H_
#define SCHEDULER_SIM_TRACE_H_

#include <cstddef>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "scheduler/types.h"

namespace stasis::scheduler {

// What a trace's columns are called.
//   plain    job_id, tenant, submit_s, gpus, duration_s
//   philly   timestamp (YYYY-MM-DD HH:MM:SS), duration, num_gpus, cluster
//            (Microsoft's Philly trace as derived for the Pollux artifact)
//   helios   job_id, vc, gpu_num, submit_time (YYYY-MM-DD HH:MM:SS), duration  (SenseTime's Helios)
//   alibaba  job_name, user, inst_num, plan_gpu (percent of a GPU), start_time, end_time (seconds)  (Alibaba
//   PAI 2020, tasks
//            joined with their job's user)
enum class TraceLayout { kPlain, kPhilly, kHelios, kAlibaba };
Result<TraceLayout> ParseTraceLayout(std::string_view name);

struct Trace {
  std::vector<TenantSpec> tenants;  // of the weights given, or in order of appearance with weight 1
  std::vector<JobSpec> jobs;        // in order of submission; times since the first
  size_t without_gpus = 0;          // rows left out: jobs that use no device or no time
};

// `weights`: rows `name,share` with a header; empty: every tenant that appears weighs the same.
// kInvalidArgument names the file, the line and what is wrong with it: a column that is missing, a field that
// is no number, a negative duration, a tenant without a weight.
Result<Trace> ReadTrace(const std::string& path, TraceLayout layout, const std::string& weights);
// The same of open text; `name` is for messages.
Result<Trace> ParseTrace(std::istream& text, const std::string& name, TraceLayout layout,
                         std::vector<TenantSpec> tenants);
Result<std::vector<TenantSpec>> ParseWeights(std::istream& text, const std::string& name);

}  // namespace stasis::scheduler

#endif  // SCHEDULER_SIM_TRACE_H_
