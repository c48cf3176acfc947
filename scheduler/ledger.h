// Long-term GPU-time fairness (LTGF): what each tenant and each job has used and what it deserved.
//
// GPU-time is in device-milliseconds. With G devices, quota of tenant t: q_t = G * w_t / sum(w).
//   demand_t    = devices asked for by t's live (pending, running or paused) jobs
//   deserved_t += min(demand_t, q_t) dt;  utilized_t += devices held dt;  F_t = utilized_t / deserved_t
//   s_j         = q_t * w_j / sum(w of t's live jobs)
//   deserved_j += min(gpus_j, s_j) dt;    F_j = utilized_j / deserved_j
// (Astraea, long-term GPU-time fairness.) F is 1 where nothing was deserved.
//
// Integrals are kept as piecewise linear functions and brought forward when a rate changes, so that an event
// costs the number of its tenant's distinct job sizes and not its number of jobs. Not thread-safe.
#ifndef SCHEDULER_LEDGER_H_
#define SCHEDULER_LEDGER_H_

#include <cstddef>
#include <vector>

#include "base/status.h"
#include "scheduler/types.h"

namespace stasis::scheduler {

class Ledger {
 public:
  // `window`: how far back WindowFairness() looks. Weights are > 0.
  Ledger(int devices, const std::vector<TenantSpec>& tenants, Time window);

  // The cluster has so many devices from now on. Quotas follow; what was deserved so far stays.
  void SetDevices(Time now, int devices);
  // A tenant that comes later, with the next id.
  TenantId AddTenant(Time now, double weight);
  void SetWeight(Time now, TenantId tenant, double weight);

  // One job's account. Made by Arrive(), closed by Leave(); a copy is a snapshot.
  struct Account {
    TenantId tenant = 0;
    size_t kind = 0;  // among its tenant's distinct sizes
    double deserved_before = 0;
    double utilized = 0;
    double held = 0;
    Time since = 0;  // of `held`
  };

  Account Arrive(Time now, const JobSpec& job);
  void Leave(Time now, const JobSpec& job, Account* account);
  // The job holds `devices` from now on; of a shared one its part.
  void Hold(Time now, Account* account, double devices);

  double quota(TenantId tenant) const { return tenants_[tenant].quota; }
  int demand(TenantId tenant) const { return tenants_[tenant].demand; }
  double held(TenantId tenant) const { return tenants_[tenant].held; }
  int live_jobs(TenantId tenant) const { return tenants_[tenant].live; }

  // Of all time, in device-milliseconds.
  double Utilized(TenantId tenant, Time now) const;
  double Deserved(TenantId tenant, Time now) const;
  double JobUtilized(const Account& account, Time now) const;
  double JobDeserved(const Account& account, Time now) const;
  double JobFairness(const Account& account, Time now) const;

  struct Totals {
    double utilized = 0, deserved = 0;
    double fairness() const { return deserved > 0 ? utilized / deserved : 1; }
  };
  Totals AllTime(TenantId tenant, Time now) const { return {Utilized(tenant, now), Deserved(tenant, now)}; }
  // Over the last `window`, or since the beginning when that is shorter.
  Totals Window(TenantId tenant, Time now) const;

  // ---- As it is kept, for who stores it

  // The integral of min(gpus, q * weight / live weight) for jobs of one size and weight.
  struct Kind {
    int gpus = 1;
    double weight = 1;
    double integral = 0;
    double rate = 0;
  };
  struct Point {
    Time at = 0;
    double utilized = 0, deserved = 0;
  };
  struct Tenant {
    double weight = 1;
    double quota = 0;
    double held = 0;
    int demand = 0, live = 0;
    double live_weight = 0;
    Time at = 0;
    double utilized = 0, deserved = 0;
    std::vector<Kind> kinds;
    std::vector<Point>
        history;  // where rates changed, oldest first; the first is not after the window's beginning
  };
  // Of their histories what a window that ends at `now` or later needs.
  std::vector<Tenant> Save(Time now) const;
  // What Save() has returned, of a ledger with so many devices. kCorrupt: it cannot be.
  Status Restore(int devices, std::vector<Tenant> tenants);

 private:
  void SetQuotas(Time now);
  void Advance(Tenant& tenant, Time now);
  void Forget(Tenant& tenant, Time before) const;
  void SetRates(Tenant& tenant);
  size_t KindOf(Tenant& tenant, const JobSpec& job);
  static double DeservedRate(const Tenant& tenant);

  int devices_ = 0;
  std::vector<Tenant> tenants_;
  const Time window_;
};

// Jain's index of the values: (sum x)^2 / (n * sum x^2); 1 when all are equal or there are none.
double JainIndex(const std::vector<double>& values);

}  // namespace stasis::scheduler

#endif  // SCHEDULER_LEDGER_H_
