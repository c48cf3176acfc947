// A simulation's plots as SVG, one file each.
#ifndef SCHEDULER_SIM_PLOT_H_
#define SCHEDULER_SIM_PLOT_H_

#include <string>
#include <vector>

#include "scheduler/sim/simulator.h"

namespace stasis::scheduler {

struct NamedResult {
  std::string policy;
  const SimResult* result = nullptr;
};

// Cumulative distribution of completion times, one line a policy, on a logarithmic axis.
std::string PlotCompletionTimes(const std::vector<NamedResult>& results);
// F_t over the sliding window, one line a tenant.
std::string PlotFairness(const SimResult& result);
// Devices at work and jobs waiting.
std::string PlotUtilization(const SimResult& result, int devices);
// Who held which device within [begin, end), a colour a tenant. Of at most 256 devices.
std::string PlotGantt(const SimResult& result, const ClusterShape& shape, Time begin, Time end);

}  // namespace stasis::scheduler

#endif  // SCHEDULER_SIM_PLOT_H_
