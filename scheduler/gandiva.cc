#include <algorithm>
#include <optional>
#include <utility>

#include "scheduler/policies.h"
#include "scheduler/ranked.h"

namespace stasis::scheduler {
namespace {

bool Closer(const Spread& a, const Spread& b) {
  return a.switches != b.switches ? a.switches < b.switches : a.nodes < b.nodes;
}

// The gang that gains most by moving: its new place is the closest that there is for so many devices.
std::optional<Action> FindMigration(const State& state) {
  std::optional<Action> best;
  int best_saved = 0;
  for (const JobId id : state.running()) {
    const Job& job = state.job(id);
    const Spread now = state.devices().SpreadOf(job.placement);
    if (!Closer(state.devices().BestSpread(job.gpus), now)) continue;
    Devices without = state.devices();
    without.Release(job.placement);
    std::optional<Placement> place = without.Find(job.gpus, job.spec.max_nodes);
    if (!place) continue;
    const Spread then = without.SpreadOf(*place);
    const int saved = (now.switches - then.switches) * state.settings().shape.nodes + now.nodes - then.nodes;
    if (saved <= best_saved) continue;
    best_saved = saved;
    best = Action{ActionKind::kMigrate, id, std::move(*place)};
  }
  return best;
}

class Gandiva final : public Policy {
 public:
  std::string_view name() const override { return "gandiva"; }

  Decision Decide(const State& state, Time last) override {
    // In turn: who has waited longest goes next, and who has run a lease goes to the end.
    Decision decision = DecideByRank(state, last, /*preempts=*/false, [](const State& now, const Job& job) {
      return static_cast<double>(job.phase == JobPhase::kRunning ? now.now() : job.waiting_since);
    });
    // Devices that are free and that nobody waits for: after departures.
    if (decision.actions.empty() && state.waiting_count() == 0) {
      if (std::optional<Action> move = FindMigration(state)) decision.actions.push_back(std::move(*move));
    }
    return decision;
  }
};

}  // namespace

std::unique_ptr<Policy> MakeGandiva() { return std::make_unique<Gandiva>(); }

}  // namespace stasis::scheduler
