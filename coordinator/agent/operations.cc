#include "coordinator/agent/operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "base/quiet_thread.h"
#include "coordinator/agent/live_operation.h"
#include "coordinator/agent/operation_notifier.h"
#include "coordinator/agent/operation_table.h"
#include "coordinator/job_result.h"

namespace stasis {
namespace {

constexpr size_t kMaxQueued = 64;    // of a job
constexpr size_t kMaxWorkers = 128;  // each carries out one operation
constexpr int64_t kDefaultList = 100, kMaxList = 1000;
constexpr int kForgetEvery = 256;  // operations

using Live = std::shared_ptr<LiveOperation>;

class Engine final : public Operations {
 public:
  Engine(Database& database, Registry& registry, Kinds kinds)
      : table_(database), registry_(registry), kinds_(std::move(kinds)) {}
  ~Engine() override { Stop(Duration::zero()); }
  Status TakeUp();

  Result<v1::Operation> Submit(const OperationRequest& request) override;
  Result<v1::Operation> Get(const std::string& id, bool spans) const override;
  Result<std::vector<v1::Operation>> List(const v1::ListOperationsRequest& request) const override;
  Result<v1::Operation> Cancel(const std::string& id) override;
  Result<v1::Operation> Await(const std::string& id) override;
  std::unique_ptr<Subscription> Subscribe(const std::string& id,
                                          std::function<void(const v1::Operation&)> changed) override {
    return notifier_.Subscribe(id, std::move(changed));
  }
  void Stop(Duration patience) override;

 private:
  struct Refusal {
    Status why;
    std::string remedy;
  };
  // The operations of one job, or of one kind that is beside.
  struct Lane {
    std::deque<Live> waiting;
    int running = 0;
    std::optional<Refusal> refusal;  // of the one that runs: OperationContext::RefuseOthers()
  };

  Live MakeLive(OperationRow row, bool recovers);
  Result<std::optional<v1::Operation>> FindByKey(const OperationRequest& request) const;
  Status CheckRoom(const std::string& lane, const std::string& job) const;
  void Enqueue(const Live& live);
  void ScheduleLocked(const std::string& name);
  void MakeReadyLocked(const Live& live);
  bool Preempts(const Live& live) const;
  bool Decides(const Live& live) const;
  std::string OverruledBy(const Live& live) const;
  void RefuseOthers(const Live& by, const Refusal& refusal);
  void Refuse(const Live& live, const Refusal& refusal);
  bool IsBeside(const std::string& verb) const;
  // The queue it stands in; "": none.
  std::string LaneOf(const std::string& verb, const std::string& job) const;
  std::string LaneOf(const Live& live) const { return LaneOf(live->verb(), live->job()); }
  void Preempt(const std::string& job, const Live& by);
  void EndWaiting(const Live& live, const std::string& why);
  void Work();
  void CarryOut(const Live& live);
  Json ResultOf(const Live& live);
  static bool IsLeftToNext(const Live& live, const Json& result);
  void End(const Live& live, const Json& result);
  void Leave(const Live& live, const v1::Operation& ended);
  Live FindLive(int64_t number) const;

  OperationTable table_;
  Registry& registry_;
  const Kinds kinds_;
  OperationNotifier notifier_;
  std::mutex submit_mutex_;  // taken before mutex_: numbers ascend in the order of queues

