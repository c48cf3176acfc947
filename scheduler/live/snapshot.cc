// How a cluster is written down and read again. Jobs are told by the numbers of their submissions: those stay
// when earlier jobs are forgotten.
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "scheduler/live/cluster.h"
#include "scheduler/live/fields.h"

namespace stasis::scheduler {

// ---- What is written

constexpr JobPhase LastOf(JobPhase) { return JobPhase::kDone; }
constexpr Cluster::Where LastOf(Cluster::Where) { return Cluster::Where::kEnded; }

struct SavedTenant {
  std::string name;
  double weight = 1;
  Ledger::Tenant account;
  std::vector<uint64_t> waiting;
};

struct SavedNode {
  Cluster::Node node;
  bool usable = true;
};

struct SavedOrder {
  uint64_t number = 0;
  ActionKind kind = ActionKind::kStart;
  bool cancel = false;
  std::string job;
  NodeId node = 0;
  DeviceMask devices = 0;
  std::vector<uint64_t> after;
  Time ready = kNever;
};

struct SavedLeave {
  NodeId node = 0;
  DeviceMask devices = 0;
  uint64_t order = 0;
};

struct SavedCluster {
  uint64_t number = 0;
  Time at = 0, decided = -1, forgotten = 0, waited_since = 0;
  std::vector<SavedTenant> tenants;
  std::vector<SavedNode> nodes;
  std::vector<uint64_t> running;
  std::vector<SavedOrder> orders;
  std::vector<SavedLeave> leaving;
};

struct SavedJob {
  Job job;
  uint64_t packed_with = 0;
  std::vector<uint64_t> tried;  // those that live
  Cluster::Entry entry;
};

template <typename Codec>
void Fields(Codec& codec, NodeShare& share) {
  codec("node", share.node);
  codec("devices", share.devices);
}

template <typename Codec>
void Fields(Codec& codec, Ledger::Kind& kind) {
  codec("gpus", kind.gpus);
  codec("weight", kind.weight);
  codec("integral", kind.integral);
  codec("rate", kind.rate);
}

template <typename Codec>
void Fields(Codec& codec, Ledger::Point& point) {
  codec("at", point.at);
  codec("utilized", point.utilized);
  codec("deserved", point.deserved);
}

template <typename Codec>
void Fields(Codec& codec, Ledger::Tenant& tenant) {
  codec("weight", tenant.weight);
  codec("quota", tenant.quota);
  codec("held", tenant.held);
  codec("demand", tenant.demand);
  codec("live", tenant.live);
  codec("live_weight", tenant.live_weight);
  codec("at", tenant.at);
  codec("utilized", tenant.utilized);
  codec("deserved", tenant.deserved);
  codec("kinds", tenant.kinds);
  codec("history", tenant.history);
}

template <typename Codec>
void Fields(Codec& codec, Ledger::Account& account) {
  codec("tenant", account.tenant);
  codec("kind", account.kind);
  codec("deserved_before", account.deserved_before);
  codec("utilized", account.utilized);
  codec("held", account.held);
  codec("since", account.since);
}

template <typename Codec>
void Fields(Codec& codec, SavedTenant& tenant) {
  codec("name", tenant.name);
  codec("weight", tenant.weight);
  codec("account", tenant.account);
  codec("waiting", tenant.waiting);
}

template <typename Codec>
void Fields(Codec& codec, SavedNode& saved) {
  codec("name", saved.node.name);
  codec("address", saved.node.address);
  codec("devices", saved.node.devices);
  codec("reachable", saved.node.reachable);
  codec("draining", saved.node.draining);
  codec("reason", saved.node.reason);
  codec("agent_id", saved.node.agent_id);
  codec("kind", saved.node.kind);
  codec("device_bytes", saved.node.device_bytes);
  codec("maintenance_start", saved.node.maintenance_start);
  codec("maintenance_end", saved.node.maintenance_end);
  codec("usable", saved.usable);
  codec.Optional("deadline", saved.node.deadline);
  codec.Optional("saves", saved.node.saves);
}

template <typename Codec>
void Fields(Codec& codec, SavedOrder& order) {
  codec("number", order.number);
  codec("kind", order.kind);
  codec("cancel", order.cancel);
  codec("job", order.job);
  codec("node", order.node);
  codec("devices", order.devices);
  codec("after", order.after);
  codec("ready", order.ready);
}

template <typename Codec>
void Fields(Codec& codec, SavedLeave& leave) {
  codec("node", leave.node);
  codec("devices", leave.devices);
  codec("order", leave.order);
}

template <typename Codec>
void Fields(Codec& codec, SavedCluster& cluster) {
  codec("number", cluster.number);
  codec("at", cluster.at);
  codec("decided", cluster.decided);
  codec("forgotten", cluster.forgotten);
  codec("waited_since", cluster.waited_since);
  codec("tenants", cluster.tenants);
  codec("nodes", cluster.nodes);
  codec("running", cluster.running);
  codec("orders", cluster.orders);
  codec("leaving", cluster.leaving);
}

template <typename Codec>
void JobFields(Codec& codec, Job& job) {
  codec("phase", job.phase);
  codec("submit", job.spec.submit);
  codec("placement", job.placement);
  codec("gpus", job.gpus);
  codec("waiting_since", job.waiting_since);
  codec("lease_end", job.lease_end);
  codec("progress", job.progress);
  codec("progress_at", job.progress_at);
  codec("rate", job.rate);
  codec("guest", job.guest);
  codec("packed_since", job.packed_since);
  codec("known", job.known);
  codec("pauses", job.pauses);
  codec("migrations", job.migrations);
  codec("first_start", job.first_start);
  codec("finished", job.finished);
  codec("account", job.account);
  codec("fairness", job.fairness);
  codec("kept_until", job.kept_until);
  codec("evicted", job.evicted);
}

template <typename Codec>
void Fields(Codec& codec, Cluster::Entry::Copy& copy) {
  codec("made", copy.made);
  codec("progress", copy.progress);
  codec("last", copy.last);
}

template <typename Codec>
void EntryFields(Codec& codec, Cluster::Entry& entry) {
  codec("where", entry.where);
  codec("node_of", entry.node);
  codec("devices", entry.devices);
  codec("orders", entry.orders);
  codec("lost", entry.lost);
  codec("cancelled", entry.cancelled);
  codec("failed", entry.failed);
  codec("exit_code", entry.exit_code);
  codec("restarts", entry.restarts);
  codec("failures", entry.failures);
  codec("moves", entry.moves);
  codec("program_failures", entry.program_failures);
  codec("copies", entry.copies);
  codec.Optional("copy_facts", entry.copy_facts);
  codec.Optional("late_pauses", entry.late_pauses);
  codec.Optional("before", entry.before);
  codec.Optional("saved_from", entry.saved_from);
  codec.Optional("save_began", entry.save_began);
  codec.Optional("save_took", entry.save_took);
  codec("ended", entry.ended);
  codec("message", entry.message);
  codec("key", entry.key);
  codec("ended_by", entry.ended_by);
  codec("undisturbed", entry.undisturbed);
  codec("unit", entry.unit);
  codec("alone", entry.alone);
  codec("beside", entry.beside);
  codec("measured", entry.measured);
}

template <typename Codec>
void Fields(Codec& codec, SavedJob& saved) {
  JobFields(codec, saved.job);
  codec("packed_with", saved.packed_with);
  codec("tried", saved.tried);
  EntryFields(codec, saved.entry);
}

namespace {

using Json = nlohmann::json;

template <typename T>
std::string TextOf(const T& value) {
  return Writer::ToJson(value).dump(-1, ' ', false, Json::error_handler_t::replace);
}

template <typename T>
Status Read(const std::string& text, T* value) {
  const Json object = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return Status(StatusCode::kCorrupt, "a part of a snapshot is a JSON object");
  Reader reader(object);
  Fields(reader, *value);
  return reader.status();
}

Status Contradicts(const char* what) {
  return Errorf(StatusCode::kCorrupt, "a snapshot names %s that is not in it", what);
}

}  // namespace

// ---- Writing

Snapshot Cluster::Save(uint64_t since) const {
  const State::Saved state = state_.Save(last_at_);
  const auto number_of = [&](JobId id) { return id == kNoJob ? 0 : jobs_.at(names_[id]).number; };
  const auto numbers_of = [&](const std::vector<JobId>& ids) {
    std::vector<uint64_t> numbers;
    for (const JobId id : ids) numbers.push_back(number_of(id));
    return numbers;
  };
  SavedCluster saved{last_number_, last_at_, last_decided_, forgotten_, state.waited_since, {}, {}, {},
                     {},           {}};
  for (TenantId id = 0; id < state.tenants.size(); ++id) {
    const TenantSpec& tenant = state.tenants[id];
    saved.tenants.push_back({tenant.name, tenant.weight, state.accounts[id], numbers_of(state.waiting[id])});
  }
  for (NodeId id = 0; id < nodes_.size(); ++id) saved.nodes.push_back({nodes_[id], state.nodes[id].usable});
  saved.running = numbers_of(state.running);
  for (const auto& [number, order] : orders_) {
    saved.orders.push_back({number,
                            order.kind,
                            order.cancel,
                            order.job,
                            order.node,
                            order.devices,
                            {order.after.begin(), order.after.end()},
                            order.ready});
  }
  for (const auto& [node, leaves] : leaving_) {
    for (const auto& [devices, order] : leaves) saved.leaving.push_back({node, devices, order});
  }
  Snapshot snapshot{last_number_, TextOf(saved), {}, forgotten_};
  for (JobId id = 0; id < names_.size(); ++id) {
    const Entry& entry = jobs_.at(names_[id]);
    const bool ended = entry.where == Where::kEnded;
    if (ended && entry.ended_by <= since) continue;
    SavedJob job{state.jobs[id], number_of(state.jobs[id].packed_with), {}, entry};
    for (const JobId other : state.jobs[id].tried) {
      if (!ended && state.jobs[other].phase != JobPhase::kDone) job.tried.push_back(number_of(other));
    }
    snapshot.jobs.push_back({entry.number, ended ? entry.ended : 0,
                             entry.number <= since ? "" : TextOf(entry.request), TextOf(job)});
  }
  return snapshot;
}

// ---- Reading

Status Cluster::Restore(const Snapshot& snapshot) {
  STASIS_CHECK(last_number_ == 0);
  SavedCluster saved;
  RETURN_IF_ERROR(Read(snapshot.cluster, &saved));
  State::Saved state;
  state.now = saved.at;
  state.waited_since = saved.waited_since;
  for (SavedNode& each : saved.nodes) {
    if (!node_ids_.emplace(each.node.name, static_cast<NodeId>(nodes_.size())).second)
      return Status(StatusCode::kCorrupt, "a snapshot has a node twice");
    state.nodes.push_back({each.node.devices, each.usable});
    nodes_.push_back(std::move(each.node));
  }
  for (SavedTenant& each : saved.tenants) {
    if (!tenants_.emplace(each.name, static_cast<TenantId>(state.tenants.size())).second)
      return Status(StatusCode::kCorrupt, "a snapshot has a tenant twice");
    state.tenants.push_back({each.name, each.weight});
    state.accounts.push_back(std::move(each.account));
  }
  RETURN_IF_ERROR(RestoreJobs(snapshot, &state));
  std::map<uint64_t, JobId> ids;
  for (const std::string& name : names_) ids[EntryOf(name).number] = EntryOf(name).id;
  const auto list = [&](const std::vector<uint64_t>& numbers, std::vector<JobId>* jobs) {
    for (const uint64_t number : numbers) {
      const auto found = ids.find(number);
      if (found == ids.end()) return false;
      jobs->push_back(found->second);
    }
    return true;
  };
  state.waiting.resize(saved.tenants.size());
  bool known = list(saved.running, &state.running);
  for (size_t i = 0; i < saved.tenants.size(); ++i)
    known &= list(saved.tenants[i].waiting, &state.waiting[i]);
  if (!known) return Contradicts("a job");
  RETURN_IF_ERROR(state_.Restore(std::move(state)));
  RETURN_IF_ERROR(RestoreOrders(saved));
  if (!nodes_.empty()) SetDeviceBytes();
  last_number_ = saved.number;
  last_at_ = saved.at;
  last_decision_ = last_decided_ = saved.decided;
  forgotten_ = saved.forgotten;
  changed_ = true;
  return Status();
}

Status Cluster::RestoreJobs(const Snapshot& snapshot, State::Saved* state) {
  std::map<uint64_t, JobId> ids;
  for (const Snapshot::Job& each : snapshot.jobs) ids[each.number] = static_cast<JobId>(ids.size());
  for (const Snapshot::Job& each : snapshot.jobs) {
    SavedJob saved;
    RETURN_IF_ERROR(
        Read(each.request, &saved.entry.request).WithContext("job " + std::to_string(each.number)));
    RETURN_IF_ERROR(Read(each.state, &saved).WithContext("job " + std::to_string(each.number)));
    Entry& entry = saved.entry;
    entry.id = ids.at(each.number);
    entry.number = each.number;
    if (!tenants_.contains(entry.request.tenant)) return Contradicts("a tenant");
    if (!entry.node.empty() && !node_ids_.contains(entry.node)) return Contradicts("a node");
    saved.job.spec = SpecOf(entry.request, saved.job.spec.submit);
    if (saved.packed_with != 0) {
      if (!ids.contains(saved.packed_with)) return Contradicts("a job");
      saved.job.packed_with = ids.at(saved.packed_with);
    }
    for (const uint64_t other : saved.tried) {
      if (!ids.contains(other)) return Contradicts("a job");
      saved.job.tried.push_back(ids.at(other));
    }
    if (entry.where == Where::kRunning) running_[entry.node].insert(entry.request.name);
    names_.push_back(entry.request.name);
    state->jobs.push_back(std::move(saved.job));
    if (!jobs_.emplace(names_.back(), std::move(entry)).second)
      return Status(StatusCode::kCorrupt, "a snapshot has a job twice");
  }
  return Status();
}

Status Cluster::RestoreOrders(const SavedCluster& saved) {
  std::map<std::string, std::set<uint64_t>> of_jobs;
  for (const SavedOrder& each : saved.orders) {
    if (Find(each.job) == nullptr) return Contradicts("a job");
    if (each.node >= nodes_.size() && each.devices != 0) return Contradicts("a node");
    of_jobs[each.job].insert(each.number);
    orders_[each.number] = {each.kind, each.cancel,  each.job,
                            each.node, each.devices, {each.after.begin(), each.after.end()},
                            each.ready};
  }
  for (const auto& [number, order] : orders_) {
    for (const uint64_t other : order.after) {
      if (!orders_.contains(other)) return Contradicts("an order");
    }
  }
  for (const auto& [name, entry] : jobs_) {
    if (std::set<uint64_t>(entry.orders.begin(), entry.orders.end()) != of_jobs[name])
      return Contradicts("an order");
  }
  for (const SavedLeave& leave : saved.leaving) {
    if (leave.node >= nodes_.size() || !orders_.contains(leave.order)) return Contradicts("an order");
    leaving_[leave.node].emplace_back(leave.devices, leave.order);
  }
  return Status();
}

}  // namespace stasis::scheduler
