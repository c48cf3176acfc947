// One constructor a policy; MakePolicy() finds them by name.
#ifndef SCHEDULER_POLICIES_H_
#define SCHEDULER_POLICIES_H_

#include <memory>

#include "scheduler/policy.h"

namespace stasis::scheduler {

// Per-tenant queues in order of submission with fixed quotas, as YARN's capacity scheduler: what has started
// runs to its end, and a job that does not fit blocks those of its tenant behind it.
std::unique_ptr<Policy> MakeFifo();
// The jobs with the least remaining time, by an oracle; preempts at any time.
std::unique_ptr<Policy> MakeSrtf();
// Least attained service in two dimensions, devices and time, in discrete queues (Tiresias, 2D-LAS).
std::unique_ptr<Policy> MakeLas();
// Finish-time fairness: at the end of a lease, the jobs that are furthest behind an exclusive share of the
// cluster go first (Themis).
std::unique_ptr<Policy> MakeThemis();
// Long-term GPU-time fairness of tenants and jobs (Astraea).
std::unique_ptr<Policy> MakeAstraea();
// Time-slicing in turn, and migration of scattered gangs to where they lie closer together (Gandiva).
std::unique_ptr<Policy> MakeGandiva();

}  // namespace stasis::scheduler

#endif  // SCHEDULER_POLICIES_H_