  mutable std::mutex mutex_;
  std::condition_variable ready_changed_, ended_;
  std::map<int64_t, Live> live_;
  std::map<int64_t, v1::Operation> unsaved_;  // have ended, and the database did not take it
  std::map<std::string, Lane> lanes_;
  std::deque<Live> ready_;
  std::map<int64_t, Live> carried_;                   // by a worker now
  std::map<int64_t, std::vector<std::string>> held_;  // lanes in which one is counted as running
  std::vector<std::thread> workers_;
  size_t idle_ = 0;
  int ended_count_ = 0;
  bool stopping_ = false;
};

Live Engine::MakeLive(OperationRow row, bool recovers) {
  int64_t number = row.number;
  std::string id = row.operation.id();
  auto self = std::make_shared<std::weak_ptr<LiveOperation>>();
  LiveOperation::Hooks hooks;
  hooks.changed = [this, id, self](bool urgent) {
    Live live = self->lock();
    if (live) notifier_.Post(id, urgent, [live] { return live->Snapshot(false); });
  };
  hooks.job_set = [this, number, id](const std::string& job) {
    {
      std::lock_guard lock(mutex_);
      lanes_[job].running++;
      held_[number].push_back(job);
    }
    registry_.SetOperation(job, id);
  };
  hooks.overruled_by = [this, self] {
    Live live = self->lock();
    return live ? OverruledBy(live) : "";
  };
  hooks.refuse_others = [this, self](const Status& why, const std::string& remedy) {
    if (Live live = self->lock()) RefuseOthers(live, {why, remedy});
  };
  auto live = std::make_shared<LiveOperation>(std::move(row), recovers, table_, std::move(hooks));
  *self = live;
  return live;
}

// In the order in which they were asked for; what was running goes first, as it came first.
Status Engine::TakeUp() {
  RETURN_IF_ERROR(table_.ForgetOld());
  ASSIGN_OR_RETURN(std::vector<OperationRow> rows, table_.Unfinished());
  std::lock_guard submit(submit_mutex_);
  for (OperationRow& row : rows) {
    bool recovers = row.operation.state() == v1::OPERATION_STATE_RUNNING;
    Enqueue(MakeLive(std::move(row), recovers));
  }
  return Status();
}

Result<std::optional<v1::Operation>> Engine::FindByKey(const OperationRequest& request) const {
  if (request.key.empty()) return std::optional<v1::Operation>();
  ASSIGN_OR_RETURN(std::optional<OperationRow> row, table_.FindKey(request.key));
  if (!row) return std::optional<v1::Operation>();
  if (row->operation.verb() != request.verb || row->request != request.request) {
    return Status(StatusCode::kInvalidArgument,
                  "the idempotency key is that of another request, " + row->operation.id());
  }
  ASSIGN_OR_RETURN(v1::Operation operation, Get(row->operation.id(), false));
  return std::optional<v1::Operation>(std::move(operation));
}

Status Engine::CheckRoom(const std::string& lane, const std::string& job) const {
  std::lock_guard lock(mutex_);
  if (stopping_) return Status(StatusCode::kUnavailable, "the agent is about to end");
  auto found = lanes_.find(lane);
  if (lane.empty() || found == lanes_.end() || found->second.waiting.size() < kMaxQueued) return Status();
  return Status(StatusCode::kResourceExhausted,
                fmt::format("{} operations are waiting on {} already", kMaxQueued, job));
}

Result<v1::Operation> Engine::Submit(const OperationRequest& request) {
  auto kind = kinds_.find(request.verb);
  if (kind == kinds_.end())
    return Status(StatusCode::kInvalidArgument, "no operation is called '" + request.verb + "'");
  std::lock_guard submit(submit_mutex_);
  ASSIGN_OR_RETURN(std::optional<v1::Operation> known, FindByKey(request));
  if (known) return *std::move(known);
  RETURN_IF_ERROR(CheckRoom(LaneOf(request.verb, request.job), request.job));
  ASSIGN_OR_RETURN(OperationRow row, table_.Insert(request));
  Live live = MakeLive(std::move(row), false);
  v1::Operation as_submitted = live->Snapshot(false);
  if (kind->second->preempts()) Preempt(request.job, live);
  Enqueue(live);
  return as_submitted;
}

void Engine::Enqueue(const Live& live) {
  std::optional<Refusal> refusal;
  {
    std::lock_guard lock(mutex_);
    live_[live->number()] = live;
    std::string name = LaneOf(live);
    if (name.empty()) return MakeReadyLocked(live);
    Lane& lane = lanes_[name];
    if (lane.refusal && !Decides(live)) refusal = lane.refusal;
    if (!refusal) {
      lane.waiting.push_back(live);
      return ScheduleLocked(name);
    }
  }
  Refuse(live, *refusal);
}

void Engine::ScheduleLocked(const std::string& name) {
  auto found = lanes_.find(name);
  if (found == lanes_.end() || found->second.running > 0) return;
  Lane& lane = found->second;
  if (lane.waiting.empty()) {
    lanes_.erase(found);
    return;
  }
  Live next = lane.waiting.front();
  lane.waiting.pop_front();
  lane.running++;
  held_[next->number()].push_back(name);
  MakeReadyLocked(next);
}

void Engine::MakeReadyLocked(const Live& live) {
  ready_.push_back(live);
  bool more = idle_ < ready_.size() && workers_.size() < kMaxWorkers && !stopping_;
  if (more) workers_.push_back(StartQuietThread([this] { Work(); }));
  ready_changed_.notify_one();
}

bool Engine::IsBeside(const std::string& verb) const {
  auto kind = kinds_.find(verb);
  return kind != kinds_.end() && kind->second->beside();
}

// No job has a blank in its name.
std::string Engine::LaneOf(const std::string& verb, const std::string& job) const {
  return !job.empty() && IsBeside(verb) ? verb + " " + job : job;
}

bool Engine::Preempts(const Live& live) const {
  auto kind = kinds_.find(live->verb());
  return kind != kinds_.end() && kind->second->preempts();
}

bool Engine::Decides(const Live& live) const {
  auto kind = kinds_.find(live->verb());
  return kind != kinds_.end() && kind->second->decides(live->request());
}

// The first of those that wait.
std::string Engine::OverruledBy(const Live& live) const {
  std::lock_guard lock(mutex_);
  auto lane = lanes_.find(LaneOf(live));
  if (lane == lanes_.end()) return "";
  for (const Live& each : lane->second.waiting) {
    if (Decides(each)) return each->verb();
  }
  return "";
}

void Engine::RefuseOthers(const Live& by, const Refusal& refusal) {
  std::vector<Live> refused;
  {
    std::lock_guard lock(mutex_);
    auto found = lanes_.find(LaneOf(by));
    if (found == lanes_.end()) return;
    Lane& lane = found->second;
    lane.refusal.reset();
    if (refusal.why.ok()) return;
    lane.refusal = refusal;
    for (const Live& each : lane.waiting) {
      if (!Decides(each)) refused.push_back(each);
    }
    for (const Live& each : refused) std::erase(lane.waiting, each);
  }
  for (const Live& each : refused) Refuse(each, refusal);
}

void Engine::Refuse(const Live& live, const Refusal& refusal) {
  Json result = FailureJson(live->verb(), refusal.why, refusal.remedy);
  result["left"] = "unchanged";
  End(live, result);
}

// What came before it, and has not begun, would only be undone by it.
void Engine::Preempt(const std::string& job, const Live& by) {
  std::vector<Live> given_up;
  {
    std::lock_guard lock(mutex_);
    auto lane = lanes_.find(job);
    if (lane == lanes_.end()) return;
    for (const Live& each : lane->second.waiting) {
      if (!Preempts(each)) given_up.push_back(each);
    }
    for (const Live& each : given_up) std::erase(lane->second.waiting, each);
    auto ask = [&](const Live& each) {
      if (LaneOf(each) == job && !Preempts(each)) each->stop().Ask();
    };
    for (const auto& [number, each] : carried_) ask(each);
    // Whose turn it is, and whom no thread has taken up yet.
    for (const Live& each : ready_) ask(each);
  }
  for (const Live& each : given_up) EndWaiting(each, "given up for " + by->id());
}

void Engine::EndWaiting(const Live& live, const std::string& why) {
  End(live, FailureJson(live->verb(), Status(StatusCode::kCancelled, why), ""));
}

// Who is told of the end and then asks gets it.
void Engine::Leave(const Live& live, const v1::Operation& ended) {
  {
    std::lock_guard lock(mutex_);
    live_.erase(live->number());
    carried_.erase(live->number());
    auto held = held_.extract(live->number());
    for (const std::string& lane : held.empty() ? std::vector<std::string>() : held.mapped()) {
      lanes_[lane].running--;
      lanes_[lane].refusal.reset();
      if (!stopping_) ScheduleLocked(lane);
    }
    ended_count_++;
    ended_.notify_all();
  }
  v1::Operation told = ended;
  told.clear_spans();
  notifier_.Post(told.id(), true, [told] { return told; });
}

void Engine::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    idle_++;
    ready_changed_.wait(lock, [&] { return stopping_ || !ready_.empty(); });
    idle_--;
    if (stopping_) return;
    Live live = ready_.front();
    ready_.pop_front();
    carried_[live->number()] = live;
    lock.unlock();
    CarryOut(live);
    lock.lock();
    if (ended_count_ < kForgetEvery) continue;
    ended_count_ = 0;
    lock.unlock();
    // What is not forgotten now is later.
    (void)table_.ForgetOld();
    lock.lock();
  }
}

