// Astraea: long-term GPU-time fairness in two phases. The tenant that lags most behind what it deserved is
// served first, and of its jobs the one that lags most; what runs keeps its devices until its lease ends.
//
// Where nobody lags the definition leaves the order open. Then a tenant's past surplus does not count, and of
// jobs that have had their share the one that has had the least GPU-time goes first, so that the many short
// jobs do not wait for the few long ones (as in Tiresias' LAS).
//
// A lease is cut only by a job of a higher class. Devices beyond a tenant's quota are borrowed, not leased:
// they go back when a tenant that is within its quota wants them, those first whose run began last.
#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "scheduler/plan.h"
#include "scheduler/policies.h"

namespace stasis::scheduler {
namespace {

// A job that has had so much of what it deserved is not served for fairness' sake. Above 1, because it falls
// behind again while it waits for its next turn.
constexpr double kSatisfied = 1.24;

struct Candidate {
  int priority = 0;
  double fairness = 0;  // at most kSatisfied
  double attained = 0;  // device-milliseconds
  Time submit = 0;
  JobId job = 0;
};

// Whether `a` is served after `b`: the order of the heaps, whose first is served first.
bool ServedLater(const Candidate& a, const Candidate& b) {
  if (a.priority != b.priority) return a.priority < b.priority;
  if (a.fairness != b.fairness) return a.fairness > b.fairness;
  if (a.attained != b.attained) return a.attained > b.attained;
  if (a.submit != b.submit) return a.submit > b.submit;
  return a.job > b.job;
}

// A tenant while a decision is made: what it will have used and deserved at the end of the coming lease.
struct Claim {
  double utilized = 0, deserved = 0;
  double held = 0;              // without what may be displaced and has not been chosen
  std::vector<Candidate> heap;  // its jobs that wait or may be displaced
  double fairness() const { return deserved > 0 ? std::min(1.0, utilized / deserved) : 1; }
  void Pop() {
    std::pop_heap(heap.begin(), heap.end(), ServedLater);
    heap.pop_back();
  }
};

// One decision.
class Round {
 public:
  // Nothing is done for the jobs of `without`, which is sorted. `takes_back`: what was lent is.
  Round(const State& state, Time last, const std::vector<JobId>& without, bool takes_back)
      : state_(state), last_(last), without_(without), takes_back_(takes_back), plan_(state, last) {}

  Decision Decide(std::vector<JobId>* unplaced) {
    GatherClaims();
    ServeStarving();
    while (Claim* claim = Neediest(/*within_quota=*/false)) {
      const JobId id = claim->heap.front().job;
      claim->Pop();
      if (plan_.fits(id)) {
        Choose(id);
      } else {
        passed_.push_back(id);
      }
    }
    CutLeases();
    if (takes_back_) TakeBack();
    Decision decision = plan_.Finish();
    decision.wake = NextLeaseEnd(state_);
    *unplaced = plan_.unplaced();
    return decision;
  }

 private:
  Claim& ClaimOf(JobId id) { return claims_[state_.job(id).spec.tenant]; }
  double Lease() const { return static_cast<double>(state_.settings().lease); }

  void GatherClaims() {
    claims_.resize(state_.settings().tenants.size());
    for (TenantId tenant = 0; tenant < claims_.size(); ++tenant) {
      Claim& claim = claims_[tenant];
      const Ledger& ledger = state_.ledger();
      const Ledger::Totals window = ledger.Window(tenant, state_.now());
      claim.held = ledger.held(tenant);
      claim.utilized = window.utilized + claim.held * Lease();
      claim.deserved =
          window.deserved + std::min<double>(ledger.demand(tenant), ledger.quota(tenant)) * Lease();
      for (const JobId id : state_.waiting(tenant)) {
        if (Contains(without_, id) || state_.IsKept(state_.job(id))) continue;
        claim.heap.push_back(CandidateOf(id));
      }
    }
    for (const JobId id : plan_.displaceable()) {
      Claim& claim = ClaimOf(id);
      claim.held -= state_.job(id).gpus;
      claim.utilized -= state_.job(id).gpus * Lease();
      claim.heap.push_back(CandidateOf(id));
    }
    for (Claim& claim : claims_) std::make_heap(claim.heap.begin(), claim.heap.end(), ServedLater);
  }

