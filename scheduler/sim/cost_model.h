// What the verbs cost a job: seconds as a line over its active bytes.
#ifndef SCHEDULER_SIM_COST_MODEL_H_
#define SCHEDULER_SIM_COST_MODEL_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "scheduler/types.h"

namespace stasis::scheduler {

// seconds = fixed + active bytes per device / bytes_per_second. Never less than 0; bytes_per_second 0: bytes
// cost nothing.
struct CostLine {
  double fixed = 0;
  double bytes_per_second = 0;
  Time Of(int64_t bytes_per_gpu) const;
};

struct CostModel {
  CostLine pause, resume, migrate, checkpoint, restart;

  // Everything free.
  static CostModel Free() { return {}; }
  // For who has measured nothing yet; the right order of magnitude and no more.
  static CostModel Default();
  // JSON: {"pause": {"fixed_s": 0.2, "bytes_per_s": 5e9}, ...}. kInvalidArgument names what is wrong.
  static Result<CostModel> FromJson(std::string_view text, const std::string& name);
  std::string ToJson() const;
};

// One measured operation of an agent.
struct CostSample {
  std::string operation;  // pause, resume, migrate, checkpoint, restart
  double bytes_per_gpu = 0, seconds = 0;
};
// CSV with columns operation, bytes_per_gpu, seconds.
Result<std::vector<CostSample>> ParseCostSamples(std::istream& text, const std::string& name);
// Least squares for each operation; one with a single size, or a slope that would be negative, gets its mean
// as the fixed part. kInvalidArgument when there is no sample of an operation.
Result<CostModel> FitCosts(const std::vector<CostSample>& samples);

// The shortest lease by which pausing and resuming at each of its ends costs no more than `budget` of the
// time; at least `least`.
Time LeaseFor(const CostModel& costs, int64_t bytes_per_gpu, double budget, Time least);

}  // namespace stasis::scheduler

#endif  // SCHEDULER_SIM_COST_MODEL_H_
