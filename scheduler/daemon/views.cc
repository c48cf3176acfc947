#include "scheduler/daemon/views.h"

#include <algorithm>
#include <set>
#include <utility>

namespace stasis::scheduler {
namespace {

constexpr double kHour = 3600.0 * kSecond;

int64_t OrZero(Time at) { return at == kNever ? 0 : at; }

bool Ended(const Cluster::Entry& entry) { return entry.where == Cluster::Where::kEnded; }

v1::QueueState StateOf(OrderKind kind) {
  switch (kind) {
    case OrderKind::kRun:
      return v1::QUEUE_STATE_STARTING;
    case OrderKind::kPause:
    case OrderKind::kCancel:
      return v1::QUEUE_STATE_PAUSING;
    case OrderKind::kResume:
    case OrderKind::kRestore:
      return v1::QUEUE_STATE_RESUMING;
    case OrderKind::kMigrate:
      return v1::QUEUE_STATE_MOVING;
  }
  return v1::QUEUE_STATE_UNSPECIFIED;
}

}  // namespace

v1::QueueState Views::StateOf(const Cluster::Entry& entry) const {
  if (Ended(entry)) {
    if (!entry.failed) return v1::QUEUE_STATE_DONE;
    return entry.cancelled ? v1::QUEUE_STATE_CANCELLED : v1::QUEUE_STATE_FAILED;
  }
  if (!entry.orders.empty()) return scheduler::StateOf(cluster_.FindOrder(entry.orders.front())->kind);
  switch (entry.where) {
    case Cluster::Where::kRunning:
      return v1::QUEUE_STATE_RUNNING;
    case Cluster::Where::kNowhere:
      return entry.lost ? v1::QUEUE_STATE_LOST : v1::QUEUE_STATE_PENDING;
    default:
      return entry.lost ? v1::QUEUE_STATE_LOST : v1::QUEUE_STATE_PAUSED;
  }
}

std::string Views::ReasonOf(const Cluster::Entry& entry, const Job& job) const {
  if (!entry.message.empty() || Ended(entry) || job.phase == JobPhase::kRunning) return entry.message;
  return "waits for " + std::to_string(job.spec.gpus) + " devices; " +
         std::to_string(cluster_.state().devices().free()) + " are free";
}

v1::QueuedJob Views::Describe(const Cluster::Entry& entry) const {
  const State& state = cluster_.state();
  const Job& job = state.job(entry.id);
  v1::QueuedJob told;
  told.set_name(entry.request.name);
  told.set_tenant(entry.request.tenant);
  told.set_state(StateOf(entry));
  told.set_gpus(static_cast<uint32_t>(entry.request.gpus));
  told.set_priority(entry.request.priority);
  told.set_node(entry.node);
  if (entry.where == Cluster::Where::kRunning) {
    for (DeviceMask left = entry.devices; left != 0; left &= left - 1)
      told.add_devices(static_cast<uint32_t>(__builtin_ctzll(left)));
  }
  told.set_submitted_ms(job.spec.submit);
  told.set_started_ms(OrZero(job.first_start));
  told.set_ended_ms(entry.ended);
  told.set_exit_code(entry.exit_code);
  told.set_pauses(static_cast<uint32_t>(job.pauses));
  told.set_migrations(static_cast<uint32_t>(entry.moves));
  told.set_restarts(static_cast<uint32_t>(entry.restarts));
  const bool live = job.phase != JobPhase::kDone;
  told.set_fairness(live ? state.ledger().JobFairness(job.account, now_) : job.fairness);
  if (job.phase == JobPhase::kRunning) told.set_lease_end_ms(OrZero(state.NextLeaseEnd(job)));
  told.set_reason(ReasonOf(entry, job));
  told.set_rate(entry.rate);
  told.set_rate_unit(entry.rate_unit);
  told.set_beside(cluster_.Beside(entry));
  return told;
}

v1::QueuedJob Views::JobOf(const std::string& name) const { return Describe(*cluster_.Find(name)); }

v1::QueueReply Views::Queue(const v1::QueueRequest& request) const {
  v1::QueueReply reply;
  for (const Job& job : cluster_.state().jobs()) {
    const Cluster::Entry& entry = *cluster_.Find(job.spec.name);
    const bool named = !request.name().empty();
    if (named && job.spec.name != request.name()) continue;
    if (!request.tenant().empty() && entry.request.tenant != request.tenant()) continue;
    if (Ended(entry) && !request.ended() && !named) continue;
    *reply.add_jobs() = Describe(entry);
  }
  return reply;
}

v1::Tenant Views::Describe(const std::string& name, TenantId id) const {
  const State& state = cluster_.state();
  const Ledger& ledger = state.ledger();
  v1::Tenant told;
  told.set_name(name);
  told.set_weight(state.settings().tenants[id].weight);
  told.set_quota(ledger.quota(id));
  told.set_held(ledger.held(id));
  told.set_demand(static_cast<uint32_t>(ledger.demand(id)));
  told.set_fairness(ledger.Window(id, now_).fairness());
  const Ledger::Totals all = ledger.AllTime(id, now_);
  told.set_fairness_all(all.fairness());
  told.set_utilized_hours(all.utilized / kHour);
  told.set_deserved_hours(all.deserved / kHour);
  const auto running = std::count_if(state.running().begin(), state.running().end(),
                                     [&](JobId job) { return state.job(job).spec.tenant == id; });
  told.set_running(static_cast<uint32_t>(running));
  told.set_waiting(static_cast<uint32_t>(state.waiting(id).size()));
  return told;
}

v1::Tenant Views::TenantOf(const std::string& name) const {
  return Describe(name, cluster_.tenants().at(name));
}

v1::TenantsReply Views::Tenants() const {
  v1::TenantsReply reply;
  for (const auto& [name, id] : cluster_.tenants()) *reply.add_tenants() = Describe(name, id);
  return reply;
}

// Who is there, then who is to come.
Views::Holders Views::HoldersOfAll() const {
  Holders holders;
  for (const Cluster::Node& node : cluster_.nodes())
    holders[node.name].resize(static_cast<size_t>(node.devices));
  const auto hold = [&](const std::string& node, DeviceMask devices, const std::string& job) {
    std::vector<std::string>& held = holders[node];
    for (; devices != 0; devices &= devices - 1) {
      const auto device = static_cast<size_t>(__builtin_ctzll(devices));
      if (device < held.size() && held[device].empty()) held[device] = job;
    }
  };
  for (const auto& [job, entry] : cluster_.jobs()) {
    if (entry.where == Cluster::Where::kRunning) hold(entry.node, entry.devices, job);
  }
  for (const JobId id : cluster_.state().running()) {
    const Job& job = cluster_.state().job(id);
    for (const NodeShare& share : job.placement) {
      hold(cluster_.nodes()[share.node].name, share.devices, job.spec.name);
    }
  }
  return holders;
}

void Views::DescribeSaves(const Cluster::Node& node, v1::ClusterNode* told) const {
  std::set<std::string> ended;
  for (const SaveEnded& save : node.saves) {
    v1::NodeSave* each = told->add_saves();
    each->set_job(save.job);
    each->set_state(save.saved ? v1::SAVE_STATE_SAVED : v1::SAVE_STATE_UNSAVED);
    each->set_text(save.message);
    each->set_image_ms(save.image);
    ended.insert(save.job);
  }
  for (const Cluster::Unsaved& unsaved : cluster_.UnsavedAt(node)) {
    if (ended.contains(unsaved.job)) continue;
    v1::NodeSave* each = told->add_saves();
    each->set_job(unsaved.job);
    each->set_state(unsaved.begun ? v1::SAVE_STATE_SAVING : v1::SAVE_STATE_WAITING);
  }
}

v1::ClusterNode Views::Describe(const Cluster::Node& node, const std::vector<std::string>& holders) const {
  v1::ClusterNode told;
  told.set_name(node.name);
  told.set_address(node.address);
  told.set_devices(static_cast<uint32_t>(node.devices));
  told.set_reachable(node.reachable);
  told.set_draining(node.draining);
  told.set_reason(node.reason);
  told.set_maintenance_start_ms(node.maintenance_start);
  told.set_maintenance_end_ms(node.maintenance_end);
  told.set_deadline_ms(node.deadline);
  DescribeSaves(node, &told);
  uint32_t free = 0;
  for (const std::string& holder : holders) {
    told.add_jobs(holder);
    free += holder.empty() ? 1 : 0;
  }
  told.set_free(free);
  return told;
}

v1::ClusterNode Views::NodeOf(const std::string& name) const {
  return Describe(*cluster_.FindNode(name), HoldersOfAll().at(name));
}

v1::NodesReply Views::Nodes() const {
  v1::NodesReply reply;
  const Holders holders = HoldersOfAll();
  for (const Cluster::Node& node : cluster_.nodes())
    *reply.add_nodes() = Describe(node, holders.at(node.name));
  return reply;
}

void Views::Count(v1::ClusterInfoReply* reply) const {
  const State& state = cluster_.state();
  reply->set_policy(std::string(cluster_.policy_name()));
  reply->set_devices(static_cast<uint32_t>(state.devices().total()));
  reply->set_free(static_cast<uint32_t>(std::max(0, state.devices().free())));
  reply->set_running(static_cast<uint32_t>(state.running().size()));
  reply->set_waiting(static_cast<uint32_t>(state.waiting_count()));
}

}  // namespace stasis::scheduler
