// What an order is for agents.
#ifndef SCHEDULER_DAEMON_STEPS_H_
#define SCHEDULER_DAEMON_STEPS_H_

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "scheduler/daemon/agent_link.h"
#include "scheduler/live/cluster.h"
#include "stasis/v1/operation.pb.h"

namespace stasis::scheduler {

struct Step {
  std::string node;  // whose agent is asked
  AgentRequest request;
  std::string key;        // of this step, within the order; "": its main one
  bool may_fail = false;  // what it does was done before, or is not missed
  bool comes = false;     // of the first by which the job comes to its order's target from elsewhere
  bool clears = false;  // what was given up of the job there; nothing is done to somebody else's of its name
};

struct StepSettings {
  Time checkpoint_interval = 0;  // of jobs that do not say; 0: none
  // Where other agents reach the one of a node.
  std::function<std::string(const std::string& node)> peer_address;
};

// In order; nothing for an order that is not there any more. The same for the same facts.
std::vector<Step> StepsOf(const Cluster& cluster, const Order& order, const StepSettings& settings);
// Whether a pause of that order makes an image of the job: its node is to be empty.
bool PausesAsImage(const Cluster& cluster, const Order& order);
// The schedule that the job has wherever it runs; without any rule where it wants none.
v1::Schedule ScheduleOf(const JobRequest& request, const StepSettings& settings);

const std::string& JobOf(const AgentRequest& request);
const char* VerbOf(const AgentRequest& request);
void SetChange(const v1::Change& change, AgentRequest* request);
// Of an operation that has ended: OK, or why it has failed.
Status OutcomeOf(const v1::Operation& operation);

}  // namespace stasis::scheduler

#endif  // SCHEDULER_DAEMON_STEPS_H_
