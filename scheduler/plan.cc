#include "scheduler/plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "scheduler/defrag.h"

namespace stasis::scheduler {

Plan::Plan(const State& state, Time last, bool any) : state_(state), room_(state.devices().free()) {
  for (const JobId id : state.running()) {
    const Job& job = state.job(id);
    if (job.guest) continue;  // goes with the one whose devices it shares
    if (state.IsKept(job)) continue;
    if (!any && !state.LeaseEndedSince(job, last)) continue;
    displaceable_.push_back(id);
    room_ += job.gpus;
  }
  std::sort(displaceable_.begin(), displaceable_.end());
}

// What runs keeps what it has, also when that is another number than it asked for.
int Plan::Wants(JobId id) const {
  const Job& job = state_.job(id);
  return job.phase == JobPhase::kRunning ? job.gpus : job.spec.gpus;
}

void Plan::Choose(JobId id) {
  const Job& job = state_.job(id);
  const bool runs = job.phase == JobPhase::kRunning;
  STASIS_CHECK(fits(id));
  room_ -= Wants(id);
  (runs ? kept_ : chosen_).push_back(id);
}

void Plan::Reclaim(JobId id) {
  if (reclaimed_.empty()) early_ = chosen_.size();
  reclaimed_.push_back(id);
  room_ += state_.job(id).gpus;
}

Decision Plan::Finish() {
  Decision decision;
  Devices devices = state_.devices();
  std::vector<JobId> kept = kept_;
  std::sort(kept.begin(), kept.end());
  for (const JobId id : displaceable_) {
    if (!Contains(kept, id)) Pause(id, &devices, &decision);
  }
  const size_t early = reclaimed_.empty() ? chosen_.size() : early_;
  MakePlaces(0, early, &devices, &decision);
  for (const JobId id : reclaimed_) Pause(id, &devices, &decision);
  MakePlaces(early, chosen_.size(), &devices, &decision);
  if (!unplaced_.empty()) KeepUnwanted(&devices, &decision);
  return decision;
}

void Plan::Pause(JobId id, Devices* devices, Decision* decision) const {
  const Job& job = state_.job(id);
  if (job.packed_with != kNoJob) decision->actions.push_back({ActionKind::kPause, job.packed_with, {}});
  devices->Release(job.placement);
  decision->actions.push_back({ActionKind::kPause, id, {}});
}

void Plan::MakePlaces(size_t begin, size_t end, Devices* devices, Decision* decision) {
  for (size_t i = begin; i < end; ++i) {
    const JobId id = chosen_[i];
    const Job& job = state_.job(id);
    std::optional<Placement> place = PlaceFor(job, devices, decision);
    if (!place) {
      unplaced_.push_back(id);
      continue;
    }
    devices->Take(*place);
    const ActionKind kind = job.phase == JobPhase::kPending ? ActionKind::kStart : ActionKind::kResume;
    decision->actions.push_back({kind, id, std::move(*place)});
  }
}

std::optional<Placement> Plan::PlaceFor(const Job& job, Devices* devices, Decision* decision) {
  std::optional<Placement> place = devices->Find(job.spec.gpus, job.spec.max_nodes);
  if (place) return place;
  STASIS_CHECK(job.spec.max_nodes != 0);
  std::optional<Defragmentation> room =
      PlanRoom(state_, *devices, Movable(*decision), job.spec.gpus, job.spec.max_nodes);
  if (!room || room->cost >= job.spec.gpus * static_cast<double>(state_.settings().lease))
    return std::nullopt;
  for (const Action& action : room->actions) {
    if (action.kind != ActionKind::kResume) devices->Release(state_.job(action.job).placement);
    if (action.kind != ActionKind::kPause) devices->Take(action.to);
    decision->actions.push_back(action);
  }
  return std::move(room->place);
}

// What runs and has no part in the decision so far.
std::vector<JobId> Plan::Movable(const Decision& decision) const {
  std::vector<JobId> touched = reclaimed_;
  for (const Action& action : decision.actions) touched.push_back(action.job);
  std::sort(touched.begin(), touched.end());
  std::vector<JobId> movable;
  for (const JobId id : state_.running()) {
    if (state_.job(id).packed_with != kNoJob || state_.IsKept(state_.job(id))) continue;
    if (!Contains(touched, id)) movable.push_back(id);
  }
  std::sort(movable.begin(), movable.end());
  return movable;
}

// Who was to be paused for a job that has got no place goes on, where nobody else has the devices.
void Plan::KeepUnwanted(Devices* devices, Decision* decision) const {
  std::vector<Action>& actions = decision->actions;
  for (size_t i = 0; i < actions.size();) {
    const Job& job = state_.job(actions[i].job);
    const bool resumed = std::any_of(actions.begin(), actions.end(), [&](const Action& other) {
      return other.kind == ActionKind::kResume && other.job == actions[i].job;
    });
    if (actions[i].kind != ActionKind::kPause || resumed || job.packed_with != kNoJob ||
        !devices->IsFree(job.placement)) {
      ++i;
      continue;
    }
    devices->Take(job.placement);
    actions.erase(actions.begin() + static_cast<ptrdiff_t>(i));
  }
}

Time NextLeaseEnd(const State& state) {
  Time next = kNever;
  for (const JobId id : state.running()) next = std::min(next, state.NextLeaseEnd(state.job(id)));
  return next;
}

}  // namespace stasis::scheduler
