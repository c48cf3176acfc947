// A scheduling policy: a pure function of the cluster's state.
#ifndef SCHEDULER_POLICY_H_
#define SCHEDULER_POLICY_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "scheduler/state.h"
#include "scheduler/types.h"

namespace stasis::scheduler {

struct Decision {
  std::vector<Action> actions;
  // When to ask again although nothing has happened by then; kNever: only when something does.
  Time wake = kNever;
};

// Decides; does no I/O, reads no clock, keeps no thread. The same state gives the same decision.
class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  // `last`: when this policy decided before (-1 at first): leases that ended since then are up for decision.
  virtual Decision Decide(const State& state, Time last) = 0;
};

// By its name in policies.cc. kInvalidArgument names all of them.
Result<std::unique_ptr<Policy>> MakePolicy(std::string_view name);
const std::vector<std::string_view>& PolicyNames();
// "fifo, srtf, ...", for people.
std::string PolicyList();

}  // namespace stasis::scheduler

#endif  // SCHEDULER_POLICY_H_
