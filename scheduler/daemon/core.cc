#include "scheduler/daemon/core.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <utility>

#include "base/task_name.h"
#include "scheduler/daemon/events.h"
#include "scheduler/defrag.h"
#include "scheduler/policies.h"

namespace stasis::scheduler {
namespace {

constexpr size_t kMostEvents = 10000;
constexpr Time kLongestWait = 3600 * kSecond;
constexpr char kMaintenance[] = "maintenance";
// A node is drained so long before its window begins, and what moving each of its jobs costs besides.
constexpr Time kDrainAhead = 60 * kSecond;
constexpr size_t kMaxProgramName = 32;  // in the name of a job

JobRequest RequestOf(const v1::SubmitRequest& request) {
  JobRequest job;
  job.name = request.name();
  job.tenant = request.tenant();
  job.argv.assign(request.argv().begin(), request.argv().end());
  job.environment.assign(request.environment().begin(), request.environment().end());
  job.folder = request.folder();
  if (!request.device().empty()) job.device = request.device();
  job.gpus = static_cast<int>(request.gpus());
  job.ranks = static_cast<int>(request.ranks());
  job.priority = request.priority();
  if (request.weight() != 0) job.weight = request.weight();
  job.estimate = static_cast<Time>(request.estimate_ms());
  job.min_gpus = static_cast<int>(request.min_gpus());
  job.max_gpus = static_cast<int>(request.max_gpus());
  job.checkpoint_interval = static_cast<Time>(request.checkpoint_interval_ms());
  job.max_restarts = static_cast<int>(request.max_restarts());
  job.memory = static_cast<int64_t>(request.memory_bytes());
  job.utilization = request.utilization();
  return job;
}

Status Unknown(const char* what, const std::string& name) {
  return Errorf(StatusCode::kNotFound, "there is no %s %s", what, name.c_str());
}

}  // namespace

// ---- The beginning

SchedulerCore::SchedulerCore(Store& store, Options options, std::unique_ptr<Policy> policy)
    : store_(store), options_(std::move(options)), cluster_(options_.cluster, std::move(policy)) {}

Result<std::unique_ptr<SchedulerCore>> SchedulerCore::Open(Store& store, Options options) {
  ASSIGN_OR_RETURN(std::unique_ptr<Policy> policy, MakePolicy(options.policy));
  std::unique_ptr<SchedulerCore> core(new SchedulerCore(store, std::move(options), std::move(policy)));
  RETURN_IF_ERROR(core->Begin());
  return core;
}

Status SchedulerCore::Begin() {
  cluster_id_ = store_.cluster_id();
  RETURN_IF_ERROR(LoadSnapshot().WithContext("the snapshot"));
  RETURN_IF_ERROR(store_.ForEach([this](const StoredFact& stored) -> Status {
    RETURN_IF_ERROR(cluster_.Check(stored.fact).WithContext("fact " + std::to_string(stored.number)));
    TakeOne(stored);
    return Status();
  }));
  // The clock was set back meanwhile: what is on record stays true, and time goes on from there.
  ahead_ = std::max<Time>(0, cluster_.state().now() - options_.now());
  started_ms_ = Now();
  // By the clock, so that of two schedulers with copies of one database the later one reigns.
  ASSIGN_OR_RETURN(reign_, store_.BeginReign(static_cast<uint64_t>(std::max<Time>(1, options_.now()))));
  before_reign_ = last_number_;
  RETURN_IF_ERROR(Decide());
  if (const Status compacted = Compact(); !compacted.ok()) options_.not_compacted(compacted);
  return Status();
}

Status SchedulerCore::LoadSnapshot() {
  ASSIGN_OR_RETURN(const std::optional<Snapshot> snapshot, store_.LoadSnapshot());
  compact_next_ = options_.compact_after;
  if (!snapshot) return Status();
  RETURN_IF_ERROR(cluster_.Restore(*snapshot));
  last_number_ = compacted_ = snapshot->number;
  if (cluster_.last_number() != last_number_) return Status(StatusCode::kCorrupt, "it has two numbers");
  compact_next_ += compacted_;
  for (const auto& [name, entry] : cluster_.jobs()) {
    if (!entry.key.empty()) submitted_by_key_[entry.key] = name;
  }
  ASSIGN_OR_RETURN(const std::vector<Store::Event> events, store_.LoadEvents());
  for (const Store::Event& saved : events) {
    v1::ClusterEvent event;
    if (!google::protobuf::util::JsonStringToMessage(saved.text, &event).ok())
      return Status(StatusCode::kCorrupt, "an event cannot be read");
    events_.push_back(std::move(event));
  }
  return Status();
}

// ---- Recording

Time SchedulerCore::Now() const { return std::max(options_.now() + ahead_, cluster_.state().now()); }

void SchedulerCore::TakeOne(const StoredFact& stored) {
  std::optional<v1::ClusterEvent> event = EventOf(cluster_, stored.fact);
  cluster_.Take(stored.number, stored.at, stored.fact);
  last_number_ = stored.number;
  const auto* submitted = std::get_if<JobSubmitted>(&stored.fact);
  if (submitted != nullptr && !submitted->key.empty())
    submitted_by_key_[submitted->key] = submitted->request.name;
  if (std::holds_alternative<JobsForgotten>(stored.fact))
    std::erase_if(submitted_by_key_,
                  [this](const auto& each) { return cluster_.Find(each.second) == nullptr; });
  if (!event) return;
  event->set_number(stored.number);
  event->set_at_ms(stored.at);
  events_.push_back(*std::move(event));
  if (events_.size() > kMostEvents) events_.pop_front();
}

Status SchedulerCore::StoreAndTake(std::vector<Fact> facts) {
  if (!broken_.ok()) return broken_;
  const Time now = Now();
  std::vector<StoredFact> stored;
  for (Fact& fact : facts) stored.push_back({last_number_ + 1 + stored.size(), now, std::move(fact)});
  RETURN_IF_ERROR(store_.Append(stored));
  for (const StoredFact& each : stored) {
    options_.happens(cluster_, each);
    TakeOne(each);
  }
  return Status();
}

// A decision that was made and is not on record cannot be made again: the cluster does not know of it.
Status SchedulerCore::Decide() {
  const auto decide = [this] {
    const MonotonicTime began = Clock::Real().Now();
    std::vector<Fact> facts = cluster_.Decide(Now());
    options_.decided(Clock::Real().Now() - began);
    return facts;
  };
  for (std::vector<Fact> facts = decide(); !facts.empty(); facts = decide()) {
    const Status stored = StoreAndTake(std::move(facts));
    if (stored.ok()) continue;
    if (broken_.ok()) options_.broken(broken_ = stored);
    return stored;
  }
  if (cluster_.restless()) options_.restless();
  return Status();
}

Status SchedulerCore::RecordLocked(const Fact& fact) {
  RETURN_IF_ERROR(cluster_.Check(fact));
  RETURN_IF_ERROR(StoreAndTake({fact}));
  return Decide();
}

Result<uint64_t> SchedulerCore::Record(const Fact& fact) {
  Lock lock(mutex_);
  const uint64_t number = last_number_ + 1;
  RETURN_IF_ERROR(RecordLocked(fact));
  Tell(std::move(lock));
  return number;
}

void SchedulerCore::Tell(const std::map<std::string, Cluster::Progress>& jobs) {
  Lock lock(mutex_);
  const uint64_t before = last_number_;
  for (const auto& [job, progress] : jobs) {
    // What cannot be recorded now is measured again.
    if (const auto news = cluster_.Tell(job, progress, Now())) static_cast<void>(RecordLocked(*news));
  }
  if (last_number_ != before) Tell(std::move(lock));
}

Duration SchedulerCore::Tick() {
  Lock lock(mutex_);
  const uint64_t before = last_number_;
  KeepMaintenance();
  if (!Decide().ok()) return Duration::max();
  Time wake = cluster_.wake();
  for (const Cluster::Node& node : cluster_.nodes()) {
    if (node.maintenance_end == 0) continue;
    const bool begun = node.draining || node.maintenance_start - kDrainAhead <= Now();
    wake = std::min(wake, begun ? node.maintenance_end : node.maintenance_start - kDrainAhead);
  }
  const Time now = Now();
  if (last_number_ != before) {
    Tell(std::move(lock));
  } else {
    lock.unlock();
  }
  if (const Status compacted = Compact(); !compacted.ok()) options_.not_compacted(compacted);
  if (wake - now > kLongestWait) return std::chrono::milliseconds(kLongestWait);
  return std::chrono::milliseconds(std::max<Time>(wake - now, 0));
}

// Jobs whose end is long ago.
Status SchedulerCore::Forget() {
  const Time before = Now() - options_.keep_ended;
  const auto old = [before](const auto& job) {
    return job.second.where == Cluster::Where::kEnded && job.second.ended < before;
  };
  if (std::none_of(cluster_.jobs().begin(), cluster_.jobs().end(), old)) return Status();
  return StoreAndTake({JobsForgotten{before}});
}

// Written without the lock: what is recorded meanwhile is newer. One caller at a time.
Status SchedulerCore::Compact() {
  Snapshot snapshot;
  std::vector<Store::Event> events;
  {
    const Lock lock(mutex_);
    if (last_number_ < compact_next_) return Status();
    // After a failure not at once again.
    compact_next_ = last_number_ + options_.compact_after;
    RETURN_IF_ERROR(Forget());
    snapshot = cluster_.Save(compacted_);
    for (const v1::ClusterEvent& event : events_) {
      std::string text;
      if (event.number() <= compacted_) continue;
      if (!google::protobuf::util::MessageToJsonString(event, &text).ok())
        return Status(StatusCode::kInternal, "an event cannot be written");
      events.push_back({event.number(), std::move(text)});
    }
  }
  RETURN_IF_ERROR(store_.SaveSnapshot(snapshot, events, kMostEvents));
  const Lock lock(mutex_);
  compacted_ = snapshot.number;
  return Status();
}

// Windows that are about to begin, or are over.
void SchedulerCore::KeepMaintenance() {
  const Time now = Now();
  const std::vector<Cluster::Node> nodes = cluster_.nodes();
  for (const Cluster::Node& node : nodes) {
    if (node.maintenance_end == 0) continue;
    if (node.maintenance_end <= now) {
      if (node.draining && node.reason == kMaintenance) static_cast<void>(SetDraining(node.name, false, ""));
      static_cast<void>(RecordLocked(MaintenanceSet{node.name, 0, 0}));
    } else if (node.maintenance_start - kDrainAhead <= now && !node.draining) {
      static_cast<void>(SetDraining(node.name, true, kMaintenance));
    }
  }
}

void SchedulerCore::Tell(Lock lock) {
  const std::vector<std::shared_ptr<Watcher>> watchers = watchers_;
  lock.unlock();
  for (const std::shared_ptr<Watcher>& watcher : watchers) {
    const std::lock_guard own(watcher->mutex);
    if (watcher->told) watcher->told();
  }
}

std::shared_ptr<void> SchedulerCore::Subscribe(std::function<void()> told) {
  auto watcher = std::make_shared<Watcher>();
  watcher->told = std::move(told);
  const Lock lock(mutex_);
  watchers_.push_back(watcher);
  return std::shared_ptr<void>(watcher.get(), [this, watcher](void*) {
    {
      const std::lock_guard own(watcher->mutex);
      watcher->told = nullptr;
    }
    const Lock own(mutex_);
    std::erase(watchers_, watcher);
  });
}

std::vector<v1::ClusterEvent> SchedulerCore::EventsAfter(uint64_t after, size_t most) const {
  Lock lock(mutex_);
  auto first = std::upper_bound(events_.begin(), events_.end(), after,
                                [](uint64_t number, const auto& event) { return number < event.number(); });
  const size_t count = std::min(most, static_cast<size_t>(events_.end() - first));
  return {first, first + static_cast<std::ptrdiff_t>(count)};
}

uint64_t SchedulerCore::last_event() const {
  Lock lock(mutex_);
  return events_.empty() ? 0 : events_.back().number();
}

std::vector<Order> SchedulerCore::Ready() const {
  Lock lock(mutex_);
  return cluster_.Ready();
}

void SchedulerCore::LookNow(const std::function<void(const Cluster&, Time now)>& look) const {
  const std::lock_guard lock(mutex_);
  look(cluster_, Now());
}

void SchedulerCore::Look(const std::function<void(const Cluster&)>& look) const {
  Lock lock(mutex_);
  look(cluster_);
}

// ---- The service

v1::ClusterInfoReply SchedulerCore::Info() const {
  Lock lock(mutex_);
  v1::ClusterInfoReply reply;
  reply.set_cluster_id(cluster_id_);
  reply.set_reign(reign_);
  reply.set_started_ms(started_ms_);
  ViewsNow().Count(&reply);
  return reply;
}

std::string SchedulerCore::NameFor(const std::string& program) const {
  std::string base = program.substr(program.rfind('/') + 1).substr(0, kMaxProgramName);
  if (!CheckTaskName(base).ok()) base = "job";
  for (uint64_t number = last_number_ + 1;; ++number) {
    std::string name = base + "-" + std::to_string(number);
    if (cluster_.Find(name) == nullptr) return name;
  }
}

Result<v1::QueuedJob> SchedulerCore::Submit(const v1::SubmitRequest& request) {
  Lock lock(mutex_);
  JobSubmitted fact{RequestOf(request), request.idempotency_key()};
  const auto before = submitted_by_key_.find(fact.key);
  if (before != submitted_by_key_.end()) {
    const std::string& name = before->second;
    if (fact.request.name.empty()) fact.request.name = name;
    if (fact.request == cluster_.Find(name)->request) return ViewsNow().JobOf(name);
    return Errorf(StatusCode::kInvalidArgument, "the key was used for another job, %s", name.c_str());
  }
  if (fact.request.name.empty()) {
    if (fact.request.argv.empty()) return Status(StatusCode::kInvalidArgument, "a job without a program");
    fact.request.name = NameFor(fact.request.argv[0]);
  }
  const std::string name = fact.request.name;
  RETURN_IF_ERROR(RecordLocked(fact));
  v1::QueuedJob job = ViewsNow().JobOf(name);
  Tell(std::move(lock));
  return job;
}

Result<v1::QueueReply> SchedulerCore::Queue(const v1::QueueRequest& request) const {
  Lock lock(mutex_);
  if (!request.name().empty() && cluster_.Find(request.name()) == nullptr)
    return Unknown("job", request.name());
  if (!request.tenant().empty() && !cluster_.tenants().contains(request.tenant()))
    return Unknown("tenant", request.tenant());
  return ViewsNow().Queue(request);
}

Result<v1::QueuedJob> SchedulerCore::Cancel(const std::string& job) {
  Lock lock(mutex_);
  RETURN_IF_ERROR(RecordLocked(JobCancelled{job}));
  v1::QueuedJob told = ViewsNow().JobOf(job);
  Tell(std::move(lock));
  return told;
}

v1::TenantsReply SchedulerCore::Tenants() const {
  Lock lock(mutex_);
  return ViewsNow().Tenants();
}

Result<v1::Tenant> SchedulerCore::SetTenant(const v1::SetTenantRequest& request) {
  Lock lock(mutex_);
  RETURN_IF_ERROR(RecordLocked(TenantSet{request.name(), request.weight()}));
  v1::Tenant told = ViewsNow().TenantOf(request.name());
  Tell(std::move(lock));
  return told;
}

v1::NodesReply SchedulerCore::Nodes() const {
  Lock lock(mutex_);
  return ViewsNow().Nodes();
}

Status SchedulerCore::SetDraining(const std::string& node, bool draining, const std::string& reason,
                                  Time deadline) {
  const Cluster::Node* known = cluster_.FindNode(node);
  if (known == nullptr) return Unknown("node", node);
  return RecordLocked(NodeChanged{node, known->reachable, draining, reason, deadline});
}

Result<v1::ClusterNode> SchedulerCore::Drain(const v1::DrainRequest& request) {
  Lock lock(mutex_);
  const Time deadline = request.notice_ms() == 0 ? 0 : Now() + static_cast<Time>(request.notice_ms());
  RETURN_IF_ERROR(SetDraining(request.node(), true, request.reason(), deadline));
  v1::ClusterNode told = ViewsNow().NodeOf(request.node());
  Tell(std::move(lock));
  return told;
}

Result<v1::ClusterNode> SchedulerCore::Undrain(const std::string& node) {
  Lock lock(mutex_);
  RETURN_IF_ERROR(SetDraining(node, false, ""));
  v1::ClusterNode told = ViewsNow().NodeOf(node);
  Tell(std::move(lock));
  return told;
}

Result<v1::ClusterNode> SchedulerCore::SetMaintenance(const v1::SetMaintenanceRequest& request) {
  Lock lock(mutex_);
  if (request.end_ms() != 0 && request.end_ms() <= Now())
    return Status(StatusCode::kInvalidArgument, "the maintenance window is over already");
  RETURN_IF_ERROR(RecordLocked(MaintenanceSet{request.node(), request.start_ms(), request.end_ms()}));
  KeepMaintenance();
  v1::ClusterNode told = ViewsNow().NodeOf(request.node());
  Tell(std::move(lock));
  return told;
}

// ---- Defragmentation

Result<std::vector<Fact>> SchedulerCore::PlanMoves(const v1::DefragmentRequest& request,
                                                   v1::DefragmentReply* reply) const {
  const State& state = cluster_.state();
  const int gpus = static_cast<int>(request.gpus());
  if (const std::optional<Placement> as_it_is = state.devices().Find(gpus, /*max_nodes=*/1)) {
    reply->set_possible(true);
    reply->set_node(cluster_.nodes()[as_it_is->front().node].name);
    return std::vector<Fact>();
  }
  std::vector<JobId> movable;
  for (const auto& [name, entry] : cluster_.jobs()) {
    const bool rests = entry.where == Cluster::Where::kRunning && entry.orders.empty();
    if (!rests || state.job(entry.id).phase != JobPhase::kRunning) continue;
    if (state.IsKept(state.job(entry.id))) continue;
    if (state.devices().usable(state.job(entry.id).placement.front().node)) movable.push_back(entry.id);
  }
  std::sort(movable.begin(), movable.end());
  const std::optional<Defragmentation> plan =
      PlanRoom(state, state.devices(), movable, gpus, /*max_nodes=*/1);
  if (!plan) return std::vector<Fact>();
  reply->set_possible(true);
  reply->set_node(cluster_.nodes()[plan->place.front().node].name);
  reply->set_cost_ms(plan->cost);
  std::vector<Fact> facts;
  for (const Action& action : plan->actions) {
    const Job& job = state.job(action.job);
    Decided decided{action.kind, job.spec.name, {}, ""};
    for (const NodeShare& share : action.to)
      decided.to.push_back({cluster_.nodes()[share.node].name, share.devices});
    facts.emplace_back(std::move(decided));
    if (action.to.empty()) continue;
    v1::DefragmentReply::Move* move = reply->add_moves();
    move->set_job(job.spec.name);
    move->set_from(cluster_.Find(job.spec.name)->node);
    move->set_to(cluster_.nodes()[action.to.front().node].name);
  }
  return facts;
}

Result<v1::DefragmentReply> SchedulerCore::Defragment(const v1::DefragmentRequest& request) {
  Lock lock(mutex_);
  v1::DefragmentReply reply;
  ASSIGN_OR_RETURN(std::vector<Fact> facts, PlanMoves(request, &reply));
  if (request.dry_run() || facts.empty()) return reply;
  const Status stored = StoreAndTake(std::move(facts));
  if (!stored.ok()) return stored;
  RETURN_IF_ERROR(Decide());
  Tell(std::move(lock));
  return reply;
}

}  // namespace stasis::scheduler
