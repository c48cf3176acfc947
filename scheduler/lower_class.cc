// Whose lease is cut for a job of a higher class.
#include <algorithm>
#include <map>

#include "scheduler/plan.h"

namespace stasis::scheduler {
namespace {

int DevicesOf(const State& state, const std::vector<JobId>& jobs) {
  int devices = 0;
  for (const JobId id : jobs) devices += state.job(id).gpus;
  return devices;
}

}  // namespace

bool Plan::MayBeCut(const Job& victim, const Job& taker, JobId id) const {
  return victim.spec.priority < taker.spec.priority && !state_.IsKept(victim) &&
         victim.packed_with == kNoJob && !Contains(displaceable_, id) &&
         std::find(reclaimed_.begin(), reclaimed_.end(), id) == reclaimed_.end();
}

// The lowest class first, in it who has begun last, and nobody who is not needed.
std::vector<JobId> Plan::Fewest(std::vector<JobId> victims, int wanted) const {
  std::sort(victims.begin(), victims.end(), [this](JobId a, JobId b) {
    const Job &first = state_.job(a), &other = state_.job(b);
    if (first.spec.priority != other.spec.priority) return first.spec.priority < other.spec.priority;
    return first.lease_end != other.lease_end ? first.lease_end > other.lease_end : a < b;
  });
  std::vector<JobId> taken;
  for (auto next = victims.begin(); next != victims.end() && wanted > 0; ++next) {
    taken.push_back(*next);
    wanted -= state_.job(*next).gpus;
  }
  for (size_t i = 0; i < taken.size();) {
    const int gpus = state_.job(taken[i]).gpus;
    if (wanted + gpus > 0) {
      ++i;
      continue;
    }
    wanted += gpus;
    taken.erase(taken.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return wanted > 0 ? std::vector<JobId>() : taken;
}

std::vector<JobId> Plan::LowerClasses(JobId id) const {
  const Job& taker = state_.job(id);
  std::vector<JobId> all;
  std::map<NodeId, std::vector<JobId>> by_node;
  for (const JobId other : state_.running()) {
    const Job& victim = state_.job(other);
    if (!MayBeCut(victim, taker, other)) continue;
    all.push_back(other);
    if (victim.placement.size() == 1) by_node[victim.placement.front().node].push_back(other);
  }
  if (taker.spec.max_nodes != 1) return Fewest(std::move(all), taker.spec.gpus - room_);
  std::vector<JobId> best;
  for (const auto& [node, victims] : by_node) {
    if (!state_.devices().usable(node)) continue;
    int free = state_.devices().FreeOn(node);
    for (const JobId leaving : displaceable_) {
      const Placement& place = state_.job(leaving).placement;
      const bool kept = std::find(kept_.begin(), kept_.end(), leaving) != kept_.end();
      if (!kept && place.size() == 1 && place.front().node == node) free += state_.job(leaving).gpus;
    }
    std::vector<JobId> fewest = Fewest(victims, taker.spec.gpus - free);
    if (room_ + DevicesOf(state_, fewest) < taker.spec.gpus) continue;
    if (fewest.empty()) continue;
    if (best.empty() || DevicesOf(state_, fewest) < DevicesOf(state_, best)) best = std::move(fewest);
  }
  return best;
}

}  // namespace stasis::scheduler
