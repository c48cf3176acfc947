#include <algorithm>
#include <vector>

#include "scheduler/plan.h"
#include "scheduler/policies.h"

namespace stasis::scheduler {
namespace {

class Fifo final : public Policy {
 public:
  std::string_view name() const override { return "fifo"; }

  Decision Decide(const State& state, Time) override {
    Plan plan(state, state.now());
    for (TenantId tenant = 0; tenant < state.settings().tenants.size(); ++tenant) Serve(state, tenant, plan);
    return plan.Finish();
  }

 private:
  static void Serve(const State& state, TenantId tenant, Plan& plan) {
    std::vector<JobId> queue = state.waiting(tenant);
    std::sort(queue.begin(), queue.end(), [&state](JobId a, JobId b) {
      const JobSpec &first = state.job(a).spec, &other = state.job(b).spec;
      if (first.priority != other.priority) return first.priority > other.priority;
      return first.submit != other.submit ? first.submit < other.submit : a < b;
    });
    int held = state.ledger().held(tenant);
    for (const JobId id : queue) {
      const int gpus = state.job(id).spec.gpus;
      // A job that no quota would ever admit may have the cluster's idle devices when its tenant has no
      // other.
      const bool admitted = held + gpus <= state.ledger().quota(tenant) || held == 0;
      if (!admitted || !plan.fits(id)) return;
      plan.Choose(id);
      held += gpus;
    }
  }
};

}  // namespace

std::unique_ptr<Policy> MakeFifo() { return std::make_unique<Fifo>(); }

}  // namespace stasis::scheduler
