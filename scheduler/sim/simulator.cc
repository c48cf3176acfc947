#include "scheduler/sim/simulator.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <queue>
#include <random>
#include <utility>

namespace stasis::scheduler {

namespace {

Status Check(const SimOptions& options) {
  const ClusterShape& shape = options.shape;
  if (shape.nodes < 1 || shape.nodes > 1 << 20 || shape.devices_per_node < 1 ||
      shape.devices_per_node > static_cast<int>(kMaxDevicesPerNode) || shape.nodes_per_switch < 1)
    return Status(StatusCode::kInvalidArgument, "a cluster of 1 to 1048576 nodes with 1 to 64 devices each");
  if (options.lease <= 0 || options.least_lease <= 0 || options.tick < 0 || options.sample <= 0 ||
      options.fairness_window <= 0)
    return Status(StatusCode::kInvalidArgument, "times must be positive");
  if (!(options.lease_budget >= 0 && options.lease_budget < 1))
    return Status(StatusCode::kInvalidArgument, "the budget of a lease is a part of 1");
  const Habits& habits = options.habits;
  if (!(habits.least_utilization > 0 && habits.least_utilization <= habits.most_utilization &&
        habits.most_utilization <= 1))
    return Status(StatusCode::kInvalidArgument, "utilization is a part of 1, from the least to the most");
  if (!(habits.sharing_loss >= 0 && habits.sharing_loss < 1 && habits.elastic >= 0 && habits.elastic <= 1))
    return Status(StatusCode::kInvalidArgument,
                  "the loss of sharing and the share of elastic jobs are parts of 1");
  return {};
}

Settings SettingsOf(const Trace& trace, const SimOptions& options) {
  Settings settings;
  settings.shape = options.shape;
  settings.tenants = trace.tenants;
  settings.lease = options.lease;
  settings.device_bytes = options.device_bytes;
  settings.move_fixed = options.costs.migrate.Of(0);
  settings.move_bytes_per_second = options.costs.migrate.bytes_per_second;
  return settings;
}

bool Overlap(const Placement& a, const Placement& b) {
  for (const NodeShare& share : a) {
    for (const NodeShare& other : b) {
      if (share.node == other.node && (share.devices & other.devices) != 0) return true;
    }
  }
  return false;
}

class Simulator {
 public:
  Simulator(const Trace& trace, const SimOptions& options, std::unique_ptr<Policy> policy)
      : trace_(trace),
        options_(options),
        policy_(std::move(policy)),
        state_(SettingsOf(trace, options)),
        sliding_(options.shape.total(), trace.tenants, options.fairness_window),
        random_(options.failures.seed),
        habits_(options.habits.seed) {}

  Result<SimResult> Run() {
    const auto start = std::chrono::steady_clock::now();
    result_.tenants = trace_.tenants;
    result_.last_submit = trace_.jobs.back().submit;
    ScheduleFailures();
    while (finished_ < trace_.jobs.size()) {
      const Time next = NextEvent();
      if (next == kNever)
        return Errorf(StatusCode::kInternal, "policy %s leaves %zu jobs waiting for ever",
                      std::string(policy_->name()).c_str(), trace_.jobs.size() - finished_);
      SampleUpTo(next);
      Account(next);
      state_.AdvanceTo(next);
      RETURN_IF_ERROR(HandleEvents());
      Decide();
    }
    result_.end = state_.now();
    result_.jobs = state_.jobs();
    for (TenantId i = 0; i < trace_.tenants.size(); ++i)
      result_.all_time.push_back(state_.ledger().AllTime(i, state_.now()));
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
    result_.wall_seconds = wall.count();
    return std::move(result_);
  }

 private:
  struct Completion {
    Time at = 0;
    JobId job = 0;
    uint32_t run = 0;  // of the job; one that has been stopped since does not count
    bool operator<(const Completion& other) const { return at != other.at ? at > other.at : job > other.job; }
  };
  struct NodeEvent {
    Time at = 0;
    NodeId node = 0;
    bool fails = false;
    bool operator<(const NodeEvent& other) const {
      return at != other.at ? at > other.at : node > other.node;
    }
  };
  // What the simulation knows of a job beside the state.
  struct Extra {
    uint32_t run = 0;
    Time run_began = 0;
    Time kept = 0;  // progress when it was last saved
    Placement paused_on;
    Ledger::Account sliding;
  };

