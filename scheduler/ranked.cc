#include "scheduler/ranked.h"

#include <algorithm>
#include <tuple>
#include <vector>

namespace stasis::scheduler {

namespace {

struct Entry {
  int priority = 0;
  double rank = 0;
  Time submit = 0;
  JobId job = 0;
  bool operator<(const Entry& other) const {
    return std::tuple(-priority, rank, submit, job) <
           std::tuple(-other.priority, other.rank, other.submit, other.job);
  }
};

Entry EntryOf(const State& state, JobId id, const Rank& rank) {
  const Job& job = state.job(id);
  return {job.spec.priority, rank(state, job), job.spec.submit, id};
}

std::vector<Entry> Order(const State& state, const Plan& plan, const Rank& rank) {
  std::vector<Entry> entries;
  for (TenantId tenant = 0; tenant < state.settings().tenants.size(); ++tenant) {
    for (const JobId id : state.waiting(tenant)) {
      if (!state.IsKept(state.job(id))) entries.push_back(EntryOf(state, id, rank));
    }
  }
  for (const JobId id : plan.displaceable()) entries.push_back(EntryOf(state, id, rank));
  std::sort(entries.begin(), entries.end());
  return entries;
}

}  // namespace

Decision DecideByRank(const State& state, Time last, bool preempts, const Rank& rank) {
  if (state.waiting_count() == 0) return {};
  Decision decision = DecidePlaceable([&](const std::vector<JobId>& without, std::vector<JobId>* unplaced) {
    Plan plan(state, last, preempts);
    for (const Entry& entry : Order(state, plan, rank)) {
      if (plan.room() == 0) break;
      if (!plan.fits(entry.job) || Contains(without, entry.job)) continue;
      plan.Choose(entry.job);
    }
    Decision chosen = plan.Finish();
    *unplaced = plan.unplaced();
    return chosen;
  });
  if (!preempts) decision.wake = NextLeaseEnd(state);
  return decision;
}

}  // namespace stasis::scheduler