  Candidate CandidateOf(JobId id) const {
    const Job& job = state_.job(id);
    Candidate candidate{job.spec.priority, 0, 0, job.spec.submit, id};
    // What has just come has deserved nothing yet, and is no less in need for it.
    if (job.first_start == kNever) return candidate;
    candidate.attained = state_.ledger().JobUtilized(job.account, state_.now());
    candidate.fairness = std::min(kSatisfied, state_.ledger().JobFairness(job.account, state_.now()));
    return candidate;
  }

  // Jobs that have waited too long come before all others, the longest first. What does not fit yet gathers
  // the devices whose leases end, and nobody else gets them meanwhile.
  void ServeStarving() {
    std::vector<std::pair<Time, JobId>> starving;
    for (TenantId tenant = 0; tenant < claims_.size(); ++tenant) {
      for (const JobId id : state_.waiting(tenant)) {
        const Time since = state_.job(id).waiting_since;
        if (Contains(without_, id) || state_.IsKept(state_.job(id))) continue;
        if (state_.now() - since >= state_.settings().starvation) starving.emplace_back(since, id);
      }
    }
    std::sort(starving.begin(), starving.end());
    for (const auto& [since, id] : starving) {
      if (!plan_.fits(id)) return plan_.Reserve(plan_.room());
      Remove(id);
      Choose(id);
    }
  }

  void Remove(JobId id) {
    std::vector<Candidate>& heap = ClaimOf(id).heap;
    std::erase_if(heap, [id](const Candidate& candidate) { return candidate.job == id; });
    std::make_heap(heap.begin(), heap.end(), ServedLater);
  }

  void Choose(JobId id) {
    Claim& claim = ClaimOf(id);
    const int gpus = state_.job(id).spec.gpus;
    plan_.Choose(id);
    claim.held += gpus;
    claim.utilized += gpus * Lease();
  }

  bool WithinQuota(TenantId tenant, JobId id) const {
    return claims_[tenant].held + state_.job(id).spec.gpus <= state_.ledger().quota(tenant);
  }

  // The tenant to be served next: by its job's class, then by its fairness, then by its job. Null when none
  // has a job left.
  Claim* Neediest(bool within_quota) {
    Claim* neediest = nullptr;
    for (TenantId tenant = 0; tenant < claims_.size(); ++tenant) {
      Claim& claim = claims_[tenant];
      while (within_quota && !claim.heap.empty() && !WithinQuota(tenant, claim.heap.front().job)) claim.Pop();
      if (claim.heap.empty()) continue;
      if (neediest == nullptr || Before(claim, *neediest)) neediest = &claim;
    }
    return neediest;
  }
  static bool Before(const Claim& a, const Claim& b) {
    const Candidate &first = a.heap.front(), &other = b.heap.front();
    if (first.priority != other.priority) return first.priority > other.priority;
    if (a.fairness() != b.fairness()) return a.fairness() < b.fairness();
    return ServedLater(other, first);
  }

  // ---- Higher classes take what they need, and what was lent goes back.

  // Those that did not fit, or have found no place, and belong to a higher class than somebody who runs.
  void CutLeases() {
    std::vector<JobId> waiting = passed_;
    waiting.insert(waiting.end(), without_.begin(), without_.end());
    std::erase_if(waiting, [this](JobId id) {
      return state_.job(id).phase == JobPhase::kRunning || state_.job(id).phase == JobPhase::kDone;
    });
    std::sort(waiting.begin(), waiting.end(), [this](JobId a, JobId b) {
      const JobSpec &first = state_.job(a).spec, &other = state_.job(b).spec;
      if (first.priority != other.priority) return first.priority > other.priority;
      return first.submit != other.submit ? first.submit < other.submit : a < b;
    });
    const int lowest = LowestClass();
    for (const JobId id : waiting) {
      if (state_.job(id).spec.priority <= lowest) break;
      const std::vector<JobId> victims = plan_.LowerClasses(id);
      if (victims.empty()) continue;
      for (const JobId victim : victims) {
        plan_.Reclaim(victim);
        ClaimOf(victim).held -= state_.job(victim).gpus;
      }
      cut_.insert(cut_.end(), victims.begin(), victims.end());
      chosen_.push_back(id);
      Choose(id);
    }
  }