  Time OnTick(Time time) const {
    return options_.tick == 0 ? time : (time + options_.tick - 1) / options_.tick * options_.tick;
  }

  Time NextEvent() {
    Time next = wake_ == kNever ? kNever : OnTick(wake_);
    if (submitted_ < trace_.jobs.size()) next = std::min(next, OnTick(trace_.jobs[submitted_].submit));
    DropStale();
    if (!completions_.empty()) next = std::min(next, OnTick(completions_.top().at));
    if (!node_events_.empty()) next = std::min(next, OnTick(node_events_.top().at));
    return next;
  }

  void DropStale() {
    while (!completions_.empty() && completions_.top().run != extra_[completions_.top().job].run)
      completions_.pop();
  }

  void Account(Time next) {
    const Time until = std::min(next, result_.last_submit);
    const int busy = options_.shape.total() - state_.devices().free() - unusable_;
    if (until > state_.now()) result_.busy += busy * static_cast<double>(until - state_.now());
  }

  void SampleUpTo(Time next) {
    for (; next_sample_ < next && next_sample_ <= result_.last_submit; next_sample_ += options_.sample) {
      Sample sample;
      sample.at = next_sample_;
      sample.busy = options_.shape.total() - state_.devices().free() - unusable_;
      sample.waiting = static_cast<int>(state_.waiting_count());
      for (TenantId i = 0; i < trace_.tenants.size(); ++i) {
        const Ledger::Totals window = sliding_.Window(i, next_sample_);
        // Of less than one device for one lease a ratio says nothing.
        const bool enough = window.deserved >= static_cast<double>(options_.lease);
        sample.fairness.push_back(enough ? window.fairness() : std::numeric_limits<double>::quiet_NaN());
      }
      result_.samples.push_back(std::move(sample));
    }
  }

  Status HandleEvents() {
    const Time now = state_.now();
    for (DropStale(); !completions_.empty() && completions_.top().at <= now; DropStale()) {
      const Completion done = completions_.top();
      completions_.pop();
      Finish(done.job);
    }
    while (!node_events_.empty() && node_events_.top().at <= now) {
      const NodeEvent event = node_events_.top();
      node_events_.pop();
      ChangeNode(event);
    }
    for (; submitted_ < trace_.jobs.size() && trace_.jobs[submitted_].submit <= now; ++submitted_)
      RETURN_IF_ERROR(Submit(trace_.jobs[submitted_]));
    return {};
  }

  Status Submit(JobSpec spec) {
    ++result_.events;
    if (spec.gpus > options_.shape.total()) {
      ++result_.dropped;
      ++finished_;
      return {};
    }
    spec.active_bytes_per_gpu = options_.active_bytes_per_gpu;
    const int width = options_.shape.devices_per_node;
    if (options_.few_nodes) spec.max_nodes = (spec.gpus + width - 1) / width;
    if (options_.lease_budget > 0)
      spec.lease =
          LeaseFor(options_.costs, spec.active_bytes_per_gpu, options_.lease_budget, options_.least_lease);
    DrawHabits(&spec);
    if (options_.failures.mean_time_between != 0) AddImages(&spec);
    ASSIGN_OR_RETURN(const JobId id, state_.Submit(spec));
    extra_.resize(id + 1);
    extra_[id].sliding = sliding_.Arrive(state_.now(), spec);
    return {};
  }

  void DrawHabits(JobSpec* spec) {
    const Habits& habits = options_.habits;
    std::uniform_real_distribution<double> part(0, 1);
    spec->utilization =
        habits.least_utilization + (habits.most_utilization - habits.least_utilization) * part(habits_);
    if (part(habits_) >= habits.elastic) return;
    spec->min_gpus = std::max(1, spec->gpus / 2);
    spec->max_gpus = std::min(2 * spec->gpus, options_.shape.total());
  }

  // The standstills of its images lengthen a job.
  void AddImages(JobSpec* spec) {
    const Time images = spec->duration / options_.failures.checkpoint_interval;
    const Time cost = images * options_.costs.checkpoint.Of(spec->active_bytes_per_gpu);
    spec->duration += cost;
    result_.overhead += spec->gpus * static_cast<double>(cost);
  }

