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
    return DecidePlaceable([&](const std::vector<JobId>& without, std::vector<JobId>* unplaced) {
      Plan plan(state, state.now());
      for (TenantId tenant = 0; tenant < state.settings().tenants.size(); ++tenant)
        Serve(state, tenant, without, plan);
      Decision decision = plan.Finish();
      *unplaced = plan.unplaced();
      return decision;
    });
  }

 private:
  static void Serve(const State& state, TenantId tenant, const std::vector<JobId>& without, Plan& plan) {
    std::vector<JobId> queue = state.waiting(tenant);
    std::erase_if(queue, [&state](JobId id) { return state.IsKept(state.job(id)); });
    std::sort(queue.begin(), queue.end(), [&state](JobId a, JobId b) {
      const JobSpec &first = state.job(a).spec, &other = state.job(b).spec;
      if (first.priority != other.priority) return first.priority > other.priority;
      return first.submit != other.submit ? first.submit < other.submit : a < b;
    });
    double held = state.ledger().held(tenant);
    for (const JobId id : queue) {
      const int gpus = state.job(id).spec.gpus;
      // A job that no quota would ever admit may have the cluster's idle devices when its tenant has no
      // other.
      const bool admitted = held + gpus <= state.ledger().quota(tenant) || held == 0;
      if (!admitted || !plan.fits(id) || Contains(without, id)) return;
      plan.Choose(id);
      held += gpus;
    }
  }
};

}  // namespace

std::unique_ptr<Policy> MakeFifo() { return std::make_unique<Fifo>(); }

}  // namespace stasis::scheduler
