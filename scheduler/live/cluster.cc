#include "scheduler/live/cluster.h"

#include <algorithm>
#include <utility>

namespace stasis::scheduler {
namespace {

// What a job that tells no estimate is taken to need, by policies that want one.
constexpr Time kUnknownDuration = 3600 * kSecond;
// How long a job that could not be brought back waits for the next attempt, doubled with each one in a row.
constexpr Time kFirstHold = kSecond;
constexpr int kDoublings = 10;
// And at most. Also how long a job that has refused to be paused or moved is not asked again, if a lease is
// not shorter.
constexpr Time kKeep = 60 * kSecond;
// The same of one whose node is to become empty.
constexpr Time kKeepDrained = 5 * kSecond;
// Decisions one after the other, without anything else that happens. A policy needs two or three.
constexpr size_t kMostRounds = 64;
// And at most of one whose pauses never come to an end, doubled with each one in a row.
constexpr Time kKeepLate = 1800 * kSecond;

Settings SettingsOf(const Cluster::Options& options) {
  Settings settings;
  settings.shape = {0, static_cast<int>(kMaxDevicesPerNode), 1 << 20};
  settings.lease = options.lease;
  settings.window_leases = options.window_leases;
  settings.starvation = options.starvation;
  settings.move_fixed = options.move_fixed;
  settings.move_bytes_per_second = options.move_bytes_per_second;
  settings.settle = options.settle;
  return settings;
}

std::vector<int> Ordinals(DeviceMask devices) {
  std::vector<int> ordinals;
  for (; devices != 0; devices &= devices - 1) ordinals.push_back(__builtin_ctzll(devices));
  return ordinals;
}

Status Unknown(const char* what, const std::string& name) {
  return Errorf(StatusCode::kNotFound, "there is no %s %s", what, name.c_str());
}

}  // namespace

const char* OrderKindName(OrderKind kind) {
  switch (kind) {
    case OrderKind::kRun:
      return "run";
    case OrderKind::kPause:
      return "pause";
    case OrderKind::kResume:
      return "resume";
    case OrderKind::kMigrate:
      return "migrate";
    case OrderKind::kRestore:
      return "restore";
    case OrderKind::kCancel:
      return "cancel";
  }
  return "?";
}

Cluster::Cluster(const Options& options, std::unique_ptr<Policy> policy)
    : options_(options), policy_(std::move(policy)), state_(SettingsOf(options)) {}

const Cluster::Entry* Cluster::Find(const std::string& job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : &found->second;
}

const Cluster::Node* Cluster::FindNode(const std::string& node) const {
  const auto found = node_ids_.find(node);
  return found == node_ids_.end() ? nullptr : &nodes_[found->second];
}

// ---- What can be

Status Cluster::Check(const Fact& fact) const {
  return std::visit([this](const auto& each) { return Check(each); }, fact);
}

Status Cluster::CheckLive(const std::string& job) const {
  const Entry* entry = Find(job);
  if (entry == nullptr) return Unknown("job", job);
  if (entry->where == Where::kEnded)
    return Errorf(StatusCode::kFailedPrecondition, "job %s has ended", job.c_str());
  return Status();
}

Status Cluster::Check(const TenantSet& fact) const {
  if (fact.name.empty()) return Status(StatusCode::kInvalidArgument, "a tenant without a name");
  if (!(fact.weight > 0 && fact.weight <= 1e6))
    return Errorf(StatusCode::kInvalidArgument, "tenant %s: a weight is more than 0 and at most 1000000",
                  fact.name.c_str());
  return Status();
}

Status Cluster::Check(const NodeJoined& fact) const {
  if (fact.name.empty()) return Status(StatusCode::kInvalidArgument, "a node without a name");
  if (fact.devices < 0 || fact.devices > static_cast<int>(kMaxDevicesPerNode))
    return Errorf(StatusCode::kInvalidArgument, "node %s: %d devices, at most %u are known of one",
                  fact.name.c_str(), fact.devices, kMaxDevicesPerNode);
  const Node* node = FindNode(fact.name);
  if (node != nullptr && node->devices != fact.devices)
    return Errorf(StatusCode::kFailedPrecondition,
                  "node %s has %d devices and had %d when it joined: it must come back under another name",
                  fact.name.c_str(), fact.devices, node->devices);
  return Status();
}

Status Cluster::Check(const NodeChanged& fact) const {
  if (!node_ids_.contains(fact.name)) return Unknown("node", fact.name);
  if (fact.deadline >= 0 && (fact.draining || fact.deadline == 0)) return Status();
  return Status(StatusCode::kInvalidArgument, "only a node that is drained has a deadline");
}

Status Cluster::Check(const JobSubmitted& fact) const {
  const JobRequest& request = fact.request;
  const char* name = request.name.c_str();
  if (jobs_.contains(request.name)) return Errorf(StatusCode::kAlreadyExists, "there is a job %s", name);
  if (!tenants_.contains(request.tenant)) return Unknown("tenant", request.tenant);
  int most = 0;
  for (const Node& node : nodes_) most = std::max(most, node.devices);
  if (request.gpus < 1 || request.gpus > most)
    return Errorf(StatusCode::kInvalidArgument, "job %s: %d devices; the largest node has %d", name,
                  request.gpus, most);
  if (request.min_gpus < 0 || request.min_gpus > request.gpus ||
      (request.max_gpus != 0 && request.max_gpus < request.gpus))
    return Errorf(StatusCode::kInvalidArgument, "job %s: %d devices, at least %d and at most %d", name,
                  request.gpus, request.min_gpus, request.max_gpus);
  if (!(request.weight > 0 && request.weight <= 1e6))
    return Errorf(StatusCode::kInvalidArgument, "job %s: a weight is more than 0 and at most 1000000", name);
  if (request.estimate < 0 || request.checkpoint_interval < 0 || request.max_restarts < 0)
    return Errorf(StatusCode::kInvalidArgument, "job %s: times and numbers are not negative", name);
  return Status();
}

Status Cluster::Check(const Decided& fact) const {
  RETURN_IF_ERROR(CheckLive(fact.job));
  for (const PlacedDevices& share : fact.to) {
    if (!node_ids_.contains(share.node)) return Unknown("node", share.node);
  }
  return Status();
}

Status Cluster::Check(const OrderEnded& fact) const {
  if (orders_.contains(fact.order)) return Status();
  return Errorf(StatusCode::kNotFound, "there is no order %llu", static_cast<unsigned long long>(fact.order));
}

Status Cluster::Check(const JobEnded& fact) const { return CheckLive(fact.job); }

Status Cluster::Check(const JobLost& fact) const {
  if (!fact.image_node.empty() && !node_ids_.contains(fact.image_node))
    return Unknown("node", fact.image_node);
  return CheckLive(fact.job);
}

Status Cluster::Check(const JobCancelled& fact) const {
  RETURN_IF_ERROR(CheckLive(fact.job));
  if (!Find(fact.job)->cancelled) return Status();
  return Errorf(StatusCode::kFailedPrecondition, "job %s is being cancelled", fact.job.c_str());
}

Status Cluster::Check(const MaintenanceSet& fact) const {
  if (!node_ids_.contains(fact.name)) return Unknown("node", fact.name);
  if (fact.start >= 0 && (fact.end > fact.start || (fact.start == 0 && fact.end == 0))) return Status();
  return Status(StatusCode::kInvalidArgument, "a maintenance window ends after it has begun");
}

// ---- What has happened

void Cluster::Take(uint64_t number, Time at, const Fact& fact) {
  STASIS_CHECK(number > last_number_ && Check(fact).ok());
  last_number_ = number;
  state_.AdvanceTo(std::max(at, state_.now()));
  last_at_ = state_.now();
  changed_ = true;
  if (!std::holds_alternative<Decided>(fact)) rounds_ = 0;
  std::visit([&](const auto& each) { Apply(number, each); }, fact);
}

void Cluster::Apply(uint64_t, const TenantSet& fact) {
  const auto known = tenants_.find(fact.name);
  if (known != tenants_.end()) return state_.SetWeight(known->second, fact.weight);
  tenants_[fact.name] = state_.AddTenant({fact.name, fact.weight});
}

void Cluster::Apply(uint64_t, const NodeJoined& fact) {
  const auto known = node_ids_.find(fact.name);
  if (known != node_ids_.end()) {
    Node& node = nodes_[known->second];
    node.address = fact.address;
    node.agent_id = fact.agent_id;
    node.kind = fact.kind;
    node.device_bytes = fact.device_bytes;
    return SetDeviceBytes();
  }
  node_ids_[fact.name] = state_.AddNode(fact.devices);
  Node node;
  node.name = fact.name;
  node.address = fact.address;
  node.devices = fact.devices;
  node.agent_id = fact.agent_id;
  node.kind = fact.kind;
  node.device_bytes = fact.device_bytes;
  nodes_.push_back(std::move(node));
  SetDeviceBytes();
}

void Cluster::Apply(uint64_t, const NodeChanged& fact) {
  Node& node = nodes_[IdOf(fact.name)];
  node.reachable = fact.reachable;
  node.draining = fact.draining;
  node.reason = fact.reason;
  SetNotice(node, fact.deadline);
  if (node.draining) AskAgainSoon(node);
  state_.SetNodeUsable(IdOf(fact.name), fact.reachable && !fact.draining);
}

// Who was not to be asked for a while has to leave it.
void Cluster::AskAgainSoon(const Node& node) {
  const Time soon = state_.now() + kKeepDrained;
  for (const auto& [name, entry] : jobs_) {
    if (entry.node == node.name && state_.IsKept(state_.job(entry.id)) &&
        state_.job(entry.id).kept_until > soon)
      state_.Keep(entry.id, soon);
  }
}

JobSpec Cluster::SpecOf(const JobRequest& request, Time submit) const {
  JobSpec spec;
  spec.name = request.name;
  spec.tenant = tenants_.at(request.tenant);
  spec.gpus = request.gpus;
  spec.submit = submit;
  spec.duration = request.estimate > 0 ? request.estimate : kUnknownDuration;
  spec.priority = request.priority;
  spec.weight = request.weight;
  spec.max_nodes = 1;
  // What it will hold is not known: jobs that are moved for others weigh by their devices.
  spec.active_bytes_per_gpu = 1;
  spec.min_gpus = request.min_gpus;
  spec.max_gpus = request.max_gpus;
  spec.memory_per_gpu = request.memory;
  if (request.utilization > 0) spec.utilization = request.utilization;
  return spec;
}

void Cluster::Apply(uint64_t number, const JobSubmitted& fact) {
  const JobRequest& request = fact.request;
  const Result<JobId> id = state_.Submit(SpecOf(request, state_.now()));
  STASIS_CHECK(id.ok());
  state_.SetKnown(*id, false);
  Entry entry;
  entry.request = request;
  entry.id = *id;
  entry.key = fact.key;
  entry.number = number;
  jobs_.emplace(request.name, std::move(entry));
  names_.push_back(request.name);
}

void Cluster::Apply(uint64_t number, const Decided& fact) {
  Entry& entry = EntryOf(fact.job);
  const Job& job = state_.job(entry.id);
  const Placement before = job.placement;
  Action action{fact.kind, entry.id, PlacementOf(fact.to), kNoJob};
  if (!fact.with.empty()) action.with = EntryOf(fact.with).id;
  Carry(action);
  // Its lease begins when it is there: coming may take longer than a lease.
  const bool comes = fact.kind != ActionKind::kPause && job.phase == JobPhase::kRunning && before.empty();
  if (comes) state_.HoldLease(entry.id);
  last_decision_ = last_decided_ = state_.now();
  Pending pending;
  pending.kind = fact.kind;
  pending.job = fact.job;
  if (!action.to.empty()) {
    pending.node = action.to.front().node;
    pending.devices = action.to.front().devices;
  }
  AddOrder(number, std::move(pending));
  for (const NodeShare& share : before) leaving_[share.node].emplace_back(share.devices, number);
}

void Cluster::AddOrder(uint64_t number, Pending pending) {
  Entry& entry = EntryOf(pending.job);
  if (!entry.orders.empty()) pending.after.insert(entry.orders.back());
  const bool comes = !pending.cancel && pending.kind != ActionKind::kPause;
  if (comes) {
    for (const auto& [devices, order] : leaving_[pending.node]) {
      if ((devices & pending.devices) != 0) pending.after.insert(order);
    }
  }
  if (pending.after.empty()) pending.ready = state_.now();
  entry.orders.push_back(number);
  orders_.emplace(number, std::move(pending));
}

// Nobody waits for it any more.
void Cluster::ForgetOrder(uint64_t number) {
  std::erase(EntryOf(orders_.at(number).job).orders, number);
  orders_.erase(number);
  for (auto& [other, pending] : orders_) {
    if (pending.after.erase(number) != 0 && pending.after.empty()) pending.ready = state_.now();
  }
  for (auto& [node, orders] : leaving_)
    std::erase_if(orders, [number](const auto& order) { return order.second == number; });
}

void Cluster::Apply(uint64_t, const OrderEnded& fact) {
  const Pending pending = orders_.at(fact.order);
  Entry& entry = EntryOf(pending.job);
  if (pending.cancel) return End(entry, false, 0, fact.ok ? "cancelled" : fact.message);
  entry.late_pauses = fact.late ? entry.late_pauses + 1 : 0;
  if (!fact.ok) {
    entry.message = fact.message;
    entry.saved_from.clear();
    Undo(fact.order);
    return Failed(entry, pending, fact.message);
  }
  ForgetOrder(fact.order);
  Succeeded(entry, pending);
  if (pending.kind == ActionKind::kPause && fact.image) SetPlace(entry, Where::kImage, entry.node, 0);
}

void Cluster::Succeeded(Entry& entry, const Pending& pending) {
  if (pending.kind == ActionKind::kPause) {
    return SetPlace(entry, Where::kPaused, entry.node, 0);
  }
  const bool elsewhere = entry.where == Where::kRunning || entry.node != nodes_[pending.node].name;
  const bool was_there = entry.where == Where::kRunning || entry.where == Where::kPaused;
  if (was_there && elsewhere) ++entry.moves;
  if (was_there && entry.node != nodes_[pending.node].name) SaveTook(entry, state_.now() - pending.ready);
  // They are of another life of it.
  if (entry.where == Where::kNowhere) {
    entry.copies.clear();
    entry.copy_facts.clear();
  }
  SetPlace(entry, Where::kRunning, nodes_[pending.node].name, pending.devices);
  const bool shares = pending.kind == ActionKind::kPack && state_.job(entry.id).packed_with != kNoJob;
  if (shares) state_.BeginSharing(entry.id);
  entry.failures = 0;
  entry.lost = false;
  if (entry.orders.empty()) state_.BeginLease(entry.id);
}

// What cannot be started, or not be brought back again and again, has failed.
void Cluster::Failed(Entry& entry, const Pending& pending, const std::string& message) {
  if (entry.where == Where::kRunning) {
    // It goes on, and would refuse again. Where it cannot stay it is asked sooner.
    const Time keep = std::min(options_.lease, nodes_[IdOf(entry.node)].draining ? kKeepDrained : kKeep);
    if (entry.late_pauses < 2) return state_.Keep(entry.id, state_.now() + keep);
    // Whoever waits for its devices would wait for nothing again.
    const int doublings = std::min(entry.late_pauses - 1, kDoublings);
    return state_.Keep(entry.id, state_.now() + std::max(keep, std::min(keep << doublings, kKeepLate)));
  }
  const bool never_ran =
      entry.where == Where::kNowhere && pending.kind != ActionKind::kPause && entry.restarts == 0;
  if (never_ran || ++entry.failures >= options_.max_failures) return End(entry, false, 0, message);
  state_.Keep(entry.id,
              state_.now() + std::min(kFirstHold << std::min(entry.failures - 1, kDoublings), kKeep));
}

// An order has failed, or will never be given, and so all that waited for it.
void Cluster::Undo(uint64_t number) {
  std::vector<uint64_t> undone = {number};
  for (size_t i = 0; i < undone.size(); ++i) {
    for (const auto& [other, pending] : orders_) {
      const bool known = std::find(undone.begin(), undone.end(), other) != undone.end();
      if (!known && !pending.cancel && pending.after.contains(undone[i])) undone.push_back(other);
    }
  }
  std::set<std::string> jobs;
  for (const uint64_t order : undone) {
    jobs.insert(orders_.at(order).job);
    ForgetOrder(order);
  }
  for (const std::string& job : jobs) {
    const Entry& entry = EntryOf(job);
    if (state_.job(entry.id).phase == JobPhase::kRunning)
      state_.Apply({ActionKind::kPause, entry.id, {}, kNoJob}, 0);
  }
  for (const std::string& job : jobs) PutBack(EntryOf(job));
}

// In the policy's eyes the job is again where its last order will have brought it, or where it is.
void Cluster::PutBack(const Entry& entry) {
  if (state_.job(entry.id).phase == JobPhase::kDone) return;
  Placement place;
  if (!entry.orders.empty()) {
    const Pending& last = orders_.at(entry.orders.back());
    if (!last.cancel && last.kind != ActionKind::kPause) place = {{last.node, last.devices}};
  } else if (entry.where == Where::kRunning) {
    place = {{IdOf(entry.node), entry.devices}};
  }
  if (place.empty()) return;
  const bool pending = state_.job(entry.id).phase == JobPhase::kPending;
  Action action{pending ? ActionKind::kStart : ActionKind::kResume, entry.id, place, kNoJob};
  if (!state_.devices().IsFree(place)) {
    // It shares them.
    action.kind = ActionKind::kPack;
    for (const JobId other : state_.running()) {
      const Placement& theirs = state_.job(other).placement;
      if (theirs.front().node == place.front().node && theirs.front().devices == place.front().devices)
        action.with = other;
    }
    STASIS_CHECK(action.with != kNoJob);
  }
  Carry(action);
  if (!entry.orders.empty()) state_.HoldLease(entry.id);
}

void Cluster::End(Entry& entry, bool ok, int exit_code, const std::string& message) {
  while (!entry.orders.empty()) ForgetOrder(entry.orders.back());
  if (state_.job(entry.id).phase != JobPhase::kDone) state_.Finish(entry.id);
  SetPlace(entry, Where::kEnded, entry.node, 0);
  entry.saved_from.clear();
  entry.failed = !ok;
  entry.exit_code = exit_code;
  entry.ended = state_.now();
  entry.ended_by = last_number_;
  if (!message.empty()) entry.message = message;
}

void Cluster::Apply(uint64_t, const JobEnded& fact) {
  End(EntryOf(fact.job), fact.ok, fact.exit_code, fact.message);
}

void Cluster::Apply(uint64_t, const JobLost& fact) {
  Entry& entry = EntryOf(fact.job);
  if (entry.cancelled) return End(entry, false, 0, "cancelled");
  while (!entry.orders.empty()) ForgetOrder(entry.orders.back());
  const Job& job = state_.job(entry.id);
  if (job.phase == JobPhase::kRunning) state_.Evict(entry.id, job.progress);
  SetPlace(entry, fact.image_node.empty() ? Where::kNowhere : Where::kImage, fact.image_node, 0);
  entry.message = fact.message;
  if (!fact.planned) {
    entry.before = job.progress;
    entry.saved_from.clear();
    entry.late_pauses = 0;
  }
  // What was lost is until it is there again, also where a better image of it has turned up.
  if (!fact.planned) entry.lost = true;
  // What it has refused where it was, it has not refused now. What nobody reaches may be there again soon.
  const bool awaits = fact.image_node.empty() && !entry.copies.empty();
  state_.Keep(entry.id, state_.now() + (awaits ? options_.image_wait : 0));
  if (!fact.planned) ++entry.restarts;
  if (fact.program_failed) ++entry.program_failures;
}

void Cluster::Apply(uint64_t number, const JobCancelled& fact) {
  Entry& entry = EntryOf(fact.job);
  entry.cancelled = true;
  const bool nothing_runs = entry.where == Where::kNowhere || entry.where == Where::kImage;
  if (nothing_runs && entry.orders.empty()) return End(entry, false, 0, "cancelled");
  state_.Finish(entry.id);
  // Wherever it may be by then: an order before this one may fail, and leave it where it was.
  if (entry.where == Where::kRunning) leaving_[IdOf(entry.node)].emplace_back(entry.devices, number);
  for (const uint64_t order : entry.orders) {
    const Pending& earlier = orders_.at(order);
    if (earlier.devices != 0) leaving_[earlier.node].emplace_back(earlier.devices, number);
  }
  Pending pending;
  pending.cancel = true;
  pending.job = fact.job;
  AddOrder(number, std::move(pending));
}

void Cluster::Apply(uint64_t, const MaintenanceSet& fact) {
  Node& node = nodes_[IdOf(fact.name)];
  node.maintenance_start = fact.start;
  node.maintenance_end = fact.end;
}

// ---- What is to be done

std::vector<Fact> Cluster::Decide(Time now) {
  now = std::max(now, state_.now());
  if (!changed_ && now < wake_) return {};
  if (!ComesToRest(now)) return {};
  state_.AdvanceTo(now);
  for (const auto& step : {&Cluster::TellSaves, &Cluster::LeaveDraining, &Cluster::SaveNext}) {
    std::vector<Fact> facts = (this->*step)();
    if (!facts.empty()) return facts;
  }
  const Decision decision = policy_->Decide(state_, last_decision_);
  last_decision_ = now;
  wake_ = decision.wake;
  WakeForKept(state_.running());
  for (const auto& [name, tenant] : tenants_) WakeForKept(state_.waiting(tenant));
  WakeForNotices();
  changed_ = false;
  return FactsOf(decision);
}

// A policy that swaps jobs for ever would keep everybody from everything else.
bool Cluster::ComesToRest(Time now) {
  if (!changed_) rounds_ = 0;
  // A drained node is left in as many as it has jobs.
  restless_ = ++rounds_ > kMostRounds + state_.running().size();
  if (!restless_) return true;
  wake_ = now + std::min(options_.lease, kKeep);
  changed_ = false;
  return false;
}

void Cluster::WakeForKept(const std::vector<JobId>& jobs) {
  for (const JobId id : jobs) {
    const Job& job = state_.job(id);
    if (state_.IsKept(job)) wake_ = std::min(wake_, job.kept_until);
  }
}

// What runs on a node that is to become empty goes elsewhere, or waits for a place.
std::vector<Fact> Cluster::LeaveDraining() const {
  std::vector<JobId> running = state_.running();
  std::sort(running.begin(), running.end());
  for (const JobId id : running) {
    const Job& job = state_.job(id);
    const Node& node = nodes_[job.placement.front().node];
    const bool at_once = node.draining && node.reachable && node.deadline == 0;
    if (at_once && !state_.IsKept(job)) return Leave(jobs_.at(NameOf(id)));
  }
  return {};
}

std::vector<Fact> Cluster::Leave(const Entry& entry) const {
  const Job& job = state_.job(entry.id);
  Action action{ActionKind::kPause, entry.id, {}, kNoJob};
  const std::optional<Placement> place = state_.devices().Find(job.gpus, job.spec.max_nodes);
  if (place && job.packed_with == kNoJob) action = {ActionKind::kMigrate, entry.id, *place, kNoJob};
  return FactsOf({{action}, kNever});
}

std::vector<Fact> Cluster::FactsOf(const Decision& decision) const {
  std::vector<Fact> facts;
  for (const Action& action : decision.actions) {
    Decided decided{action.kind, NameOf(action.job), {}, ""};
    for (const NodeShare& share : action.to) decided.to.push_back({nodes_[share.node].name, share.devices});
    if (action.with != kNoJob) decided.with = NameOf(action.with);
    facts.emplace_back(std::move(decided));
  }
  return facts;
}

Placement Cluster::PlacementOf(const std::vector<PlacedDevices>& devices) const {
  Placement placement;
  for (const PlacedDevices& share : devices) placement.push_back({IdOf(share.node), share.devices});
  return placement;
}

std::vector<Order> Cluster::Ready() const {
  std::vector<Order> ready;
  for (const auto& [number, pending] : orders_) {
    if (pending.after.empty()) ready.push_back(OrderOf(number, pending));
  }
  return ready;
}

std::optional<Order> Cluster::FindOrder(uint64_t number) const {
  const auto found = orders_.find(number);
  if (found == orders_.end()) return std::nullopt;
  return OrderOf(number, found->second);
}

Order Cluster::OrderOf(uint64_t number, const Pending& pending) const {
  const Entry& entry = jobs_.at(pending.job);
  Order order{number, OrderKind::kRun, pending.job, entry.node, "", {}, pending.ready};
  if (pending.cancel || pending.kind == ActionKind::kPause) {
    order.kind = pending.cancel ? OrderKind::kCancel : OrderKind::kPause;
    return order;
  }
  order.target = nodes_[pending.node].name;
  order.gpus = Ordinals(pending.devices);
  switch (entry.where) {
    case Where::kNowhere:
      order.kind = OrderKind::kRun;
      order.node = order.target;
      break;
    case Where::kPaused:
      order.kind = entry.node == order.target ? OrderKind::kResume : OrderKind::kMigrate;
      break;
    case Where::kImage:
      order.kind = OrderKind::kRestore;
      break;
    case Where::kRunning:
    case Where::kEnded:
      order.kind = OrderKind::kMigrate;
      break;
  }
  return order;
}

}  // namespace stasis::scheduler
