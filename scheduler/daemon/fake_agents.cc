#include "scheduler/daemon/fake_agents.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "proto/rpc/fencing.h"

namespace stasis::scheduler {
namespace {

constexpr auto kGiveUp = std::chrono::seconds(20);
constexpr auto kAwait = std::chrono::milliseconds(200);

Status Down() { return Status(StatusCode::kUnavailable, "nobody answers"); }

}  // namespace

class FakeLink final : public AgentLink {
 public:
  FakeLink(FakeAgents& agents, std::string node) : all_(agents), node_(std::move(node)) {}

  Result<v1::NodeInfo> Info(Duration) override {
    std::lock_guard lock(all_.mutex_);
    if (Gone()) return Down();
    v1::NodeInfo info;
    info.set_name(node_);
    info.set_agent_id("id-" + node_);
    info.set_peer_address(node_);
    return info;
  }
  Result<v1::DevicesResponse> Devices(const std::string&) override {
    std::lock_guard lock(all_.mutex_);
    if (Gone()) return Down();
    v1::DevicesResponse devices;
    devices.set_kind("soft");
    for (int i = 0; i < Agent().devices; ++i) devices.add_devices()->set_ordinal(static_cast<uint32_t>(i));
    return devices;
  }
  Result<v1::ProgressResponse> Progress(Duration, Duration) override {
    std::lock_guard lock(all_.mutex_);
    if (Gone()) return Down();
    v1::ProgressResponse progress;
    for (const auto& [name, job] : Agent().jobs) {
      const auto rate = all_.rates_.find(name);
      if (job.condition() != v1::CONDITION_RUNNING || rate == all_.rates_.end()) continue;
      v1::JobProgress* told = progress.add_jobs();
      told->set_job(name);
      told->set_rate(rate->second);
      told->set_unit("launches");
      told->set_over_ms(1);
    }
    return progress;
  }
  Result<std::optional<v1::Job>> Find(const std::string& job) override {
    std::unique_lock lock(all_.mutex_);
    ++Agent().waiting;
    AwaitNot(FakeAgents::Late::kQuestions, lock);
    std::optional<v1::Job> answer;
    const auto found = Agent().jobs.find(job);
    if (found != Agent().jobs.end()) answer = found->second;
    AwaitNot(FakeAgents::Late::kAnswers, lock);
    --Agent().waiting;
    if (Gone()) return Down();
    return answer;
  }
  Status Watch(const std::function<void(const v1::WatchEvent&)>& event) override {
    uint64_t told = 0;
    for (bool caught_up = false;; caught_up = true) {
      std::vector<v1::WatchEvent> events;
      {
        std::unique_lock lock(all_.mutex_);
        all_.changed_.wait(lock, [&] { return Gone() || Agent().revision > told || !caught_up; });
        if (Gone()) return Down();
        for (const auto& [name, job] : Agent().jobs) {
          if (job.revision() > told) *events.emplace_back().mutable_job() = job;
        }
        told = Agent().revision;
      }
      if (!caught_up) {
        events.emplace_back().set_caught_up(true);
        events.back().set_complete(true);
      }
      for (const v1::WatchEvent& each : events) event(each);
      std::lock_guard lock(all_.mutex_);
      Agent().told = std::max(Agent().told, told);
      all_.changed_.notify_all();
    }
  }
  Result<v1::Operation> Begin(const AgentRequest& request) override {
    std::lock_guard lock(all_.mutex_);
    if (Gone()) return Down();
    return all_.Begin(Agent(), request);
  }
  Result<v1::Operation> Await(const std::string& operation) override {
    std::unique_lock lock(all_.mutex_);
    const auto ended = [&] { return Agent().operations[operation].state() >= v1::OPERATION_STATE_SUCCEEDED; };
    ++Agent().asked;
    all_.changed_.wait_for(lock, kAwait, [&] { return Gone() || ended(); });
    if (Gone()) return Down();
    if (!ended()) return Status(StatusCode::kTimeout, "it goes on");
    return Agent().operations[operation];
  }
  Result<v1::ImagesResponse> Images(const std::string& job) override {
    std::lock_guard lock(all_.mutex_);
    if (Gone()) return Down();
    v1::ImagesResponse told;
    const auto found = Agent().images.find(job);
    if (found == Agent().images.end()) return told;
    told.add_images()->set_job(job);
    told.mutable_images(0)->set_created_ms(found->second);
    const auto on_record = Agent().jobs.find(job);
    if (on_record != Agent().jobs.end()) told.mutable_images(0)->set_id(on_record->second.last_image());
    return told;
  }
  Status GiveUp(const std::string& operation) override {
    std::lock_guard lock(all_.mutex_);
    if (Gone()) return Down();
    Agent().started.push_back("give up " + Agent().operations[operation].verb() + " " +
                              Agent().operations[operation].job());
    const auto given_up = [&](const auto& each) {
      return each.first == node_ && each.second.first == operation;
    };
    if (all_.obedient_ && std::erase_if(all_.waiting_, given_up) > 0)
      Agent().operations[operation].set_state(v1::OPERATION_STATE_CANCELLED);
    all_.changed_.notify_all();
    return Status();
  }
  Status SetSchedule(const v1::SetScheduleRequest& request) override {
    std::lock_guard lock(all_.mutex_);
    if (Gone()) return Down();
    Agent().started.push_back("schedule " + request.schedule().job());
    return Status();
  }
  void Stop() override {
    std::lock_guard lock(all_.mutex_);
    stopped_ = true;
    all_.changed_.notify_all();
  }