Json Engine::ResultOf(const Live& live) {
  auto kind = kinds_.find(live->verb());
  if (kind == kinds_.end()) {
    Status unknown(StatusCode::kUnsupported, "this version of the agent has no such operation");
    return FailureJson(live->verb(), unknown, "");
  }
  return live->recovers() ? kind->second->Recover(*live) : kind->second->Carry(*live);
}

// It goes on without us, and we shall not see its end.
bool Engine::IsLeftToNext(const Live& live, const Json& result) {
  return live->stop().abandoned() && TextField(result, "code") == StatusCodeName(StatusCode::kCancelled);
}

void Engine::End(const Live& live, const Json& result) {
  Status written;
  v1::Operation ended = live->End(result, &written);
  if (!written.ok()) {
    std::lock_guard lock(mutex_);
    unsaved_[live->number()] = ended;
  }
  Leave(live, ended);
}

void Engine::CarryOut(const Live& live) {
  if (live->stop().asked() && !live->recovers()) return EndWaiting(live, "given up before it began");
  const bool beside = IsBeside(live->verb());
  std::string job = live->job();
  if (!job.empty() && !beside) registry_.SetOperation(job, live->id());
  Status begun = live->Begin();
  Json result = begun.ok() ? ResultOf(live) : FailureJson(live->verb(), begun, "");
  job = live->job();
  if (!job.empty() && !beside) {
    registry_.Refresh(job);
    registry_.SetOperation(job, "");
  }
  if (!IsLeftToNext(live, result)) return End(live, result);
  std::lock_guard lock(mutex_);
  carried_.erase(live->number());
  ended_.notify_all();
}

