#include "scheduler/state.h"

#include <algorithm>
#include <utility>

namespace stasis::scheduler {

namespace {

// The last element takes the place of the one that goes.
void RemoveAt(std::vector<JobId>& list, size_t at, std::vector<size_t>& index) {
  list[at] = list.back();
  index[list[at]] = at;
  list.pop_back();
}

}  // namespace

Time Settings::MoveCost(int64_t bytes_per_gpu) const {
  if (move_bytes_per_second <= 0) return move_fixed;
  return move_fixed + static_cast<Time>(static_cast<double>(bytes_per_gpu) / move_bytes_per_second * kSecond);
}

State::State(Settings settings)
    : settings_(std::move(settings)),
      devices_(settings_.shape),
      ledger_(settings_.shape.total(), settings_.tenants, settings_.lease * settings_.window_leases),
      waiting_(settings_.tenants.size()) {}

NodeId State::AddNode(int devices) {
  const NodeId node = devices_.AddNode(devices);
  settings_.shape.nodes = devices_.shape().nodes;
  ledger_.SetDevices(now_, devices_.total());
  return node;
}

TenantId State::AddTenant(const TenantSpec& tenant) {
  settings_.tenants.push_back(tenant);
  waiting_.emplace_back();
  return ledger_.AddTenant(now_, tenant.weight);
}

void State::SetWeight(TenantId tenant, double weight) {
  settings_.tenants[tenant].weight = weight;
  ledger_.SetWeight(now_, tenant, weight);
}

void State::AdvanceTo(Time now) {
  STASIS_CHECK(now >= now_);
  now_ = now;
}

Result<JobId> State::Submit(const JobSpec& spec) {
  if (spec.tenant >= settings_.tenants.size())
    return Errorf(StatusCode::kInvalidArgument, "job %s: no tenant %u", spec.name.c_str(), spec.tenant);
  if (spec.gpus < 1 || spec.gpus > devices_.total())
    return Errorf(StatusCode::kInvalidArgument, "job %s: %d devices, the cluster has %d", spec.name.c_str(),
                  spec.gpus, devices_.total());
  if (spec.max_nodes < 0 || (spec.max_nodes > 0 && spec.gpus > static_cast<int64_t>(spec.max_nodes) *
                                                                   settings_.shape.devices_per_node))
    return Errorf(StatusCode::kInvalidArgument, "job %s: %d devices on at most %d nodes of %d",
                  spec.name.c_str(), spec.gpus, spec.max_nodes, settings_.shape.devices_per_node);
  if (spec.min_gpus < 0 || spec.min_gpus > spec.gpus || (spec.max_gpus != 0 && spec.max_gpus < spec.gpus))
    return Errorf(StatusCode::kInvalidArgument, "job %s: %d devices, at least %d and at most %d",
                  spec.name.c_str(), spec.gpus, spec.min_gpus, spec.max_gpus);
  if (spec.duration <= 0)
    return Errorf(StatusCode::kInvalidArgument, "job %s: a duration of %lld ms", spec.name.c_str(),
                  static_cast<long long>(spec.duration));
  const JobId id = static_cast<JobId>(jobs_.size());
  Job job;
  job.spec = spec;
  job.account = ledger_.Arrive(now_, spec);
  jobs_.push_back(std::move(job));
  index_.push_back(0);
  Wait(jobs_.back(), JobPhase::kPending);
  return id;
}

void State::Wait(Job& job, JobPhase phase) {
  const JobId id = static_cast<JobId>(&job - jobs_.data());
  std::vector<JobId>& list = waiting_[job.spec.tenant];
  job.phase = phase;
  job.waiting_since = now_;
  index_[id] = list.size();
  list.push_back(id);
  if (waiting_count_++ == 0) waited_since_ = now_;
}

Time State::LeaseEnd(const Job& job) const { return now_ + LeaseOf(job); }

void State::Place(Job& job, const Placement& placement, Time stall) {
  devices_.Take(placement);
  job.placement = placement;
  job.gpus = CountDevices(placement);
  job.progress_at = now_ + stall;
  job.rate = static_cast<double>(job.gpus) / job.spec.gpus;
  ledger_.Hold(now_, &job.account, job.gpus);
}

void State::Unplace(Job& job) {
  job.progress = ProgressOf(job);
  if (job.packed_with != kNoJob) {
    Part(job);
  } else {
    devices_.Release(job.placement);
  }
  job.placement.clear();
  job.gpus = 0;
  ledger_.Hold(now_, &job.account, 0);
}

void State::Pack(JobId guest_id, JobId host_id, Time stall) {
  Job &guest = jobs_[guest_id], &host = jobs_[host_id];
  STASIS_CHECK(host.phase == JobPhase::kRunning && host.packed_with == kNoJob);
  guest.placement = host.placement;
  guest.gpus = host.gpus;
  guest.progress_at = now_ + stall;
  guest.rate = static_cast<double>(guest.gpus) / guest.spec.gpus;
  guest.guest = true;
  guest.packed_with = host_id;
  host.packed_with = guest_id;
  guest.packed_since = host.packed_since = now_;
  ledger_.Hold(now_, &guest.account, guest.gpus / 2.0);
  ledger_.Hold(now_, &host.account, host.gpus / 2.0);
}

void State::BeginSharing(JobId id) {
  Job& job = jobs_[id];
  STASIS_CHECK(job.packed_with != kNoJob);
  job.packed_since = jobs_[job.packed_with].packed_since = now_;
}

void State::Part(Job& leaving) {
  Job& staying = jobs_[leaving.packed_with];
  SetRate(leaving.packed_with, static_cast<double>(staying.gpus) / staying.spec.gpus);
  ledger_.Hold(now_, &staying.account, staying.gpus);
  staying.guest = leaving.guest = false;
  staying.packed_with = leaving.packed_with = kNoJob;
}

void State::SetRate(JobId id, double rate) {
  Job& job = jobs_[id];
  STASIS_CHECK(job.phase == JobPhase::kRunning && rate >= 0);
  job.progress = ProgressOf(job);
  job.progress_at = std::max(job.progress_at, now_);
  job.rate = rate;
}

void State::SetTried(JobId a, JobId b) {
  for (const auto& [job, other] : {std::pair(a, b), std::pair(b, a)}) {
    std::vector<JobId>& tried = jobs_[job].tried;
    const auto at = std::lower_bound(tried.begin(), tried.end(), other);
    if (at == tried.end() || *at != other) tried.insert(at, other);
  }
}

// From the waiting to the running.
void State::Begin(JobId id, Time stall) {
  Job& job = jobs_[id];
  RemoveAt(waiting_[job.spec.tenant], index_[id], index_);
  --waiting_count_;
  index_[id] = running_.size();
  running_.push_back(id);
  job.phase = JobPhase::kRunning;
  job.evicted = false;
  job.first_start = std::min(job.first_start, now_);
  job.lease_end = LeaseEnd(job) + stall;
}

void State::BeginLease(JobId id) {
  if (jobs_[id].lease_end == kNever) jobs_[id].lease_end = LeaseEnd(jobs_[id]);
}

void State::Apply(const Action& action, Time stall) {
  Job& job = jobs_[action.job];
  switch (action.kind) {
    case ActionKind::kStart:
    case ActionKind::kResume: {
      STASIS_CHECK(job.phase == (action.kind == ActionKind::kStart ? JobPhase::kPending : JobPhase::kPaused));
      Begin(action.job, stall);
      return Place(job, action.to, stall);
    }
    case ActionKind::kPack:
      STASIS_CHECK(job.phase == JobPhase::kPending || job.phase == JobPhase::kPaused);
      Begin(action.job, stall);
      return Pack(action.job, action.with, stall);
    case ActionKind::kPause:
      STASIS_CHECK(job.phase == JobPhase::kRunning);
      ++job.pauses;
      if (action.with != kNoJob) SetTried(action.job, action.with);
      RemoveAt(running_, index_[action.job], index_);
      Unplace(job);
      return Wait(job, JobPhase::kPaused);
    case ActionKind::kMigrate:
    case ActionKind::kResize:
      STASIS_CHECK(job.phase == JobPhase::kRunning && job.packed_with == kNoJob);
      if (action.kind == ActionKind::kMigrate) ++job.migrations;
      Unplace(job);
      return Place(job, action.to, stall);
  }
}

void State::Finish(JobId id) {
  Job& job = jobs_[id];
  STASIS_CHECK(job.phase != JobPhase::kDone);
  if (job.phase == JobPhase::kRunning) {
    RemoveAt(running_, index_[id], index_);
    Unplace(job);
  } else {
    RemoveAt(waiting_[job.spec.tenant], index_[id], index_);
    --waiting_count_;
  }
  job.fairness = ledger_.JobFairness(job.account, now_);
  ledger_.Leave(now_, job.spec, &job.account);
  job.phase = JobPhase::kDone;
  job.finished = now_;
}

void State::Evict(JobId id, Time kept_progress) {
  Job& job = jobs_[id];
  STASIS_CHECK(job.phase == JobPhase::kRunning);
  RemoveAt(running_, index_[id], index_);
  Unplace(job);
  job.progress = kept_progress;
  job.evicted = true;
  Wait(job, JobPhase::kPaused);
}

void State::Forget(const std::vector<bool>& gone) {
  std::vector<JobId> ids(jobs_.size(), kNoJob);
  JobId next = 0;
  for (JobId id = 0; id < jobs_.size(); ++id) {
    STASIS_CHECK(!gone[id] || jobs_[id].phase == JobPhase::kDone);
    if (!gone[id]) ids[id] = next++;
  }
  for (JobId id = 0; id < ids.size(); ++id) {
    if (ids[id] == kNoJob || ids[id] == id) continue;
    jobs_[ids[id]] = std::move(jobs_[id]);
    index_[ids[id]] = index_[id];
  }
  jobs_.resize(next);
  index_.resize(next);
  for (Job& job : jobs_) {
    if (job.packed_with != kNoJob) job.packed_with = ids[job.packed_with];
    for (JobId& other : job.tried) other = ids[other];
    std::erase(job.tried, kNoJob);
  }
  for (JobId& id : running_) id = ids[id];
  for (std::vector<JobId>& list : waiting_) {
    for (JobId& id : list) id = ids[id];
  }
}

State::Saved State::Save(Time now) const {
  Saved saved;
  saved.now = now;
  for (NodeId node = 0; node < static_cast<NodeId>(settings_.shape.nodes); ++node)
    saved.nodes.push_back({devices_.devices_of(node), devices_.usable(node)});
  saved.tenants = settings_.tenants;
  saved.accounts = ledger_.Save(now);
  saved.jobs = jobs_;
  saved.running = running_;
  saved.waiting = waiting_;
  saved.waited_since = waited_since_;
  return saved;
}

// Every live job is in the one list that it belongs into.
bool State::CanBe(const Saved& saved) const {
  std::vector<int> listed(saved.jobs.size(), 0);
  const auto list = [&](const std::vector<JobId>& ids, TenantId tenant, bool runs) {
    return std::all_of(ids.begin(), ids.end(), [&](JobId id) {
      if (id >= saved.jobs.size() || ++listed[id] > 1) return false;
      const Job& job = saved.jobs[id];
      return job.phase != JobPhase::kDone && (job.phase == JobPhase::kRunning) == runs &&
             (runs || job.spec.tenant == tenant);
    });
  };
  if (!list(saved.running, 0, true)) return false;
  for (TenantId tenant = 0; tenant < saved.waiting.size(); ++tenant) {
    if (!list(saved.waiting[tenant], tenant, false)) return false;
  }
  for (JobId id = 0; id < saved.jobs.size(); ++id) {
    const Job& job = saved.jobs[id];
    const JobId other = job.packed_with;
    const bool paired =
        other == kNoJob || (other < saved.jobs.size() && saved.jobs[other].packed_with == id &&
                            saved.jobs[other].guest != job.guest);
    const bool accounted = job.spec.tenant < saved.accounts.size() && job.account.tenant == job.spec.tenant &&
                           job.account.kind < saved.accounts[job.spec.tenant].kinds.size();
    if (listed[id] != (job.phase == JobPhase::kDone ? 0 : 1) || !paired || !accounted) return false;
  }
  return saved.tenants.size() == saved.accounts.size() && saved.tenants.size() == saved.waiting.size();
}

// By those that run. A guest has none of its own.
Status State::TakeDevices() {
  for (const JobId id : running_) {
    const Job& job = jobs_[id];
    for (const NodeShare& share : job.placement) {
      if (share.node >= static_cast<NodeId>(settings_.shape.nodes))
        return Status(StatusCode::kCorrupt, "a job is on no node");
    }
    if (job.placement.empty() || (!job.guest && !devices_.IsFree(job.placement)))
      return Status(StatusCode::kCorrupt, "a job is where another one is");
    if (!job.guest) devices_.Take(job.placement);
  }
  return Status();
}

Status State::Restore(Saved saved) {
  STASIS_CHECK(jobs_.empty() && settings_.shape.nodes == 0 && settings_.tenants.empty());
  if (!CanBe(saved)) return Status(StatusCode::kCorrupt, "the jobs of a snapshot contradict each other");
  for (const Saved::Node& node : saved.nodes) {
    if (node.devices < 0 || node.devices > settings_.shape.devices_per_node)
      return Status(StatusCode::kCorrupt, "a node has too many devices");
    devices_.AddNode(node.devices);
  }
  settings_.shape.nodes = devices_.shape().nodes;
  settings_.tenants = std::move(saved.tenants);
  RETURN_IF_ERROR(ledger_.Restore(devices_.total(), std::move(saved.accounts)));
  now_ = saved.now;
  jobs_ = std::move(saved.jobs);
  running_ = std::move(saved.running);
  waiting_ = std::move(saved.waiting);
  waited_since_ = saved.waited_since;
  index_.resize(jobs_.size());
  for (size_t i = 0; i < running_.size(); ++i) index_[running_[i]] = i;
  for (const std::vector<JobId>& list : waiting_) {
    for (size_t i = 0; i < list.size(); ++i) index_[list[i]] = i;
    waiting_count_ += list.size();
  }
  RETURN_IF_ERROR(TakeDevices());
  for (NodeId node = 0; node < saved.nodes.size(); ++node) devices_.SetUsable(node, saved.nodes[node].usable);
  return Status();
}

bool State::LeaseEndedSince(const Job& job, Time since) const {
  since = std::max(since, waited_since_ - 1);
  if (now_ < job.lease_end) return false;
  if (since < job.lease_end) return true;
  return (now_ - job.lease_end) / LeaseOf(job) != (since - job.lease_end) / LeaseOf(job);
}

Time State::NextLeaseEnd(const Job& job) const {
  if (now_ < job.lease_end) return job.lease_end;
  return job.lease_end + ((now_ - job.lease_end) / LeaseOf(job) + 1) * LeaseOf(job);
}

Time State::ProgressOf(const Job& job) const {
  if (job.phase != JobPhase::kRunning || now_ <= job.progress_at) return job.progress;
  return job.progress + static_cast<Time>(static_cast<double>(now_ - job.progress_at) * job.rate);
}

}  // namespace stasis::scheduler
