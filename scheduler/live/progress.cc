// How jobs get on, alone and beside each other: what of it the policy is told.
#include <algorithm>
#include <cmath>

#include "scheduler/live/cluster.h"

namespace stasis::scheduler {
namespace {

// A rate that differs by less than this from the one that is known is the same.
constexpr double kSame = 0.1;
// Until it is measured sharing is worth what taking turns is.
constexpr double kInTurn = 0.5;
// The least time that a rate is of, as a part of the time in which a pair settles; as often at most is a pair
// that has not settled told of.
constexpr int kParts = 4;

}  // namespace

void Cluster::Carry(const Action& action) {
  state_.Apply(action, 0);
  if (action.kind != ActionKind::kPack) return;
  for (const JobId id : {action.job, action.with}) state_.SetRate(id, kInTurn);
}

// ---- Who is where

void Cluster::SetPlace(Entry& entry, Where where, const std::string& node, DeviceMask devices) {
  Disturb(entry);
  if (entry.where == Where::kRunning) running_[entry.node].erase(entry.request.name);
  entry.where = where;
  entry.node = node;
  if (where == Where::kRunning) {
    for (Entry::Copy& copy : entry.copy_facts) copy.last = false;
  }
  entry.devices = devices;
  entry.undisturbed = state_.now();
  entry.rate = 0;
  entry.rate_unit.clear();
  if (where == Where::kRunning) running_[node].insert(entry.request.name);
  Disturb(entry);
}

// Who is on devices of its does not get on as before from now on.
void Cluster::Disturb(const Entry& entry) {
  if (entry.where != Where::kRunning) return;
  for (const std::string& name : running_[entry.node]) {
    Entry& other = EntryOf(name);
    if ((other.devices & entry.devices) != 0) other.undisturbed = state_.now();
  }
}

std::string Cluster::Beside(const Entry& entry) const {
  if (entry.where != Where::kRunning) return "";
  for (const std::string& name : running_.at(entry.node)) {
    const Entry& other = jobs_.at(name);
    if (other.id != entry.id && (other.devices & entry.devices) != 0) return name;
  }
  return "";
}

// Devices are of one kind for the policy; the smallest counts, and one that is not known might be any.
void Cluster::SetDeviceBytes() {
  int64_t least = nodes_.front().device_bytes;
  for (const Node& node : nodes_) least = std::min(least, node.device_bytes);
  state_.SetDeviceBytes(least);
}

// With whom it shares devices as the policy has it.
std::string Cluster::PartnerOf(const Entry& entry) const {
  const Job& job = state_.job(entry.id);
  return job.phase == JobPhase::kRunning && job.packed_with != kNoJob ? NameOf(job.packed_with) : "";
}

// ---- Progress

std::optional<RateMeasured> Cluster::Tell(const std::string& job, const Progress& progress, Time now) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end() || found->second.where != Where::kRunning) return std::nullopt;
  Entry& entry = found->second;
  entry.rate = progress.rate;
  entry.rate_unit = progress.unit;
  RateMeasured measured{job, progress.rate, progress.unit, Beside(entry)};
  const bool settled = entry.orders.empty() && measured.beside == PartnerOf(entry);
  const bool of_one_situation = now - progress.over >= entry.undisturbed;
  if (!settled || !of_one_situation || progress.over < options_.settle / kParts) return std::nullopt;
  if (entry.request.memory == 0 || !IsNews(entry, measured, now)) return std::nullopt;
  return measured;
}

bool Cluster::IsNews(const Entry& entry, const RateMeasured& measured, Time now) const {
  const bool alone = measured.beside.empty();
  const double known = alone ? entry.alone : entry.beside;
  const bool whole = state_.job(entry.id).gpus == entry.request.gpus;
  if (alone && (measured.rate <= 0 || !whole)) return false;
  const bool first = alone ? entry.alone == 0 || entry.unit != measured.unit
                           : entry.measured < entry.undisturbed && entry.alone > 0;
  if (first) return true;
  if (entry.alone == 0 || entry.unit != measured.unit) return false;
  const bool settling = !alone && now < state_.job(entry.id).packed_since + options_.settle;
  if (now - entry.measured < (settling ? options_.settle / kParts : options_.settle)) return false;
  return std::abs(measured.rate - known) > kSame * known;
}

Status Cluster::Check(const RateMeasured& fact) const {
  RETURN_IF_ERROR(CheckLive(fact.job));
  if (!fact.beside.empty() && Find(fact.beside) == nullptr)
    return Errorf(StatusCode::kNotFound, "there is no job %s", fact.beside.c_str());
  if (std::isfinite(fact.rate) && fact.rate >= 0) return Status();
  return Errorf(StatusCode::kInvalidArgument, "job %s: a rate is not negative", fact.job.c_str());
}

// A job is as fast as itself when it is alone; beside another one it is what of that is left.
void Cluster::Apply(uint64_t, const RateMeasured& fact) {
  Entry& entry = EntryOf(fact.job);
  entry.measured = state_.now();
  if (fact.beside.empty()) {
    entry.alone = fact.rate;
    entry.unit = fact.unit;
    return state_.SetKnown(entry.id, true);
  }
  entry.beside = fact.rate;
  const bool comparable = entry.alone > 0 && entry.unit == fact.unit;
  if (comparable && PartnerOf(entry) == fact.beside) state_.SetRate(entry.id, fact.rate / entry.alone);
}

// ---- Forgetting

Status Cluster::Check(const JobsForgotten&) const { return Status(); }

void Cluster::Apply(uint64_t, const JobsForgotten& fact) {
  forgotten_ = std::max(forgotten_, fact.before);
  std::vector<bool> gone(names_.size());
  std::erase_if(jobs_, [&](const auto& job) {
    const Entry& entry = job.second;
    const bool forgotten = entry.where == Where::kEnded && entry.ended < fact.before;
    if (forgotten) gone[entry.id] = true;
    return forgotten;
  });
  state_.Forget(gone);
  std::erase_if(names_, [this](const std::string& name) { return !jobs_.contains(name); });
  for (size_t id = 0; id < names_.size(); ++id) EntryOf(names_[id]).id = static_cast<JobId>(id);
}

}  // namespace stasis::scheduler
