// Policies that are nothing but an order: everything that waits or may be displaced, served in that order
// while there is room.
#ifndef SCHEDULER_RANKED_H_
#define SCHEDULER_RANKED_H_

#include <functional>

#include "scheduler/plan.h"

namespace stasis::scheduler {

// The lower, the earlier; ties by submission, then by id. A job's class comes before all of it.
using Rank = std::function<double(const State&, const Job&)>;

// `preempts`: running jobs may be displaced at any time, not only when their lease has ended.
Decision DecideByRank(const State& state, Time last, bool preempts, const Rank& rank);

}  // namespace stasis::scheduler

#endif  // SCHEDULER_RANKED_H_
