// What policies share: who may be displaced, how much room that makes, and turning a choice of jobs into
// actions.
#ifndef SCHEDULER_PLAN_H_
#define SCHEDULER_PLAN_H_

#include <vector>

#include "scheduler/policy.h"

namespace stasis::scheduler {

class Plan {
 public:
  // Running jobs whose lease has ended since `last` may be displaced; with `any` every running job.
  Plan(const State& state, Time last, bool any = false);

  // Devices that are free or held by who may be displaced and has not been kept.
  int room() const { return room_; }
  const std::vector<JobId>& displaceable() const { return displaceable_; }
  bool fits(JobId id) const { return state_.job(id).spec.gpus <= room_; }
  // The job is to hold its devices: a displaceable one keeps what it has, a waiting one will get a place.
  // CHECKs fits().
  void Choose(JobId id);
  // Also the running job `id`, whose lease goes on, is to be displaced.
  void Reclaim(JobId id);
  // Takes devices out of the room, for a gang that is gathering them.
  void Reserve(int devices) { room_ -= devices; }

  // Pauses the displaceable that were not chosen where their devices are wanted, then starts and resumes the
  // chosen in the order of choice.
  Decision Finish() const;

 private:
  const State& state_;
  int room_ = 0;
  std::vector<JobId> displaceable_;
  std::vector<JobId> reclaimed_;
  std::vector<JobId> kept_;    // displaceable and chosen
  std::vector<JobId> chosen_;  // waiting and chosen
};

// The next moment at which a lease of a running job ends; kNever when nothing runs.
Time NextLeaseEnd(const State& state);

}  // namespace stasis::scheduler

#endif  // SCHEDULER_PLAN_H_