  void Finish(JobId id) {
    ++result_.events;
    EndSpan(id);
    const JobId partner = state_.job(id).packed_with;
    state_.Finish(id);
    Alone(partner);
    sliding_.Leave(state_.now(), state_.job(id).spec, &extra_[id].sliding);
    ++extra_[id].run;
    ++finished_;
  }

  // ---- Decisions

  void Decide() {
    ++result_.decisions;
    const Decision decision = policy_->Decide(state_, last_);
    const Time before = last_;
    last_ = state_.now();
    std::erase_if(leaving_, [this](const auto& one) { return one.second <= state_.now(); });
    for (const Action& action : decision.actions) Carry(action, before);
    wake_ = decision.wake;
  }

  void Carry(const Action& action, Time before) {
    ++result_.events;
    const Job& job = state_.job(action.job);
    if (action.kind == ActionKind::kPause) return Pause(action, before);
    if (action.kind == ActionKind::kPack) return Pack(action);
    const Time stall = StallOf(action);
    if (job.phase == JobPhase::kRunning) {
      EndSpan(action.job);
      Leaves(job, options_.costs.migrate);
    }
    state_.Apply(action, stall);
    Began(action.job, stall);
  }

  void Pack(const Action& action) {
    const Time stall = StallOf(action);
    state_.Apply(action, stall);
    Began(action.job, stall);
    const double wanted = state_.job(action.job).spec.utilization + state_.job(action.with).spec.utilization;
    const double rate = (1 - options_.habits.sharing_loss) / std::max(1.0, wanted);
    for (const JobId id : {action.job, action.with}) SetRate(id, rate);
    ++result_.packed;
  }

  void SetRate(JobId id, double rate) {
    state_.SetRate(id, rate);
    Reschedule(id);
  }

  // It shares its devices no longer: the other one has left.
  void Alone(JobId partner) {
    if (partner != kNoJob) Reschedule(partner);
  }

  void Pause(const Action& action, Time before) {
    const Job& job = state_.job(action.job);
    const JobId partner = job.packed_with;
    Extra& extra = extra_[action.job];
    EndSpan(action.job);
    extra.paused_on = job.placement;
    Leaves(job, options_.costs.pause);
    // A guest has no lease of its own.
    const bool cut = !job.guest && !state_.LeaseEndedSince(job, before);
    result_.lease_cuts += cut ? 1 : 0;
    const int gpus = job.gpus;
    const Time done = cut && options_.lose_running_lease ? DoneInLease(job, extra) : 0;
    const Time kept = state_.ProgressOf(job) - done;
    result_.lost += gpus * static_cast<double>(done);
    state_.Apply(action, 0);
    Alone(partner);
    if (done > 0) state_.SetProgress(action.job, kept);
    extra.kept = kept;
    ++extra.run;
    sliding_.Hold(state_.now(), &extra.sliding, 0);
  }

  Time DoneInLease(const Job& job, const Extra& extra) const {
    const Time lease = job.spec.lease != 0 ? job.spec.lease : options_.lease;
    const Time began = std::max({state_.NextLeaseEnd(job) - lease, job.progress_at, extra.run_began});
    return std::max<Time>(0, state_.now() - began);
  }

  // Its devices are free for others when it has gone, and it goes once it has come.
  void Leaves(const Job& job, const CostLine& cost) {
    const Time begins = std::max(state_.now(), job.progress_at);
    leaving_.emplace_back(job.placement, begins + cost.Of(job.spec.active_bytes_per_gpu));
  }

  // What the job waits for on its devices: whoever is still leaving them, and its own coming.
  Time StallOf(const Action& action) const {
    const Job& job = state_.job(action.job);
    const int64_t bytes = job.spec.active_bytes_per_gpu;
    Time leaving = 0;
    for (const auto& [placement, until] : leaving_) {
      if (Overlap(placement, action.to)) leaving = std::max(leaving, until - state_.now());
    }
    switch (action.kind) {
      case ActionKind::kPack:
        if (job.phase == JobPhase::kPending) return leaving;
        [[fallthrough]];
      case ActionKind::kResume:
        return leaving + ComingBack(action).Of(bytes);
      case ActionKind::kMigrate:
      case ActionKind::kResize:
        return leaving + options_.costs.migrate.Of(bytes);
      case ActionKind::kStart:
      case ActionKind::kPause:
        return leaving;
    }
    return 0;
  }