  int LowestClass() const {
    int lowest = std::numeric_limits<int>::max();
    for (const JobId id : state_.running()) lowest = std::min(lowest, state_.job(id).spec.priority);
    return lowest;
  }
  static bool Has(const std::vector<JobId>& jobs, JobId id) {
    return std::find(jobs.begin(), jobs.end(), id) != jobs.end();
  }

  void TakeBack() {
    for (const JobId id : passed_) {
      if (state_.job(id).phase == JobPhase::kRunning || Has(chosen_, id)) continue;
      ClaimOf(id).heap.push_back(CandidateOf(id));
    }
    for (Claim& claim : claims_) std::make_heap(claim.heap.begin(), claim.heap.end(), ServedLater);
    ListVictims();
    int too_many = state_.settings().shape.total() + 1;  // so many devices cannot be had any more
    while (Claim* claim = Neediest(/*within_quota=*/true)) {
      const JobId id = claim->heap.front().job;
      claim->Pop();
      if (state_.job(id).spec.gpus >= too_many) continue;
      if (!MakeRoom(id)) {
        too_many = state_.job(id).spec.gpus;
        continue;
      }
      Choose(id);
    }
  }

  void ListVictims() {
    for (const JobId id : state_.running()) {
      if (state_.IsKept(state_.job(id))) continue;
      if (!state_.LeaseEndedSince(state_.job(id), last_) && !Has(cut_, id)) victims_.push_back(id);
    }
    std::sort(victims_.begin(), victims_.end(), [this](JobId a, JobId b) {
      const Time begun_a = state_.job(a).lease_end, begun_b = state_.job(b).lease_end;
      return begun_a != begun_b ? begun_a > begun_b : a < b;
    });
  }

  bool Lent(JobId id, int given_back) const {
    const Job& job = state_.job(id);
    const TenantId tenant = job.spec.tenant;
    return claims_[tenant].held - given_back - job.gpus >= state_.ledger().quota(tenant);
  }

  // Takes devices back until `id` fits; none when that cannot be had.
  bool MakeRoom(JobId id) {
    std::vector<int> given_back(claims_.size());
    std::vector<size_t> taken;
    int room = plan_.room();
    const int wanted = state_.job(id).spec.gpus;
    for (size_t i = 0; i < victims_.size() && room < wanted; ++i) {
      const Job& victim = state_.job(victims_[i]);
      if (victim.spec.priority > state_.job(id).spec.priority) continue;
      if (!Lent(victims_[i], given_back[victim.spec.tenant])) continue;
      given_back[victim.spec.tenant] += victim.gpus;
      room += victim.gpus;
      taken.push_back(i);
    }
    if (room < wanted) return false;
    for (auto i = taken.rbegin(); i != taken.rend(); ++i) {
      const JobId victim = victims_[*i];
      plan_.Reclaim(victim);
      ClaimOf(victim).held -= state_.job(victim).gpus;
      victims_.erase(victims_.begin() + static_cast<ptrdiff_t>(*i));
    }
    return true;
  }

  const State& state_;
  const Time last_;
  const std::vector<JobId>& without_;
  const bool takes_back_;
  Plan plan_;
  std::vector<Claim> claims_;  // by tenant
  std::vector<JobId> passed_;  // did not fit
  std::vector<JobId> victims_;
  std::vector<JobId> chosen_, cut_;  // by CutLeases()
};

class Astraea final : public Policy {
 public:
  std::string_view name() const override { return "astraea"; }
  Decision Decide(const State& state, Time last) override {
    if (state.waiting_count() == 0) return {};
    std::vector<JobId> passed_over, left;
    Decision decision = DecidePlaceable([&](const std::vector<JobId>& without, std::vector<JobId>* unplaced) {
      Decision chosen = Round(state, last, without, /*takes_back=*/true).Decide(unplaced);
      passed_over = without;
      left = *unplaced;
      return chosen;
    });
    // A lease is not cut for somebody who may get no place even so.
    if (!left.empty()) decision = Round(state, last, passed_over, /*takes_back=*/false).Decide(&left);
    return decision;
  }
};

}  // namespace

std::unique_ptr<Policy> MakeAstraea() { return std::make_unique<Astraea>(); }

}  // namespace stasis::scheduler
