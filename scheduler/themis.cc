#include <algorithm>

#include "scheduler/policies.h"
#include "scheduler/ranked.h"

namespace stasis::scheduler {
namespace {

// rho = T_shared / T_ideal: how long the job takes in all if it gets its devices from now on, to how long it
// would take with its share of the cluster alone.
double Rho(const State& state, const Job& job) {
  const Ledger& ledger = state.ledger();
  const double duration = static_cast<double>(job.spec.duration);
  const double elapsed = static_cast<double>(state.now() - job.spec.submit);
  const double remaining = duration - static_cast<double>(state.ProgressOf(job));
  const double share = ledger.quota(job.spec.tenant) / std::max(1, ledger.live_jobs(job.spec.tenant));
  const double ideal = duration * std::max(1.0, job.spec.gpus / share);
  return (elapsed + remaining) / ideal;
}

class Themis final : public Policy {
 public:
  std::string_view name() const override { return "themis"; }
  Decision Decide(const State& state, Time last) override {
    return DecideByRank(state, last, /*preempts=*/false,
                        [](const State& now, const Job& job) { return -Rho(now, job); });
  }
};

}  // namespace

std::unique_ptr<Policy> MakeThemis() { return std::make_unique<Themis>(); }

}  // namespace stasis::scheduler