 private:
  FakeAgents::Agent& Agent() { return all_.agents_.at(node_); }
  bool Gone() { return stopped_ || Agent().down; }
  void AwaitNot(FakeAgents::Late late, std::unique_lock<std::mutex>& lock) {
    all_.changed_.notify_all();
    all_.changed_.wait(lock, [&] { return Gone() || Agent().late != late; });
  }

  FakeAgents& all_;
  const std::string node_;
  bool stopped_ = false;
};

ConnectAgent FakeAgents::Connector() {
  return [this](const std::string& address) -> Result<std::shared_ptr<AgentLink>> {
    return std::shared_ptr<AgentLink>(
        std::make_shared<FakeLink>(*this, address.substr(address.rfind('/') + 1)));
  };
}

void FakeAgents::Add(const std::string& node, int devices) {
  std::lock_guard lock(mutex_);
  agents_[node].node = node;
  agents_[node].devices = devices;
}

// ---- Operations

Result<v1::Operation> FakeAgents::Begin(Agent& agent, const AgentRequest& request) {
  const v1::Change change = std::visit([](const auto& each) { return each.change(); }, request);
  if (change.fence() < agent.fence)
    return Status(StatusCode::kFailedPrecondition, std::string(kFencedOff) + "higher");
  agent.fence = change.fence();
  const auto known = agent.keys.find(change.idempotency_key());
  if (known != agent.keys.end()) return agent.operations[known->second];
  v1::Operation operation;
  operation.set_id("op-" + std::to_string(agent.operations.size() + 1));
  operation.set_verb(VerbOf(request));
  operation.set_job(JobOf(request));
  operation.set_state(v1::OPERATION_STATE_RUNNING);
  agent.started.push_back(operation.verb() + " " + operation.job());
  agent.keys[change.idempotency_key()] = operation.id();
  agent.operations[operation.id()] = operation;
  if (IsHeld(request)) {
    waiting_.push_back({agent.node, {operation.id(), request}});
  } else {
    Finish(agent, agent.operations[operation.id()], request);
  }
  changed_.notify_all();
  return agent.operations[operation.id()];
}

void FakeAgents::Finish(Agent& agent, v1::Operation& operation, const AgentRequest& request) {
  const auto refused = refused_.find(operation.verb());
  const Status done =
      refused != refused_.end() ? Status(StatusCode::kUnsupported, refused->second) : Do(agent, request);
  operation.set_state(done.ok() ? v1::OPERATION_STATE_SUCCEEDED : v1::OPERATION_STATE_FAILED);
  if (!done.ok())
    operation.set_result_json(std::string("{\"ok\":false,\"code\":\"") + StatusCodeName(done.code()) +
                              "\",\"message\":\"" + std::string(done.message()) + "\"}");
  changed_.notify_all();
}

v1::Job& FakeAgents::Touch(Agent& agent, const std::string& name) {
  v1::Job& job = agent.jobs[name];
  job.set_name(name);
  job.set_revision(++agent.revision);
  changed_.notify_all();
  return job;
}

void FakeAgents::Live(Agent& agent, const std::string& name, v1::Condition condition) {
  v1::Job& job = Touch(agent, name);
  job.set_condition(condition);
  job.set_live(condition == v1::CONDITION_RUNNING || condition == v1::CONDITION_PAUSED);
  job.clear_ended_by();
}

void FakeAgents::LookForClashes(const Agent& agent) {
  std::map<uint32_t, std::string> taken;
  for (const auto& [name, job] : agent.jobs) {
    const auto places = agent.places.find(name);
    if (job.condition() != v1::CONDITION_RUNNING || places == agent.places.end()) continue;
    for (const uint32_t gpu : places->second) {
      const auto [other, first] = taken.emplace(gpu, name);
      if (!first)
        clashes_.push_back(agent.node + " " + std::to_string(gpu) + ": " + other->second + " " + name);
    }
  }
}

Status FakeAgents::Do(Agent& agent, const AgentRequest& request) {
  const std::string& name = JobOf(request);
  std::visit(
      [&](const auto& each) {
        if constexpr (requires { each.gpus(); }) {
          Agent* at = &agent;
          if constexpr (std::is_same_v<std::decay_t<decltype(each)>, v1::MigrateRequest>)
            at = each.node().empty() ? &agent : &agents_.at(each.node());
          if (!each.gpus().empty()) at->places[name] = {each.gpus().begin(), each.gpus().end()};
        }
      },
      request);
  const Status done = Become(agent, request);
  for (const auto& [node, each] : agents_) LookForClashes(each);
  return done;
}

// The job itself, or a copy of its image.
Status FakeAgents::Arrive(const Agent& from, Agent& target, const std::string& name,
                          v1::Condition condition) {
  const v1::Job job = from.jobs.at(name);
  const auto there = target.jobs.find(name);
  if (there != target.jobs.end() && there->second.created_ms() != job.created_ms())
    return Status(StatusCode::kAlreadyExists, "there is another job of that name");
  const bool copy = condition != v1::CONDITION_RUNNING && from.images.contains(name);
  if (copy && target.images[name] > from.images.at(name))
    return Status(StatusCode::kFailedPrecondition, "a newer one is there");
  Live(target, name, condition);
  v1::Job& arrived = target.jobs[name];
  *arrived.mutable_argv() = job.argv();
  arrived.set_created_ms(job.created_ms());
  if (!copy) return Status();
  arrived.set_last_image(job.last_image());
  target.images[name] = from.images.at(name);
  return Status();
}

Status FakeAgents::Become(Agent& agent, const AgentRequest& request) {
  const std::string& name = JobOf(request);
  const auto found = agent.jobs.find(name);
  const bool live = found != agent.jobs.end() && found->second.live();
  if (const auto* run = std::get_if<v1::RunRequest>(&request)) {
    if (found != agent.jobs.end()) return Status(StatusCode::kAlreadyExists, "there is such a job");
    Live(agent, name, v1::CONDITION_RUNNING);
    *agent.jobs[name].mutable_argv() = run->argv();
    agent.jobs[name].set_created_ms(++lives_);
    return Status();
  }
  if (std::holds_alternative<v1::RestoreRequest>(request)) {
    if (live) return Status(StatusCode::kFailedPrecondition, "it lives");
    Live(agent, name, v1::CONDITION_RUNNING);
    return Status();
  }
  if (const auto* copy = std::get_if<v1::CopyImageRequest>(&request)) {
    Agent& target = agents_.at(copy->node());
    if (target.down) return Down();
    if (found == agent.jobs.end()) return Status(StatusCode::kNotFound, "there is none");
    return Arrive(agent, target, name, v1::CONDITION_CHECKPOINTED);
  }
  if (const auto* remove = std::get_if<v1::RemoveRequest>(&request)) {
    if (live) return Status(StatusCode::kFailedPrecondition, "it lives");
    if (found == agent.jobs.end()) return Status(StatusCode::kNotFound, "there is none");
    if (!found->second.last_image().empty() && !remove->images())
      return Status(StatusCode::kFailedPrecondition, "it has images");
    agent.jobs.erase(name);
    agent.images.erase(name);
    return Status();
  }
  if (!live) return Status(StatusCode::kFailedPrecondition, "it does not live");
  if (const auto* migrate = std::get_if<v1::MigrateRequest>(&request)) {
    if (migrate->node().empty()) return Live(agent, name, v1::CONDITION_RUNNING), Status();
    Agent& target = agents_.at(migrate->node());
    if (target.down) return Down();
    RETURN_IF_ERROR(Arrive(agent, target, name, v1::CONDITION_RUNNING));
    Live(agent, name, v1::CONDITION_MIGRATED);
    return Status();
  }
  if (const auto* checkpoint = std::get_if<v1::CheckpointRequest>(&request)) {
    Live(agent, name, checkpoint->stop() ? v1::CONDITION_CHECKPOINTED : v1::CONDITION_RUNNING);
    return Status();
  }
  if (std::holds_alternative<v1::CancelRequest>(request)) {
    Live(agent, name, v1::CONDITION_KILLED);
    agent.jobs[name].set_ended_by("cancel");
    return Status();
  }
  Live(agent, name,
       std::holds_alternative<v1::PauseRequest>(request) ? v1::CONDITION_PAUSED : v1::CONDITION_RUNNING);
  return Status();
}

// ---- What tests do

void FakeAgents::SetDown(const std::string& node, bool down) {
  std::lock_guard lock(mutex_);
  agents_.at(node).down = down;
  changed_.notify_all();
}

void FakeAgents::Refuse(const std::string& verb, const std::string& message) {
  std::lock_guard lock(mutex_);
  refused_[verb] = message;
  if (message.empty()) refused_.erase(verb);
}

void FakeAgents::Hold(const std::string& verb, bool hold) {
  std::lock_guard lock(mutex_);
  if (hold) return static_cast<void>(held_.insert(verb));
  held_.erase(verb);
  for (auto& [node, operation] : std::exchange(waiting_, {})) {
    if (IsHeld(operation.second)) {
      waiting_.push_back({node, operation});
    } else {
      Finish(agents_.at(node), agents_.at(node).operations[operation.first], operation.second);
    }
  }
}

bool FakeAgents::IsHeld(const AgentRequest& request) const {
  const std::string verb = VerbOf(request);
  return held_.contains(verb) || held_.contains(verb + " " + JobOf(request));
}

void FakeAgents::SetObedient(bool obedient) {
  std::lock_guard lock(mutex_);
  obedient_ = obedient;
}

void FakeAgents::End(const std::string& node, const std::string& job, int exit_code, int signal) {
  std::lock_guard lock(mutex_);
  Live(agents_.at(node), job, signal != 0 ? v1::CONDITION_KILLED : v1::CONDITION_EXITED);
  agents_.at(node).jobs[job].set_exit_code(exit_code);
  agents_.at(node).jobs[job].set_signal(signal);
}

void FakeAgents::SetCondition(const std::string& node, const std::string& job, v1::Condition condition) {
  std::lock_guard lock(mutex_);
  Live(agents_.at(node), job, condition);
}

void FakeAgents::SetMoved(const std::string& node, const std::string& job, const std::string& to) {
  std::lock_guard lock(mutex_);
  Live(agents_.at(node), job, v1::CONDITION_MIGRATED);
  agents_.at(node).jobs[job].set_moved_to(to);
}

void FakeAgents::SetImage(const std::string& node, const std::string& job, const std::string& image) {
  std::lock_guard lock(mutex_);
  Touch(agents_.at(node), job).set_last_image(image);
  agents_.at(node).images[job] = ++images_;
}

void FakeAgents::CopyByHand(const std::string& from, const std::string& to, const std::string& job,
                            const std::string& image) {
  std::lock_guard lock(mutex_);
  Agent& source = agents_.at(from);
  Agent& target = agents_.at(to);
  source.images.try_emplace(job, 0);
  STASIS_CHECK(Arrive(source, target, job, v1::CONDITION_CHECKPOINTED).ok());
  target.jobs[job].set_last_image(image);
  target.images[job] = ++images_;
}

void FakeAgents::RecordOfAnotherLife(const std::string& node, const std::string& job,
                                     const std::string& program) {
  std::lock_guard lock(mutex_);
  Live(agents_.at(node), job, v1::CONDITION_EXITED);
  agents_.at(node).jobs[job].add_argv(program);
  agents_.at(node).jobs[job].set_created_ms(++lives_);
}

void FakeAgents::SetRate(const std::string& job, double rate) {
  std::lock_guard lock(mutex_);
  rates_[job] = rate;
}

void FakeAgents::SetLate(const std::string& node, Late late) {
  std::lock_guard lock(mutex_);
  agents_.at(node).late = late;
  changed_.notify_all();
}

size_t FakeAgents::Asked(const std::string& node) {
  std::lock_guard lock(mutex_);
  return agents_.at(node).asked;
}

size_t FakeAgents::Waiting(const std::string& node) {
  std::lock_guard lock(mutex_);
  return agents_.at(node).waiting;
}

bool FakeAgents::AllTold(const std::string& node) {
  std::lock_guard lock(mutex_);
  return agents_.at(node).told == agents_.at(node).revision;
}

std::vector<std::string> FakeAgents::Clashes() {
  std::lock_guard lock(mutex_);
  return clashes_;
}

void FakeAgents::SetFence(const std::string& node, uint64_t fence) {
  std::lock_guard lock(mutex_);
  agents_.at(node).fence = fence;
}

bool FakeAgents::Lives(const std::string& node, const std::string& job) {
  std::lock_guard lock(mutex_);
  const auto found = agents_.at(node).jobs.find(job);
  return found != agents_.at(node).jobs.end() && found->second.live();
}

bool FakeAgents::Runs(const std::string& node, const std::string& job) {
  std::lock_guard lock(mutex_);
  const auto found = agents_.at(node).jobs.find(job);
  return found != agents_.at(node).jobs.end() && found->second.condition() == v1::CONDITION_RUNNING;
}

int64_t FakeAgents::ImageAt(const std::string& node, const std::string& job) {
  std::lock_guard lock(mutex_);
  return agents_.at(node).images[job];
}

std::vector<std::string> FakeAgents::Started(const std::string& node) {
  std::lock_guard lock(mutex_);
  return agents_.at(node).started;
}

bool FakeAgents::Await(const std::function<bool()>& condition) {
  const auto give_up = std::chrono::steady_clock::now() + kGiveUp;
  while (!condition()) {
    std::unique_lock lock(mutex_);
    // What is waited for may happen in the scheduler.
    changed_.wait_for(lock, std::chrono::milliseconds(5));
    if (std::chrono::steady_clock::now() > give_up) return false;
  }
  return true;
}

}  // namespace stasis::scheduler
