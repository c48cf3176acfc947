// Gandiva: time-slicing, and what is tried on top of it because jobs' progress can be measured. Two jobs
// share devices as long as both together advance more than they would in turn; jobs that have opted in take
// devices that nobody wants and give them back; gangs that are scattered are brought together after
// departures.
//
// A job that waits gets devices, in this order: where they are free and together; where others can be moved
// together for it; from those whose turn is over; from jobs that hold more than they asked for; beside
// another job; in the queue (Gandiva, OSDI 2018, sections 3 and 4).
#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "scheduler/policies.h"
#include "scheduler/ranked.h"

namespace stasis::scheduler {
namespace {

// Together at least so much: less is not worth the trouble, and in turn they make 1.
constexpr double kProfit = 1.05;
// Jobs that keep their devices busier than this together are not tried.
constexpr double kMostBusy = 1.5;

bool Closer(const Spread& a, const Spread& b) {
  return a.switches != b.switches ? a.switches < b.switches : a.nodes < b.nodes;
}

int64_t MemoryOf(const JobSpec& spec) {
  return spec.memory_per_gpu != 0 ? spec.memory_per_gpu : spec.active_bytes_per_gpu;
}

bool Elastic(const JobSpec& spec) { return spec.min_gpus != 0 || spec.max_gpus != 0; }
int LeastGpus(const JobSpec& spec) { return spec.min_gpus != 0 ? spec.min_gpus : spec.gpus; }
int MostGpus(const JobSpec& spec) { return spec.max_gpus != 0 ? spec.max_gpus : spec.gpus; }

class Round {
 public:
  Round(const State& state, Time last) : state_(state), last_(last) {}

  Decision Decide() {
    // In turn: who has waited longest goes next, and who has run a lease goes to the end.
    decision_ = DecideByRank(state_, last_, /*preempts=*/false, [](const State& now, const Job& job) {
      return static_cast<double>(job.phase == JobPhase::kRunning ? now.now() : job.waiting_since);
    });
    PartPairs();
    // One thing at a time: what follows looks at the cluster as it is.
    if (decision_.actions.empty() && state_.waiting_count() > 0) Shrink();
    if (decision_.actions.empty() && state_.waiting_count() > 0) Pack();
    if (decision_.actions.empty() && state_.waiting_count() == 0) SpreadOut();
    return std::move(decision_);
  }

 private:
  bool Touched(JobId id) const {
    return std::any_of(decision_.actions.begin(), decision_.actions.end(),
                       [id](const Action& action) { return action.job == id; });
  }
  std::vector<JobId> Running() const {
    std::vector<JobId> running = state_.running();
    std::sort(running.begin(), running.end());
    return running;
  }
  // Who waits, the longest first.
  std::vector<JobId> Waiting() const {
    std::vector<JobId> waiting;
    for (TenantId tenant = 0; tenant < state_.settings().tenants.size(); ++tenant)
      waiting.insert(waiting.end(), state_.waiting(tenant).begin(), state_.waiting(tenant).end());
    std::erase_if(waiting, [this](JobId id) { return state_.IsKept(state_.job(id)); });
    std::sort(waiting.begin(), waiting.end(), [this](JobId a, JobId b) {
      const Job &first = state_.job(a), &other = state_.job(b);
      if (first.spec.priority != other.spec.priority) return first.spec.priority > other.spec.priority;
      return first.waiting_since != other.waiting_since ? first.waiting_since < other.waiting_since : a < b;
    });
    return waiting;
  }

  // ---- Sharing devices

  static double Together(const Job& guest, const Job& host) { return guest.rate + host.rate; }

  // Pairs that have not shown a profit are parted.
  void PartPairs() {
    for (const JobId id : Running()) {
      const Job& guest = state_.job(id);
      if (!guest.guest || Touched(id)) continue;
      const Time known = guest.packed_since + state_.settings().settle;
      if (state_.now() < known) {
        decision_.wake = std::min(decision_.wake, known);
      } else if (Together(guest, state_.job(guest.packed_with)) < kProfit) {
        decision_.actions.push_back({ActionKind::kPause, id, {}, guest.packed_with});
      }
    }
  }

  bool CanShare(const Job& guest, JobId host_id) const {
    const Job& host = state_.job(host_id);
    const bool near =
        guest.spec.max_nodes == 0 || host.placement.size() <= static_cast<size_t>(guest.spec.max_nodes);
    return near && guest.known && host.known &&
           MemoryOf(guest.spec) + MemoryOf(host.spec) <= state_.settings().device_bytes &&
           !Contains(guest.tried, host_id);
  }

  // A drained node gets nobody new, also beside others.
  bool IsUsable(const Placement& placement) const {
    return std::all_of(placement.begin(), placement.end(),
                       [this](const NodeShare& share) { return state_.devices().usable(share.node); });
  }

  // Who has devices for itself and what it asked for, by their number; the least busy first.
  std::map<int, std::vector<JobId>> Hosts() const {
    std::map<int, std::vector<JobId>> hosts;
    for (const JobId id : Running()) {
      const Job& job = state_.job(id);
      if (job.packed_with == kNoJob && job.gpus == job.spec.gpus && IsUsable(job.placement))
        hosts[job.gpus].push_back(id);
    }
    for (auto& [gpus, jobs] : hosts) {
      std::stable_sort(jobs.begin(), jobs.end(), [this](JobId a, JobId b) {
        return state_.job(a).spec.utilization < state_.job(b).spec.utilization;
      });
    }
    return hosts;
  }

