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
void State::Begin(JobId id) {
  Job& job = jobs_[id];
  RemoveAt(waiting_[job.spec.tenant], index_[id], index_);
  --waiting_count_;
  index_[id] = running_.size();
  running_.push_back(id);
  job.phase = JobPhase::kRunning;
  job.evicted = false;
  job.first_start = std::min(job.first_start, now_);
  job.lease_end = LeaseEnd(job);
}

void State::Apply(const Action& action, Time stall) {
  Job& job = jobs_[action.job];
  switch (action.kind) {
    case ActionKind::kStart:
    case ActionKind::kResume: {
      STASIS_CHECK(job.phase == (action.kind == ActionKind::kStart ? JobPhase::kPending : JobPhase::kPaused));
      Begin(action.job);
      return Place(job, action.to, stall);
    }
    case ActionKind::kPack:
      STASIS_CHECK(job.phase == JobPhase::kPending || job.phase == JobPhase::kPaused);
      Begin(action.job);
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