Live Engine::FindLive(int64_t number) const {
  std::lock_guard lock(mutex_);
  auto found = live_.find(number);
  return found == live_.end() ? nullptr : found->second;
}

Result<v1::Operation> Engine::Get(const std::string& id, bool spans) const {
  int64_t number = OperationNumber(id);
  if (number == 0) return Status(StatusCode::kNotFound, "no operation " + id.substr(0, 64));
  if (Live live = FindLive(number)) return live->Snapshot(spans);
  {
    std::lock_guard lock(mutex_);
    auto unsaved = unsaved_.find(number);
    if (unsaved != unsaved_.end()) return unsaved->second;
  }
  ASSIGN_OR_RETURN(OperationRow row, table_.Find(number, spans));
  return std::move(row.operation);
}

Result<std::vector<v1::Operation>> Engine::List(const v1::ListOperationsRequest& request) const {
  int64_t limit = request.limit() == 0 ? kDefaultList : std::min<int64_t>(request.limit(), kMaxList);
  ASSIGN_OR_RETURN(std::vector<OperationRow> rows, table_.List(request.job(), request.running(), limit));
  std::vector<v1::Operation> operations;
  for (OperationRow& row : rows) {
    Live live = HasEnded(row.operation.state()) ? nullptr : FindLive(row.number);
    operations.push_back(live ? live->Snapshot(false) : std::move(row.operation));
  }
  return operations;
}

Result<v1::Operation> Engine::Cancel(const std::string& id) {
  Live live = FindLive(OperationNumber(id));
  if (!live) return Get(id, false);
  bool waits = false;
  {
    std::lock_guard lock(mutex_);
    auto lane = lanes_.find(LaneOf(live));
    waits = lane != lanes_.end() && std::erase(lane->second.waiting, live) > 0;
    // One that a worker is about to take finds it when it begins.
    if (!waits) live->stop().Ask();
  }
  if (waits) EndWaiting(live, "given up on request, before it began");
  return Get(id, false);
}

Result<v1::Operation> Engine::Await(const std::string& id) {
  int64_t number = OperationNumber(id);
  {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return stopping_ || live_.count(number) == 0; });
    if (live_.count(number) != 0)
      return Status(StatusCode::kCancelled, "the agent ends before " + id + " does");
  }
  return Get(id, false);
}

void Engine::Stop(Duration patience) {
  std::vector<std::thread> workers;
  {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    ready_changed_.notify_all();
    ended_.notify_all();
    for (const auto& [number, live] : carried_) live->stop().Ask();
    ended_.wait_for(lock, patience, [&] { return carried_.empty(); });
    for (const auto& [number, live] : carried_) live->stop().Abandon();
    workers.swap(workers_);
  }
  for (std::thread& worker : workers) worker.join();
}

}  // namespace

Result<std::unique_ptr<Operations>> Operations::Start(Database& database, Registry& registry, Kinds kinds) {
  auto engine = std::make_unique<Engine>(database, registry, std::move(kinds));
  RETURN_IF_ERROR(engine->TakeUp());
  return std::unique_ptr<Operations>(std::move(engine));
}

}  // namespace stasis