  // What was paused is in the memory of its nodes; to others it moves.
  const CostLine& ComingBack(const Action& action) const {
    if (state_.job(action.job).evicted) return options_.costs.restart;
    const bool same =
        std::equal(action.to.begin(), action.to.end(), extra_[action.job].paused_on.begin(),
                   extra_[action.job].paused_on.end(),
                   [](const NodeShare& to, const NodeShare& from) { return to.node == from.node; });
    return same ? options_.costs.resume : options_.costs.migrate;
  }

  void Began(JobId id, Time stall) {
    const Job& job = state_.job(id);
    extra_[id].run_began = state_.now();
    result_.overhead += job.gpus * static_cast<double>(stall);
    Reschedule(id);
  }

  // When it ends at the rate that it has now.
  void Reschedule(JobId id) {
    const Job& job = state_.job(id);
    Extra& extra = extra_[id];
    ++extra.run;
    sliding_.Hold(state_.now(), &extra.sliding, job.packed_with != kNoJob ? job.gpus / 2.0 : job.gpus);
    if (job.rate == 0) return;
    const double left = std::ceil(static_cast<double>(job.spec.duration - job.progress) / job.rate);
    completions_.push({job.progress_at + static_cast<Time>(left), id, extra.run});
  }

  void EndSpan(JobId id) {
    const Job& job = state_.job(id);
    result_.spans.push_back({id, extra_[id].run_began, state_.now(), job.placement});
  }

  // ---- Failures

  Time Exponential() {
    std::exponential_distribution<double> time(1.0 /
                                               static_cast<double>(options_.failures.mean_time_between));
    return static_cast<Time>(time(random_)) + 1;
  }

  void ScheduleFailures() {
    if (options_.failures.mean_time_between == 0) return;
    for (NodeId node = 0; node < static_cast<NodeId>(options_.shape.nodes); ++node)
      node_events_.push({Exponential(), node, true});
  }

  void ChangeNode(const NodeEvent& event) {
    ++result_.events;
    if (!event.fails) {
      state_.SetNodeUsable(event.node, true);
      unusable_ -= options_.shape.devices_per_node;
      node_events_.push({state_.now() + Exponential(), event.node, true});
      return;
    }
    ++result_.node_failures;
    const std::vector<JobId> running = state_.running();
    for (const JobId id : running) {
      const Placement& placement = state_.job(id).placement;
      const bool hit = std::any_of(placement.begin(), placement.end(),
                                   [&](const NodeShare& share) { return share.node == event.node; });
      if (hit) Lose(id);
    }
    state_.SetNodeUsable(event.node, false);
    unusable_ += options_.shape.devices_per_node;
    node_events_.push({state_.now() + options_.failures.repair, event.node, false});
  }

  // Back to the last image that the interval has left, or that a pause has.
  void Lose(JobId id) {
    const Job& job = state_.job(id);
    Extra& extra = extra_[id];
    const Time progress = state_.ProgressOf(job);
    const Time since = (progress - extra.kept) % options_.failures.checkpoint_interval;
    result_.lost += job.gpus * static_cast<double>(since);
    extra.kept = progress - since;
    EndSpan(id);
    const JobId partner = job.packed_with;
    state_.Evict(id, extra.kept);
    Alone(partner);
    ++extra.run;
    sliding_.Hold(state_.now(), &extra.sliding, 0);
  }

  const Trace& trace_;
  const SimOptions& options_;
  const std::unique_ptr<Policy> policy_;
  State state_;
  Ledger sliding_;  // the same accounts over the window of the report
  std::mt19937_64 random_;
  std::mt19937_64 habits_;
  SimResult result_;
  std::priority_queue<Completion> completions_;
  std::priority_queue<NodeEvent> node_events_;
  std::vector<Extra> extra_;
  std::vector<std::pair<Placement, Time>> leaving_;  // until when
  size_t submitted_ = 0, finished_ = 0;
  Time wake_ = kNever, last_ = -1, next_sample_ = 0;
  int unusable_ = 0;
};

}  // namespace

Result<SimResult> Simulate(const Trace& trace, const SimOptions& options) {
  RETURN_IF_ERROR(Check(options));
  if (trace.jobs.empty()) return Status(StatusCode::kInvalidArgument, "the trace has no job");
  ASSIGN_OR_RETURN(std::unique_ptr<Policy> policy, MakePolicy(options.policy));
  return Simulator(trace, options, std::move(policy)).Run();
}

}  // namespace stasis::scheduler