  void Pack() {
    if (state_.settings().device_bytes == 0) return;
    std::map<int, std::vector<JobId>> hosts = Hosts();
    for (const JobId id : Waiting()) {
      if (hosts.empty()) return;
      const Job& guest = state_.job(id);
      const auto same = hosts.find(guest.spec.gpus);
      if (same == hosts.end()) continue;
      std::vector<JobId>& jobs = same->second;
      const auto busy = std::find_if(jobs.begin(), jobs.end(), [&](JobId host) {
        return state_.job(host).spec.utilization + guest.spec.utilization > kMostBusy;
      });
      const auto host = std::find_if(jobs.begin(), busy, [&](JobId one) { return CanShare(guest, one); });
      if (host == busy) continue;
      decision_.actions.push_back({ActionKind::kPack, id, state_.job(*host).placement, *host});
      decision_.wake = std::min(decision_.wake, state_.now() + state_.settings().settle);
      jobs.erase(host);
      if (jobs.empty()) hosts.erase(same);
    }
  }

  // ---- Growing and shrinking

  // The job that has waited longest and does not fit gets what elastic jobs can do without: those first that
  // hold most beyond what they asked for.
  void Shrink() {
    const int wanted = state_.job(Waiting().front()).spec.gpus;
    std::vector<JobId> elastic;
    for (const JobId id : Running()) {
      const Job& job = state_.job(id);
      if (job.packed_with == kNoJob && job.gpus > LeastGpus(job.spec)) elastic.push_back(id);
    }
    std::stable_sort(elastic.begin(), elastic.end(), [this](JobId a, JobId b) {
      return state_.job(a).gpus - state_.job(a).spec.gpus > state_.job(b).gpus - state_.job(b).spec.gpus;
    });
    std::vector<Action> actions;
    int room = state_.devices().free();
    for (const JobId id : elastic) {
      if (room >= wanted) break;
      const Job& job = state_.job(id);
      const int gives = std::min(wanted - room, job.gpus - LeastGpus(job.spec));
      actions.push_back({ActionKind::kResize, id, FirstOf(job.placement, job.gpus - gives)});
      room += gives;
    }
    if (room >= wanted && !actions.empty()) {
      decision_.actions = std::move(actions);
      decision_.wake = state_.now() + 1;  // the one that waits can be placed then
    }
  }

  // The first so many devices of a placement.
  static Placement FirstOf(const Placement& placement, int gpus) {
    Placement part;
    for (const NodeShare& share : placement) {
      DeviceMask taken = 0, left = share.devices;
      for (; left != 0 && gpus > 0; left &= left - 1, --gpus) taken |= left & -left;
      if (taken != 0) part.push_back({share.node, taken});
    }
    return part;
  }

  // Free devices for a job that can use more of them, on its own nodes first.
  std::optional<Placement> Grown(const Job& job) const {
    const int more = std::min(MostGpus(job.spec) - job.gpus, state_.devices().free());
    if (more <= 0) return std::nullopt;
    Devices without = state_.devices();
    without.Release(job.placement);
    return without.Find(job.gpus + more, job.spec.max_nodes);
  }

  // ---- When nobody waits

  void SpreadOut() {
    if (Unpack() || Grow()) return;
    if (std::optional<Action> move = FindMigration()) decision_.actions.push_back(std::move(*move));
  }

  // A guest gets devices of its own.
  bool Unpack() {
    for (const JobId id : Running()) {
      const Job& job = state_.job(id);
      if (!job.guest) continue;
      std::optional<Placement> place = state_.devices().Find(job.spec.gpus, job.spec.max_nodes);
      if (!place) continue;
      decision_.actions.push_back({ActionKind::kPause, id, {}});
      decision_.actions.push_back({ActionKind::kResume, id, std::move(*place)});
      return true;
    }
    return false;
  }

  bool Grow() {
    for (const JobId id : Running()) {
      const Job& job = state_.job(id);
      if (!Elastic(job.spec) || job.packed_with != kNoJob) continue;
      std::optional<Placement> place = Grown(job);
      if (!place) continue;
      decision_.actions.push_back({ActionKind::kResize, id, std::move(*place)});
      return true;
    }
    return false;
  }

  // The gang that gains most by moving: its new place is the closest that there is for so many devices.
  std::optional<Action> FindMigration() const {
    std::optional<Action> best;
    int best_saved = 0;
    for (const JobId id : state_.running()) {
      const Job& job = state_.job(id);
      const Spread now = state_.devices().SpreadOf(job.placement);
      if (job.packed_with != kNoJob || !Closer(state_.devices().BestSpread(job.gpus), now)) continue;
      Devices without = state_.devices();
      without.Release(job.placement);
      std::optional<Placement> place = without.Find(job.gpus, job.spec.max_nodes);
      if (!place) continue;
      const Spread then = without.SpreadOf(*place);
      const int saved =
          (now.switches - then.switches) * state_.settings().shape.nodes + now.nodes - then.nodes;
      if (saved <= best_saved) continue;
      best_saved = saved;
      best = Action{ActionKind::kMigrate, id, std::move(*place)};
    }
    return best;
  }

  const State& state_;
  const Time last_;
  Decision decision_;
};

class Gandiva final : public Policy {
 public:
  std::string_view name() const override { return "gandiva"; }
  Decision Decide(const State& state, Time last) override { return Round(state, last).Decide(); }
};

}  // namespace

std::unique_ptr<Policy> MakeGandiva() { return std::make_unique<Gandiva>(); }

}  // namespace stasis::scheduler
