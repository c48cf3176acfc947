#include "scheduler/daemon/driver.h"

#include <algorithm>
#include <utility>

#include "base/log/log.h"
#include "proto/rpc/fencing.h"
#include "scheduler/daemon/job_log.h"

namespace stasis::scheduler {
namespace {

constexpr Duration kFirstRetry = std::chrono::milliseconds(100), kLastRetry = std::chrono::seconds(2);
constexpr Duration kForever = std::chrono::hours(24);
constexpr int kMostAttempts = 5;  // of an operation that was given up by somebody else

Status NotWanted() { return Status(StatusCode::kCancelled, "it is not wanted any more"); }

std::string StaleKey(const std::string& job, uint64_t revision) {
  return "stale-" + job + "-" + std::to_string(revision);
}

int64_t LeastMemory(const v1::DevicesResponse& devices) {
  uint64_t least = 0;
  for (const v1::Device& device : devices.devices())
    least = least == 0 ? device.memory_bytes() : std::min(least, device.memory_bytes());
  return static_cast<int64_t>(least);
}

}  // namespace

Driver::Driver(SchedulerCore& core, Options options)
    : core_(core), options_(std::move(options)), images_(core, errands_, *this) {
  subscription_ = core_.Subscribe([this] { errands_.Wake(); });
  // Nothing is concluded from what agents tell of a job before it is known what has become of its order.
  for (const Order& order : core_.Ready())
    StartJobErrand(order.job,
                   [this, order, begun = order.number <= core_.before_reign()] { Carry(order, begun); });
  std::vector<Cluster::Node> nodes;
  core_.Look([&](const Cluster& cluster) { nodes = cluster.nodes(); });
  for (const Cluster::Node& node : nodes) {
    // The jobs of one that is lost may not all have been told of.
    if (!node.reachable) LoseJobs(node.name);
    StartKeeper(node.name, node.address, node.agent_id, node.kind, !node.reachable);
  }
  loop_ = std::thread([this] { Loop(); });
}

Driver::~Driver() {
  subscription_.reset();
  errands_.End();
  std::vector<std::unique_ptr<NodeKeeper>> keepers;
  {
    std::lock_guard lock(mutex_);
    for (auto& [name, node] : nodes_) {
      if (node.link != nullptr) node.link->Stop();
      keepers.push_back(std::move(node.keeper));
    }
  }
  loop_.join();
  keepers.clear();
  errands_.EndAndJoin();
}

// ---- The loop

void Driver::Loop() {
  while (!errands_.ending()) {
    errands_.Reap();
    const uint64_t seen = errands_.changes();
    const Duration wait = core_.Tick();
    HeedNotices();
    LeaveDrained();
    const Duration again = PutRightAgain();
    for (const Order& order : core_.Ready())
      StartJobErrand(order.job, [this, order] { Carry(order, /*begun=*/false); });
    errands_.AwaitChange(seen, std::min({wait, again, kForever}));
  }
}

// Copies on a node that will be gone are none.
void Driver::HeedNotices() {
  std::set<std::string> leaving;
  core_.Look([&](const Cluster& cluster) {
    for (const Cluster::Node& node : cluster.nodes()) {
      if (node.deadline != 0) leaving.insert(node.name);
    }
  });
  if (leaving == leaving_) return;
  leaving_ = std::move(leaving);
  images_.CopyAll();
}

// Who is paused on a node that is drained now has told nothing new.
void Driver::LeaveDrained() {
  std::vector<std::pair<std::string, std::string>> paused;
  core_.Look([&](const Cluster& cluster) {
    const std::vector<Cluster::Node>& nodes = cluster.nodes();
    const auto drained = [](const Cluster::Node& node) { return node.draining && node.reachable; };
    if (std::none_of(nodes.begin(), nodes.end(), drained)) return;
    for (const auto& [name, entry] : cluster.jobs()) {
      if (entry.where == Cluster::Where::kPaused && drained(*cluster.FindNode(entry.node)))
        paused.emplace_back(entry.node, name);
    }
  });
  for (const auto& [node, job] : paused) Examine(node, job);
}

bool Driver::StartJobErrand(const std::string& job, std::function<void()> work) {
  // What agents have told meanwhile was not looked at.
  return errands_.Start(job, std::move(work), [this, job] { ExamineEverywhere(job); });
}

// ---- Orders

StepSettings Driver::Settings() const {
  return {options_.checkpoint_interval, [this](const std::string& node) { return PeerAddress(node); }};
}

std::string Driver::PeerAddress(const std::string& node) const {
  std::lock_guard lock(mutex_);
  const auto found = nodes_.find(node);
  return found == nodes_.end() ? "" : found->second.peer_address;
}

std::shared_ptr<AgentLink> Driver::LinkOf(const std::string& node) const {
  std::lock_guard lock(mutex_);
  const auto found = nodes_.find(node);
  return found == nodes_.end() ? nullptr : found->second.link;
}

std::vector<std::pair<std::string, v1::Job>> Driver::PicturesOf(const std::string& job) const {
  std::vector<std::pair<std::string, v1::Job>> pictures;
  std::lock_guard lock(mutex_);
  for (const auto& [name, node] : nodes_) {
    if (job.empty()) {
      for (const auto& each : node.jobs) pictures.emplace_back(name, each.second);
    } else if (const auto found = node.jobs.find(job); found != node.jobs.end()) {
      pictures.emplace_back(name, found->second);
    }
  }
  return pictures;
}

v1::Change Driver::ChangeOf(const std::string& key) const {
  v1::Change change;
  change.set_idempotency_key(core_.cluster_id() + "-" + key);
  change.set_fence(core_.reign());
  return change;
}

Time Driver::Now() const {
  Time at = 0;
  core_.LookNow([&](const Cluster&, Time now) { at = now; });
  return at;
}

bool Driver::Record(const Fact& fact) {
  for (;;) {
    const Result<uint64_t> number = core_.Record(fact);
    if (number.ok()) return true;
    const StatusCode code = number.status().code();
    if (code == StatusCode::kNotFound || code == StatusCode::kFailedPrecondition) return false;
    if (code == StatusCode::kInvalidArgument) {  // an agent has told what cannot be
      Log(LogLevel::kError, "driver", "is no fact", {{"why", number.status().ToString()}});
      return false;
    }
    Log(LogLevel::kError, "driver", "cannot be recorded", {{"why", number.status().ToString()}});
    if (!errands_.Wait(kLastRetry, [] { return true; })) return false;
  }
}

// `begun`: an agent may have been asked for it before, and have done it.
void Driver::Carry(const Order& order, bool begun) {
  const Alive alive = [this, number = order.number] {
    bool there = false;
    core_.Look([&](const Cluster& cluster) { there = cluster.FindOrder(number).has_value(); });
    return there;
  };
  if (!alive() || (!begun && ComesFromElsewhere(order, alive))) return;
  Log(LogLevel::kInfo, "driver", "order",
      {{"number", order.number},
       {"order", OrderKindName(order.kind)},
       {"job", order.job},
       {"node", order.node},
       {"target", order.target}});
  bool image = false;
  Patience patience;
  const Status outcome = CarryOut(order, alive, &patience, &image);
  if (outcome.code() == StatusCode::kCancelled && !errands_.Wait(Duration::zero(), alive)) return;
  ReportEnd(order, outcome, image, patience.over);
}

// What its node's loss has left a job with may not be the best that there is.
bool Driver::ComesFromElsewhere(const Order& order, const Alive& alive) {
  const std::string node = images_.BetterNodeThan(order, alive);
  if (node.empty() || !alive()) return false;
  Log(LogLevel::kInfo, "driver", "comes back from another image", {{"job", order.job}, {"node", node}});
  return Record(JobLost{order.job, node, "its newest image is on node " + node, /*program_failed=*/false,
                        /*planned=*/true});
}

void Driver::ReportEnd(const Order& order, const Status& outcome, bool image, bool late) {
  Log(outcome.ok() ? LogLevel::kInfo : LogLevel::kWarning, "driver", "order ended",
      {{"number", order.number}, {"job", order.job}, {"outcome", outcome.ToString()}});
  const bool comes = order.kind == OrderKind::kRun || order.kind == OrderKind::kRestore ||
                     (order.kind == OrderKind::kMigrate && order.node != order.target);
  if (outcome.ok() && comes) SetSchedule(order);
  // What the agents have told before is older than this.
  Refresh(order.node, order.job);
  if (!order.target.empty() && order.target != order.node) Refresh(order.target, order.job);
  Record(OrderEnded{order.number, outcome.ok(), std::string(outcome.message()), image && outcome.ok(), late});
}

// Where agents reach another one is known once it was met; a scheduler that has just started has met none.
Status Driver::AwaitPeer(const std::string& node, const Alive& alive) {
  for (Duration wait = kFirstRetry; PeerAddress(node).empty(); wait = std::min(wait * 2, kLastRetry)) {
    if (LinkOf(node) != nullptr && PeerAddress(node).empty())
      return Status(StatusCode::kFailedPrecondition,
                    "other agents do not reach node " + node + ": its agent has no --peer-address");
    if (!errands_.Wait(wait, alive)) return NotWanted();
  }
  return Status();
}

// `*image`: a pause has made one.
Status Driver::CarryOut(const Order& order, const Alive& alive, Patience* patience, bool* image) {
  if (order.node != order.target && !order.target.empty()) RETURN_IF_ERROR(AwaitPeer(order.target, alive));
  std::vector<Step> steps;
  core_.Look([&](const Cluster& cluster) {
    steps = StepsOf(cluster, order, Settings());
    // The node may be drained at any moment, or not be so any more.
    *image = PausesAsImage(cluster, order);
  });
  // For the devices of a node that is drained nobody waits, and how long a move takes goes by its size.
  patience->longest = order.kind == OrderKind::kPause && !*image ? options_.pause_timeout : 0;
  for (const Step& step : steps) {
    std::string key = std::to_string(order.number);
    if (!step.key.empty()) key += "-" + step.key;
    // A node that is not reached any more is looked at when it is back.
    if (step.may_fail && step.node != order.target && LinkOf(step.node) == nullptr) continue;
    if (step.clears && images_.IsOthers(step.node, order.job)) continue;
    if (step.comes) images_.MakeRoomFor(order, alive);
    const Status done = PerformWith(step, key, alive, patience);
    if (!done.ok() && step.may_fail)
      Log(LogLevel::kDebug, "driver", "a step has failed",
          {{"number", order.number}, {"step", step.key}, {"outcome", done.ToString()}});
    if (done.ok() || step.may_fail) continue;
    if (order.kind == OrderKind::kCancel && CancelIsDone(order, alive)) continue;
    return done;
  }
  return Status();
}

// What cannot be cancelled because it does not live any more needs no cancelling.
bool Driver::CancelIsDone(const Order& order, const Alive& alive) {
  for (Duration wait = kFirstRetry; errands_.Wait(wait, alive); wait = std::min(wait * 2, kLastRetry)) {
    const std::shared_ptr<AgentLink> link = LinkOf(order.node);
    if (link == nullptr) continue;
    const Result<std::optional<v1::Job>> job = link->Find(order.job);
    if (job.ok()) return !*job || !(*job)->live();
  }
  return false;
}

Result<v1::Operation> Driver::Ask(AgentLink& link, const Step& step, const std::string& key) {
  AgentRequest request = step.request;
  SetChange(ChangeOf(key), &request);
  ASSIGN_OR_RETURN(const v1::Operation begun, link.Begin(request));
  return link.Await(begun.id());
}

// Asked again with the same key until an answer comes: an agent starts it once.
Status Driver::PerformWith(const Step& step, const std::string& key, const Alive& alive, Patience* patience) {
  const Time began = Now();
  int attempt = 1;
  for (Duration wait = kFirstRetry;; wait = std::min(wait * 2, kLastRetry)) {
    if (!errands_.Wait(Duration::zero(), alive)) return NotWanted();
    if (const std::shared_ptr<AgentLink> link = LinkOf(step.node)) {
      const std::string this_key = attempt == 1 ? key : key + "-" + std::to_string(attempt);
      const Result<v1::Operation> ended = Ask(*link, step, this_key);
      if (ended.ok()) {
        const Status outcome = OutcomeOf(*ended);
        if (outcome.code() != StatusCode::kCancelled || ++attempt > kMostAttempts) return outcome;
      } else if (IsFencedOff(ended.status())) {
        Halt(ended.status());
        return NotWanted();
      } else if (!MayBeTriedAgain(ended.status())) {
        return ended.status();
      }
      // It goes on, and it is seen whether it is still wanted.
      if (ended.status().code() == StatusCode::kTimeout) {
        const bool over = patience->longest > 0 && Now() - began >= patience->longest;
        if (!over) continue;
        const std::optional<Status> outcome = GiveUp(*link, step, this_key, patience->longest);
        if (!outcome) continue;
        patience->over = outcome->code() == StatusCode::kTimeout;
        return *outcome;
      }
    }
    if (!errands_.Wait(wait, alive)) return NotWanted();
  }
}

Status Driver::Perform(const Step& step, const std::string& key, const Alive& alive) {
  Patience endless;
  return PerformWith(step, key, alive, &endless);
}

// How it has ended after all, else kTimeout: then it may still end later, and what it does is put right then.
// Nothing: the agent was not heard.
std::optional<Status> Driver::GiveUp(AgentLink& link, const Step& step, const std::string& key,
                                     Time longest) {
  AgentRequest request = step.request;
  SetChange(ChangeOf(key), &request);
  const Result<v1::Operation> begun = link.Begin(request);  // of this key: the one that goes on
  if (!begun.ok() || !link.GiveUp(begun->id()).ok()) return std::nullopt;
  const Result<v1::Operation> ended = link.Await(begun->id());
  if (ended.ok()) {
    Status outcome = OutcomeOf(*ended);
    if (outcome.ok()) return outcome;
  }
  return Errorf(StatusCode::kTimeout, "job %s has not paused within %lld s", JobOf(step.request).c_str(),
                static_cast<long long>(longest / kSecond));
}

void Driver::Halt(const Status& why) {
  if (errands_.End()) options_.fenced_off(why);
}

// It stays with the agent that was told of it.
void Driver::SetSchedule(const Order& order) {
  v1::SetScheduleRequest request;
  core_.Look([&](const Cluster& cluster) {
    *request.mutable_schedule() = ScheduleOf(cluster.Find(order.job)->request, Settings());
  });
  if (request.schedule().interval_ms() == 0) return;
  *request.mutable_change() = ChangeOf(std::to_string(order.number) + "-schedule");
  const std::shared_ptr<AgentLink> link = LinkOf(order.target);
  const Status set =
      link == nullptr ? Status(StatusCode::kUnavailable, "not connected") : link->SetSchedule(request);
  if (!set.ok())
    Log(LogLevel::kWarning, "driver", "runs without its schedule", Facts(order.target, order.job, set));
}

bool Driver::Refresh(const std::string& node, const std::string& job) {
  const std::shared_ptr<AgentLink> link = LinkOf(node);
  if (link == nullptr) return false;
  const Result<std::optional<v1::Job>> now = link->Find(job);
  if (!now.ok()) return false;
  std::lock_guard lock(mutex_);
  const auto found = nodes_.find(node);
  if (found == nodes_.end() || found->second.link != link) return false;
  Pictures& jobs = found->second.jobs;
  const auto known = jobs.find(job);
  if (!*now) {
    jobs.erase(job);
  } else if (known == jobs.end() || known->second.revision() <= (*now)->revision()) {
    // What has been told while this answer was on its way is newer, and is told once.
    jobs[job] = **now;
  }
  return true;
}

bool Driver::IsKnown(const std::string& node, const std::string& job) const {
  std::lock_guard lock(mutex_);
  const auto found = nodes_.find(node);
  return found != nodes_.end() && found->second.jobs.contains(job);
}

// ---- Nodes

void Driver::StartKeeper(const std::string& node, const std::string& address, const std::string& agent_id,
                         const std::string& kind, bool lost) {
  NodeKeeper::Options options;
  options.node = node;
  options.address = address;
  options.kind = kind;
  options.lost = lost;
  options.timeout = options_.node_timeout;
  options.progress_window = options_.progress_window;
  options.connect = options_.connect;
  std::lock_guard lock(mutex_);
  if (errands_.ending()) return;
  Node& entry = nodes_[node];
  entry.address = address;
  entry.agent_id = agent_id;
  entry.kind = kind;
  entry.keeper = std::make_unique<NodeKeeper>(std::move(options), *this);
}

Status Driver::Join(const v1::JoinRequest& request) {
  RETURN_IF_ERROR(ParseEndpoint(request.address()).status());
  std::lock_guard one(join_);
  const std::string kind = request.device() == "auto" ? "" : request.device();
  std::unique_ptr<NodeKeeper> replaced;
  {
    std::lock_guard lock(mutex_);
    const auto found = nodes_.find(request.node());
    if (found != nodes_.end()) {
      Node& node = found->second;
      const bool other = !node.agent_id.empty() && node.agent_id != request.agent_id();
      if (other && node.link != nullptr)
        return Errorf(StatusCode::kFailedPrecondition, "another agent is node %s", request.node().c_str());
      if (!other && node.address == request.address()) return Status();
      if (node.link != nullptr) node.link->Stop();
      replaced = std::move(node.keeper);
    }
  }
  // Its threads use what is known of the node.
  replaced.reset();
  bool lost = false;
  core_.Look([&](const Cluster& cluster) {
    const Cluster::Node* node = cluster.FindNode(request.node());
    lost = node == nullptr || !node->reachable;
  });
  Log(LogLevel::kInfo, "node", "joins", {{"node", request.node()}, {"address", request.address()}});
  StartKeeper(request.node(), request.address(), request.agent_id(), kind, lost);
  return Status();
}

Status Driver::Admit(const std::string& node, const v1::NodeInfo& info,
                     const v1::DevicesResponse& devices) const {
  {
    std::lock_guard lock(mutex_);
    const Node& known = nodes_.at(node);
    if (!known.agent_id.empty() && known.agent_id != info.agent_id())
      return Status(StatusCode::kFailedPrecondition, "it is another agent than the one that has joined");
  }
  Status status;
  core_.Look([&](const Cluster& cluster) {
    status = cluster.Check(Fact(NodeJoined{node, "", devices.devices_size()}));
  });
  return status;
}

Status Driver::Met(const std::string& node, const v1::NodeInfo& info, const v1::DevicesResponse& devices,
                   const std::shared_ptr<AgentLink>& link, const Pictures& jobs) {
  RETURN_IF_ERROR(Admit(node, info, devices));
  RETURN_IF_ERROR(EndStale(node, link, jobs));
  {
    std::lock_guard lock(mutex_);
    if (errands_.ending()) return Status(StatusCode::kCancelled, "the scheduler ends");
    Node& entry = nodes_.at(node);
    entry.link = link;
    entry.jobs = jobs;
    entry.peer_address = info.peer_address();
  }
  RecordNode(node, info, devices);
  ExamineAll(node);
  images_.CopyAll();
  errands_.Wake();
  return Status();
}

void Driver::RecordNode(const std::string& node, const v1::NodeInfo& info,
                        const v1::DevicesResponse& devices) {
  NodeJoined joined{node, "", devices.devices_size(), info.agent_id(), devices.kind(), LeastMemory(devices)};
  {
    std::lock_guard lock(mutex_);
    joined.address = nodes_.at(node).address;
  }
  bool known = false;
  std::optional<NodeChanged> back;
  core_.Look([&](const Cluster& cluster) {
    const Cluster::Node* before = cluster.FindNode(node);
    known = before != nullptr && before->address == joined.address && before->agent_id == joined.agent_id &&
            before->kind == joined.kind && before->device_bytes == joined.device_bytes;
    if (before != nullptr && !before->reachable)
      back =
          NodeChanged{node, true, before->draining, before->draining ? before->reason : "", before->deadline};
  });
  if (!known) Record(joined);
  if (back) Record(*back);
}

// Before anything new comes to a node that was away, what is not its any more has gone.
Status Driver::EndStale(const std::string& node, const std::shared_ptr<AgentLink>& link,
                        const Pictures& jobs) {
  for (const auto& picture : jobs) {
    const std::string& name = picture.first;
    const v1::Job& job = picture.second;
    bool stale = false;
    core_.Look([&](const Cluster& cluster) { stale = Conclude(cluster, name, node, job).forget; });
    if (!stale || errands_.Busy(name)) continue;
    Log(LogLevel::kInfo, "node", "ends a copy that was given up", {{"node", node}, {"job", name}});
    v1::CancelRequest cancel;
    cancel.set_job(name);
    RETURN_IF_ERROR(Ask(*link, {node, cancel, "", false}, StaleKey(name, job.revision())).status());
  }
  return Status();
}

void Driver::Parted(const std::string& node) {
  {
    std::lock_guard lock(mutex_);
    const auto found = nodes_.find(node);
    if (found != nodes_.end()) found->second.link = nullptr;
  }
  errands_.Wake();
}

void Driver::Lost(const std::string& node) {
  std::optional<NodeChanged> lost;
  core_.Look([&](const Cluster& cluster) {
    const Cluster::Node* known = cluster.FindNode(node);
    if (known == nullptr || !known->reachable) return;
    // Who has drained it, and why, says whether it is undrained again.
    lost = NodeChanged{node, false, known->draining, known->draining ? known->reason : "not reached",
                       known->deadline};
  });
  if (!lost) return;
  Log(LogLevel::kWarning, "node", "lost", {{"node", node}});
  Record(*lost);
  LoseJobs(node);
  images_.CopyAllAgain();
}

// All that is there, comes from there or goes there.
void Driver::LoseJobs(const std::string& node) {
  std::unique_lock one(examine_);
  std::vector<JobLost> facts;
  core_.Look([&](const Cluster& cluster) {
    for (const auto& [name, entry] : cluster.jobs()) {
      if (entry.where == Cluster::Where::kEnded) continue;
      bool lost = entry.node == node;
      for (const uint64_t number : entry.orders) {
        const Order order = *cluster.FindOrder(number);
        lost = lost || order.node == node || order.target == node;
      }
      if (lost)
        facts.push_back(JobLost{name, ImageNodeOf(cluster, entry, node), "node " + node + " is lost"});
    }
  });
  for (const JobLost& fact : facts) {
    // It may come back with its node.
    if (fact.image_node.empty() && HasImage(node, fact.job)) Record(ImageKept{fact.job, node});
    Record(fact);
  }
  one.unlock();
  // Another node may have a copy of what was on its way.
  for (const JobLost& fact : facts) ExamineEverywhere(fact.job);
}

bool Driver::HasImage(const std::string& node, const std::string& job) const {
  std::lock_guard lock(mutex_);
  const auto found = nodes_.find(node);
  if (found == nodes_.end()) return false;
  const auto known = found->second.jobs.find(job);
  return known != found->second.jobs.end() && !known->second.last_image().empty();
}

}  // namespace stasis::scheduler
