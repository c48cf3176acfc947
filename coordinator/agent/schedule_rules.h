// The arithmetic of schedules: what may be asked for, how far checkpoints are apart, which images are kept.
// Functions of their arguments only.
#ifndef COORDINATOR_AGENT_SCHEDULE_RULES_H_
#define COORDINATOR_AGENT_SCHEDULE_RULES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "stasis/v1/agent.pb.h"

namespace stasis {

// kInvalidArgument, naming the field. The name of the job is not looked at.
Status CheckSchedule(const v1::Schedule& schedule);
// Nothing is asked for: no checkpoints, no restarts.
bool HasNoRule(const v1::Schedule& schedule);
// What of a message is the user's, with the defaults where nothing was said.
v1::Schedule RulesOf(const v1::Schedule& schedule);

// Milliseconds from the start of one checkpoint to the start of the next that lose least, by Daly's estimate
// of higher order (J. T. Daly 2006, eq. 37; Young's sqrt(2 cost mtbf) is its first term). Both more than
// zero.
double SuggestedIntervalMs(double cost_ms, double mtbf_ms);

// Milliseconds that a share of `budget` (more than zero) for checkpoints needs from start to start.
double BudgetIntervalMs(double cost_ms, double budget);

struct ScheduleImage {
  std::string id;
  int64_t created_ms = 0;  // since 1970
};

// Of a schedule's images, oldest first, those that its rules do not keep. Never the newest.
std::vector<std::string> ImagesToRemove(const std::vector<ScheduleImage>& images, uint32_t keep_last,
                                        uint64_t keep_every_ms);

// Milliseconds before the restart after `failures` in a row: doubled with each one, ten minutes at most
// unless the first one is longer.
double BackoffMs(uint32_t first_ms, uint32_t failures);

}  // namespace stasis

#endif  // COORDINATOR_AGENT_SCHEDULE_RULES_H_
