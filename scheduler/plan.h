// What policies share: who may be displaced, how much room that makes, and turning a choice of jobs into
// actions.
#ifndef SCHEDULER_PLAN_H_
#define SCHEDULER_PLAN_H_

#include <algorithm>
#include <optional>
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
  bool fits(JobId id) const { return Wants(id) <= room_; }
  // The job is to hold its devices: a displaceable one keeps what it has, a waiting one will get a place.
  // CHECKs fits().
  void Choose(JobId id);
  // Also the running job `id`, whose lease goes on, is to be displaced.
  void Reclaim(JobId id);
  // Running jobs of lower classes within their leases whose devices the job `id`, which waits, needs to find
  // a place, as few as can be; empty where that is not enough, or where it needs none of them.
  std::vector<JobId> LowerClasses(JobId id) const;
  // Takes devices out of the room, for a gang that is gathering them.
  void Reserve(int devices) { room_ -= devices; }

  // Pauses the displaceable that were not chosen where their devices are wanted, then starts and resumes the
  // chosen in the order of choice; those that were chosen before the first Reclaim() get none of the devices
  // that were reclaimed, which are another's. Where a gang that wants few nodes finds no place although there
  // is room, other jobs are moved together for it (scheduler/defrag.h) if that costs less than a lease of the
  // gang.
  Decision Finish();
  // The chosen that have got no place even so.
  const std::vector<JobId>& unplaced() const { return unplaced_; }

 private:
  int Wants(JobId id) const;
  void Pause(JobId id, Devices* devices, Decision* decision) const;
  // Of the chosen from `begin` to `end`.
  void MakePlaces(size_t begin, size_t end, Devices* devices, Decision* decision);
  std::optional<Placement> PlaceFor(const Job& job, Devices* devices, Decision* decision);
  bool MayBeCut(const Job& victim, const Job& taker, JobId id) const;
  std::vector<JobId> Fewest(std::vector<JobId> victims, int wanted) const;
  std::vector<JobId> Movable(const Decision& decision) const;
  void KeepUnwanted(Devices* devices, Decision* decision) const;

  const State& state_;
  int room_ = 0;
  std::vector<JobId> displaceable_;
  std::vector<JobId> reclaimed_;
  size_t early_ = 0;           // of the chosen: so many before the first was reclaimed
  std::vector<JobId> kept_;    // displaceable and chosen
  std::vector<JobId> chosen_;  // waiting and chosen
  std::vector<JobId> unplaced_;
};

inline bool Contains(const std::vector<JobId>& sorted, JobId id) {
  return std::binary_search(sorted.begin(), sorted.end(), id);
}

// A policy's choice, made again without those that got no place: what they were to have goes to others.
// `choose` chooses for a fresh plan and looks at no job of `without`, which is sorted.
template <typename Choose>
Decision DecidePlaceable(Choose choose) {
  constexpr int kMaxRounds = 32;
  std::vector<JobId> without;
  for (int round = 1;; ++round) {
    std::vector<JobId> unplaced;
    Decision decision = choose(without, &unplaced);
    if (unplaced.empty() || round == kMaxRounds) return decision;
    without.insert(without.end(), unplaced.begin(), unplaced.end());
    std::sort(without.begin(), without.end());
  }
}

// The next moment at which a lease of a running job ends; kNever when nothing runs.
Time NextLeaseEnd(const State& state);

}  // namespace stasis::scheduler

#endif  // SCHEDULER_PLAN_H_
