#include "scheduler/ledger.h"

#include <algorithm>
#include <utility>

#include "base/status.h"

namespace stasis::scheduler {

Ledger::Ledger(int devices, const std::vector<TenantSpec>& tenants, Time window)
    : devices_(devices), tenants_(tenants.size()), window_(window) {
  for (size_t i = 0; i < tenants.size(); ++i) {
    STASIS_CHECK(tenants[i].weight > 0);
    tenants_[i].weight = tenants[i].weight;
    tenants_[i].history.push_back({});
  }
  SetQuotas(0);
}

void Ledger::SetQuotas(Time now) {
  double sum = 0;
  for (const Tenant& tenant : tenants_) sum += tenant.weight;
  for (Tenant& tenant : tenants_) {
    Advance(tenant, now);
    tenant.quota = devices_ * tenant.weight / sum;
    SetRates(tenant);
  }
}

void Ledger::SetDevices(Time now, int devices) {
  devices_ = devices;
  SetQuotas(now);
}

TenantId Ledger::AddTenant(Time now, double weight) {
  STASIS_CHECK(weight > 0);
  Tenant tenant;
  tenant.weight = weight;
  tenant.at = now;
  tenant.history = {{}, {now, 0, 0}};
  tenants_.push_back(std::move(tenant));
  SetQuotas(now);
  return static_cast<TenantId>(tenants_.size() - 1);
}

void Ledger::SetWeight(Time now, TenantId tenant, double weight) {
  STASIS_CHECK(weight > 0);
  tenants_[tenant].weight = weight;
  SetQuotas(now);
}

double Ledger::DeservedRate(const Tenant& tenant) {
  return std::min(static_cast<double>(tenant.demand), tenant.quota);
}

void Ledger::Advance(Tenant& tenant, Time now) {
  const double passed = static_cast<double>(now - tenant.at);
  if (passed == 0) return;
  tenant.utilized += tenant.held * passed;
  tenant.deserved += DeservedRate(tenant) * passed;
  for (Kind& kind : tenant.kinds) kind.integral += kind.rate * passed;
  tenant.at = now;
  tenant.history.push_back({now, tenant.utilized, tenant.deserved});
  Forget(tenant, now - window_);
}

// Now and then, so that it costs nothing per event.
void Ledger::Forget(Tenant& tenant, Time before) const {
  std::vector<Point>& history = tenant.history;
  if (history.size() < 4096 || history[history.size() / 2].at > before) return;
  history.erase(history.begin(), history.begin() + static_cast<ptrdiff_t>(history.size() / 2));
}

void Ledger::SetRates(Tenant& tenant) {
  for (Kind& kind : tenant.kinds) {
    const double share =
        tenant.live_weight > 0 ? tenant.quota * kind.weight / tenant.live_weight : tenant.quota;
    kind.rate = std::min(static_cast<double>(kind.gpus), share);
  }
}

size_t Ledger::KindOf(Tenant& tenant, const JobSpec& job) {
  for (size_t i = 0; i < tenant.kinds.size(); ++i) {
    if (tenant.kinds[i].gpus == job.gpus && tenant.kinds[i].weight == job.weight) return i;
  }
  tenant.kinds.push_back({job.gpus, job.weight, 0, 0});
  return tenant.kinds.size() - 1;
}

Ledger::Account Ledger::Arrive(Time now, const JobSpec& job) {
  Tenant& tenant = tenants_[job.tenant];
  Advance(tenant, now);
  tenant.demand += job.gpus;
  tenant.live += 1;
  tenant.live_weight += job.weight;
  Account account;
  account.tenant = job.tenant;
  account.kind = KindOf(tenant, job);
  account.deserved_before = tenant.kinds[account.kind].integral;
  account.since = now;
  SetRates(tenant);
  return account;
}

void Ledger::Leave(Time now, const JobSpec& job, Account* account) {
  Hold(now, account, 0);
  Tenant& tenant = tenants_[job.tenant];
  Advance(tenant, now);
  tenant.demand -= job.gpus;
  tenant.live -= 1;
  // Sums of weights that come and go would drift away from zero.
  tenant.live_weight = tenant.live == 0 ? 0 : tenant.live_weight - job.weight;
  SetRates(tenant);
}

void Ledger::Hold(Time now, Account* account, double devices) {
  if (devices == account->held) return;
  Tenant& tenant = tenants_[account->tenant];
  Advance(tenant, now);
  tenant.held += devices - account->held;
  account->utilized += account->held * static_cast<double>(now - account->since);
  account->held = devices;
  account->since = now;
}

double Ledger::Utilized(TenantId id, Time now) const {
  const Tenant& tenant = tenants_[id];
  return tenant.utilized + tenant.held * static_cast<double>(now - tenant.at);
}

double Ledger::Deserved(TenantId id, Time now) const {
  const Tenant& tenant = tenants_[id];
  return tenant.deserved + DeservedRate(tenant) * static_cast<double>(now - tenant.at);
}

double Ledger::JobUtilized(const Account& account, Time now) const {
  return account.utilized + account.held * static_cast<double>(now - account.since);
}

double Ledger::JobDeserved(const Account& account, Time now) const {
  const Tenant& tenant = tenants_[account.tenant];
  const Kind& kind = tenant.kinds[account.kind];
  return kind.integral + kind.rate * static_cast<double>(now - tenant.at) - account.deserved_before;
}

double Ledger::JobFairness(const Account& account, Time now) const {
  const double deserved = JobDeserved(account, now);
  return deserved > 0 ? JobUtilized(account, now) / deserved : 1;
}

Ledger::Totals Ledger::Window(TenantId id, Time now) const {
  const std::vector<Point>& history = tenants_[id].history;
  const Time begin = std::max<Time>(0, now - window_);
  const auto next = std::upper_bound(history.begin(), history.end(), begin,
                                     [](Time time, const Point& point) { return time < point.at; });
  const Point& before = *(next - 1);
  const Point after = next == history.end() ? Point{now, Utilized(id, now), Deserved(id, now)} : *next;
  Totals start{before.utilized, before.deserved};
  if (after.at > before.at) {
    const double part = static_cast<double>(begin - before.at) / static_cast<double>(after.at - before.at);
    start.utilized += (after.utilized - before.utilized) * part;
    start.deserved += (after.deserved - before.deserved) * part;
  }
  return {Utilized(id, now) - start.utilized, Deserved(id, now) - start.deserved};
}

std::vector<Ledger::Tenant> Ledger::Save(Time now) const {
  std::vector<Tenant> saved = tenants_;
  for (Tenant& tenant : saved) {
    std::vector<Point>& history = tenant.history;
    const Time begin = std::max<Time>(0, now - window_);
    const auto after = std::upper_bound(history.begin(), history.end(), begin,
                                        [](Time time, const Point& point) { return time < point.at; });
    history.erase(history.begin(), after - 1);
  }
  return saved;
}

Status Ledger::Restore(int devices, std::vector<Tenant> tenants) {
  for (Tenant& tenant : tenants) {
    std::vector<Point>& history = tenant.history;
    const bool ascends = std::is_sorted(history.begin(), history.end(),
                                        [](const Point& a, const Point& b) { return a.at < b.at; });
    if (history.empty() || !ascends || history.front().at < 0 || !(tenant.weight > 0))
      return Status(StatusCode::kCorrupt, "a tenant's account cannot be");
    // The window may be longer than that of who has saved it: what was before is not known.
    if (history.front().at > 0)
      history.insert(history.begin(), {0, history.front().utilized, history.front().deserved});
  }
  devices_ = devices;
  tenants_ = std::move(tenants);
  return Status();
}

double JainIndex(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (const double value : values) {
    sum += value;
    squares += value * value;
  }
  return squares > 0 ? sum * sum / (static_cast<double>(values.size()) * squares) : 1;
}

}  // namespace stasis::scheduler
