#include "scheduler/plan.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace stasis::scheduler {

Plan::Plan(const State& state, Time last, bool any) : state_(state), room_(state.devices().free()) {
  for (const JobId id : state.running()) {
    const Job& job = state.job(id);
    if (!any && !state.LeaseEndedSince(job, last)) continue;
    displaceable_.push_back(id);
    room_ += job.gpus;
  }
  std::sort(displaceable_.begin(), displaceable_.end());
}

void Plan::Choose(JobId id) {
  const Job& job = state_.job(id);
  const bool runs = job.phase == JobPhase::kRunning;
  const int gpus = runs ? job.gpus : job.spec.gpus;
  STASIS_CHECK(gpus <= room_);
  room_ -= gpus;
  (runs ? kept_ : chosen_).push_back(id);
}

void Plan::Reclaim(JobId id) {
  reclaimed_.push_back(id);
  room_ += state_.job(id).gpus;
}

Decision Plan::Finish() const {
  Decision decision;
  Devices devices = state_.devices();
  std::vector<JobId> kept = kept_;
  std::sort(kept.begin(), kept.end());
  for (const JobId id : displaceable_) {
    if (std::binary_search(kept.begin(), kept.end(), id)) continue;
    devices.Release(state_.job(id).placement);
    decision.actions.push_back({ActionKind::kPause, id, {}});
  }
  for (const JobId id : reclaimed_) {
    devices.Release(state_.job(id).placement);
    decision.actions.push_back({ActionKind::kPause, id, {}});
  }
  for (const JobId id : chosen_) {
    const Job& job = state_.job(id);
    std::optional<Placement> place = devices.Find(job.spec.gpus);
    STASIS_CHECK(place.has_value());
    devices.Take(*place);
    const ActionKind kind = job.phase == JobPhase::kPending ? ActionKind::kStart : ActionKind::kResume;
    decision.actions.push_back({kind, id, std::move(*place)});
  }
  return decision;
}

Time NextLeaseEnd(const State& state) {
  Time next = kNever;
  for (const JobId id : state.running()) next = std::min(next, state.NextLeaseEnd(state.job(id)));
  return next;
}

}  // namespace stasis::scheduler
