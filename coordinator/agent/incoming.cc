#include "coordinator/agent/incoming.h"

#include <fmt/format.h>

#include <random>
#include <utility>

#include "base/quiet_thread.h"
#include "coordinator/agent/arrival_job.h"
#include "coordinator/agent/peer_link.h"
#include "coordinator/agent/request_checks.h"
#include "coordinator/job_json.h"
#include "coordinator/moved_mark.h"
#include "coordinator/node/job.h"

namespace stasis {
namespace {

// Of a copy.
constexpr auto kSilence = std::chrono::minutes(2);
// Of a migration, whose source says regularly that it is at it.
constexpr Duration kGone = 6 * kSignOfLife;
// After which what has not been handed over gives way to another offer of the job.
constexpr auto kQuiet = std::chrono::seconds(10);
constexpr size_t kMaxArrivals = 64;
constexpr size_t kMaxNeeds = 64 << 20;  // bytes of JSON, all ranks together
constexpr auto kMaxWait = std::chrono::seconds(30);
// An end takes as long as the job's program, or an operation that is at it.
constexpr int kEnders = 8;
constexpr size_t kMaxEnds = 64;
constexpr size_t kTokenDigits = 32;

// Whoever knows a token may decide over the job.
std::string NewToken() {
  std::random_device random;
  std::string token;
  for (int i = 0; i < 4; ++i) token += fmt::format("{:08x}", random());
  return token;
}

// Of those that NewToken() makes.
bool IsToken(const std::string& token) {
  return token.size() == kTokenDigits && token.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// Before it is marked with the name of a node that there cannot be.
Status CheckLetGo(const v1::LetGoRequest& request) {
  if (!IsToken(request.token())) return Status(StatusCode::kInvalidArgument, "token is none of a hand-over");
  if (!IsNodeName(request.from_node()))
    return Status(StatusCode::kInvalidArgument, "from_node is no name of a node");
  return Status();
}

v1::Outcome Undecided() {
  v1::Outcome outcome;
  outcome.set_kind(v1::OUTCOME_KIND_UNDECIDED);
  return outcome;
}

v1::OfferReply Refused(const std::string& task, const std::string& what, const std::string& needed,
                       const std::string& here) {
  v1::OfferReply reply;
  v1::Refusal* refusal = reply.add_refused();
  refusal->set_task(task);
  refusal->set_what(what);
  refusal->set_needed(needed);
  refusal->set_here(here);
  return reply;
}

Status CheckOffer(const v1::OfferRequest& request) {
  RETURN_IF_ERROR(CheckTaskName(request.job()));
  const int ranks = request.ranks_size();
  if (ranks < 1 || ranks > (request.ranked() ? kMaxRanks : 1))
    return Errorf(StatusCode::kInvalidArgument, "a job of %d ranks", ranks);
  size_t bytes = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string& task = request.ranks(rank).task();
    if (task != (request.ranked() ? RankName(request.job(), rank) : request.job()))
      return Status(StatusCode::kInvalidArgument, "a rank has a name that it cannot have");
    bytes += request.ranks(rank).manifest_json().size();
  }
  if (bytes > kMaxNeeds) return Status(StatusCode::kInvalidArgument, "the needs are too long");
  for (uint32_t gpu : request.gpus()) {
    if (gpu >= 1024) return Status(StatusCode::kInvalidArgument, "a device of a number that none has");
  }
  return Status();
}

Result<std::vector<Arriving>> ParseRanks(const v1::OfferRequest& request) {
  std::vector<Arriving> ranks;
  for (const v1::RankNeeds& needs : request.ranks()) {
    Json json = Json::parse(needs.manifest_json(), nullptr, false);
    if (!json.is_object()) return Status(StatusCode::kInvalidArgument, "the needs of a rank are no object");
    ASSIGN_OR_RETURN(Manifest manifest, ParseManifest(json));
    ASSIGN_OR_RETURN(TaskConfig config, ParseTaskConfig(manifest.task));
    const bool ranked = config.rank && config.rank->job == request.job() &&
                        config.rank->rank == static_cast<int>(ranks.size()) &&
                        config.rank->ranks == request.ranks_size();
    if (config.name != needs.task() || config.rank.has_value() != request.ranked() ||
        ranked != request.ranked()) {
      return Status(StatusCode::kInvalidArgument, "the needs are not of the task that is named");
    }
    ranks.push_back({needs.task(), std::move(manifest), std::move(config)});
  }
  return ranks;
}

HandOverRow RowOf(const ArrivedJob& job) {
  HandOverRow row;
  row.token = job.token;
  row.job = job.name;
  row.ranked = job.ranked;
  row.tasks = job.tasks;
  return row;
}

// What an agent before this one has handed over.
void TellMoved(const Folders& folders, Registry& registry) {
  for (const std::string& task : ListTasks(folders)) {
    TaskPaths paths(folders, task);
    const std::string node = MovedTo(paths.folder);
    if (node.empty()) continue;
    Result<Json> json = ReadJson(paths.File("task.json"));
    std::optional<RankPlace> place = json.ok() ? PlaceOf(*json) : std::nullopt;
    registry.SetMovedTo(place ? place->job : task, node);
  }
}

}  // namespace

Incoming::Incoming(const Site& site, Database& database, Registry& registry, SetSchedule set_schedule,
                   EndJob end_job, std::unique_ptr<CopyShelf> copies, const Clock& clock, Duration sweep,
                   Duration let_go)
    : shelf_(std::move(copies)),
      table_(database),
      parts_{site,
             &table_,
             &registry,
             shelf_.get(),
             &clock,
             &stopping_,
             std::move(set_schedule),
             std::move(end_job)},
      sweep_(sweep),
      let_go_wait_(let_go),
      enders_(kEnders, kMaxEnds) {}

Incoming::~Incoming() {
  Stop();
  AwaitProbes();
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (sweeper_.joinable()) sweeper_.join();
}

// Of a source that is gone for good nobody else would let go of what has come.
void Incoming::Sweep() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || !copies_.empty() || !arrivals_.empty(); });
    if (changed_.wait_for(lock, sweep_, [this] { return stop_; })) return;
    // With the lock: what is settled meanwhile is forgotten after it was written.
    for (const auto& entry : arrivals_) entry.second->WriteAgain();
    DropSilentLocked();
  }
}

void Incoming::AwaitProbes() {
  if (prober_.joinable()) prober_.join();
}

Result<std::unique_ptr<Incoming>> Incoming::Start(const Site& site, Database& database, Registry& registry,
                                                  SetSchedule set_schedule, EndJob end_job,
                                                  const Clock& clock, Duration sweep, Duration let_go) {
  ASSIGN_OR_RETURN(std::unique_ptr<CopyShelf> copies, CopyShelf::Start(site, database, registry));
  std::unique_ptr<Incoming> incoming(new Incoming(site, database, registry, std::move(set_schedule),
                                                  std::move(end_job), std::move(copies), clock, sweep,
                                                  let_go));
  TellMoved(site.folders, registry);
  ASSIGN_OR_RETURN(std::vector<HandOverRow> rows, incoming->table_.Undecided());
  std::vector<std::shared_ptr<Arrival>> undecided;
  for (HandOverRow& row : rows) {
    const std::string token = row.token;
    undecided.push_back(Arrival::Recovered(incoming->parts_, std::move(row)));
    incoming->arrivals_[token] = undecided.back();
  }
  incoming->prober_ = StartQuietThread([undecided] {
    for (const std::shared_ptr<Arrival>& arrival : undecided) arrival->Probe();
  });
  incoming->sweeper_ = StartQuietThread([agent = incoming.get()] { agent->Sweep(); });
  return incoming;
}

// Of those that were taken the table knows.
void Incoming::DropSilentLocked() {
  std::erase_if(copies_, [](const auto& entry) { return entry.second->Silent(kSilence); });
  std::erase_if(arrivals_, [](const auto& entry) {
    Arrival& arrival = *entry.second;
    if (!arrival.Silent(kGone)) return false;
    // What is forgotten counts as not taken, so it must be void before.
    (void)arrival.Ask(Duration::zero());
    return arrival.Settled() && arrival.Written();
  });
}

Result<v1::OfferReply> Incoming::Offer(const v1::OfferRequest& request) {
  RETURN_IF_ERROR(CheckOffer(request));
  ASSIGN_OR_RETURN(std::vector<Arriving> ranks, ParseRanks(request));
  ArrivedJob job{NewToken(), request.job(), request.ranked(), {}};
  std::vector<TaskConfig> of;
  for (const Arriving& rank : ranks) {
    job.tasks.push_back(rank.task);
    of.push_back(rank.config);
  }
  Status room = CheckRoomFor(parts_.site.folders, job, of);
  if (!room.ok()) return Refused(job.name, "name", job.name, std::string(room.message()));
  const bool copy = request.purpose() == v1::OFFER_PURPOSE_COPY;
  Fit fit = CheckFits(ranks, {request.gpus().begin(), request.gpus().end()}, parts_.site,
                      copy ? Room::kEver : Room::kNow);
  v1::OfferReply reply;
  for (const std::string& note : fit.notes) reply.add_notes(note);
  for (v1::Refusal& refusal : fit.refused) *reply.add_refused() = std::move(refusal);
  if (reply.refused_size() > 0) return reply;
  Status accepted = copy ? AcceptCopy(job, std::move(ranks), std::move(fit.gpus))
                         : Accept(RowOf(job), std::move(ranks), std::move(fit.gpus), request.from_agent());
  if (accepted.code() == StatusCode::kAlreadyExists)
    return Refused(job.name, "name", job.name, std::string(accepted.message()));
  if (!accepted.ok()) return accepted;
  reply.set_token(job.token);
  return reply;
}

Status Incoming::CheckWayLocked(const std::string& job) const {
  for (const auto& [other, there] : arrivals_) {
    if (there->job() == job && !there->Settled())
      return Status(StatusCode::kAlreadyExists, "it is on its way here already");
  }
  if (arrivals_.size() + copies_.size() >= kMaxArrivals)
    return Status(StatusCode::kResourceExhausted, "too much is on its way");
  return Status();
}

std::vector<Incoming::Copy> Incoming::TakeCopiesLocked(const std::string& job) {
  std::vector<Copy> taken;
  std::erase_if(copies_, [&](const auto& entry) {
    if (entry.second->job().name != job) return false;
    taken.push_back(entry.second);
    return true;
  });
  return taken;
}

// As of an agent that was killed in the middle: nobody else would tell that it is not coming. What another
// one is silent about does not keep out who comes now.
void Incoming::VoidEarlierLocked(const std::string& job, const std::string& from) {
  for (const auto& [token, there] : arrivals_) {
    if (there->job() != job) continue;
    const bool same = !from.empty() && there->from() == from;
    if (same || there->Silent(kQuiet)) (void)there->Ask(Duration::zero());
  }
}

Status Incoming::Accept(HandOverRow row, std::vector<Arriving> ranks, std::vector<std::vector<int>> gpus,
                        const std::string& from) {
  ASSIGN_OR_RETURN(auto arrival, Arrival::Make(parts_, row, std::move(ranks), std::move(gpus), from));
  std::vector<Copy> given_up;
  {
    std::lock_guard lock(mutex_);
    DropSilentLocked();
    VoidEarlierLocked(row.job, from);
    RETURN_IF_ERROR(CheckWayLocked(row.job));
    given_up = TakeCopiesLocked(row.job);
    arrivals_[row.token] = std::move(arrival);
    changed_.notify_all();
  }
  for (const Copy& copy : given_up) copy->GiveUp();
  return Status();
}

Status Incoming::AcceptCopy(ArrivedJob job, std::vector<Arriving> ranks, std::vector<std::vector<int>> gpus) {
  const std::string token = job.token, name = job.name;
  ASSIGN_OR_RETURN(Copy copy, ArrivingCopy::Make(*shelf_, parts_.site, *parts_.clock, std::move(job),
                                                 std::move(ranks), std::move(gpus)));
  std::vector<Copy> given_up;
  {
    std::lock_guard lock(mutex_);
    DropSilentLocked();
    // An agent may move the job and copy an image of it at once; the job comes first.
    VoidEarlierLocked(name, /*from=*/"");
    RETURN_IF_ERROR(CheckWayLocked(name));
    given_up = TakeCopiesLocked(name);
    copies_[token] = std::move(copy);
    changed_.notify_all();
  }
  for (const Copy& each : given_up) each->GiveUp();
  return Status();
}

Result<std::shared_ptr<Arrival>> Incoming::Find(const std::string& token) {
  std::lock_guard lock(mutex_);
  auto found = arrivals_.find(token);
  if (found != arrivals_.end()) return found->second;
  found = letting_go_.find(token);
  if (found != letting_go_.end()) return found->second;
  return Status(StatusCode::kNotFound, "nothing is on its way by that token");
}

Incoming::Copy Incoming::FindCopy(const std::string& token) {
  std::lock_guard lock(mutex_);
  auto found = copies_.find(token);
  return found == copies_.end() ? nullptr : found->second;
}

Result<std::shared_ptr<Receiving>> Incoming::FindReceiving(const std::string& token) {
  if (Copy copy = FindCopy(token)) return std::shared_ptr<Receiving>(copy, &copy->receiving());
  ASSIGN_OR_RETURN(std::shared_ptr<Arrival> arrival, Find(token));
  return std::shared_ptr<Receiving>(arrival, &arrival->receiving());
}

Result<v1::MissingReply> Incoming::Missing(const v1::MissingRequest& request) {
  const size_t bytes = request.hashes().size();
  if (bytes % sizeof(Hash128) != 0 || bytes > kMaxHashesAsked * sizeof(Hash128))
    return Status(StatusCode::kInvalidArgument, "no list of hashes");
  ASSIGN_OR_RETURN(std::shared_ptr<Receiving> receiving, FindReceiving(request.token()));
  v1::MissingReply reply;
  ASSIGN_OR_RETURN(*reply.mutable_missing(), receiving->Missing(request.hashes()));
  return reply;
}

Status Incoming::Put(const v1::PutRequest& request) {
  if (request.records().size() > kMaxPutBytes)
    return Status(StatusCode::kInvalidArgument, "too many chunks at once");
  ASSIGN_OR_RETURN(std::shared_ptr<Receiving> receiving, FindReceiving(request.token()));
  return receiving->Put(request.records());
}

Status Incoming::PutManifest(const v1::PutManifestRequest& request) {
  ASSIGN_OR_RETURN(std::shared_ptr<Receiving> receiving, FindReceiving(request.token()));
  return receiving->PutManifest(request);
}

// Of a token that nothing is known of nothing was taken, and it cannot be taken any more. An error: that
// cannot be told.
Result<std::shared_ptr<Arrival>> Incoming::FindForOutcome(const std::string& token) {
  Result<std::shared_ptr<Arrival>> found = Find(token);
  if (found.ok()) return found;
  Result<HandOverRow> row = table_.Find(token);
  if (row.ok()) return Arrival::Recovered(parts_, *std::move(row));
  if (row.status().code() != StatusCode::kNotFound) return row.status();
  HandOverRow none;
  none.token = token;
  none.result = {{"ok", false},
                 {"code", StatusCodeName(StatusCode::kNotFound)},
                 {"message", "the target does not know of it any more"},
                 {"remedy", ""}};
  return Arrival::Recovered(parts_, std::move(none));
}

Result<v1::Outcome> Incoming::HandOver(const v1::HandOverRequest& request) {
  ASSIGN_OR_RETURN(std::shared_ptr<Arrival> arrival, FindForOutcome(request.token()));
  return arrival->HandOver(request);
}

Result<v1::Outcome> Incoming::AskOutcome(const v1::AskOutcomeRequest& request) {
  ASSIGN_OR_RETURN(std::shared_ptr<Arrival> arrival, FindForOutcome(request.token()));
  return arrival->Ask(std::min<Duration>(std::chrono::milliseconds(request.wait_ms()), kMaxWait));
}

std::string Incoming::JobOf(const std::string& token) {
  if (Copy copy = FindCopy(token)) return copy->job().name;
  Result<std::shared_ptr<Arrival>> arrival = Find(token);
  return arrival.ok() ? (*arrival)->job() : "";
}

std::string Incoming::JobOnRecord(const std::string& token) {
  const std::string job = JobOf(token);
  if (!job.empty()) return job;
  Result<HandOverRow> row = table_.Find(token);
  return row.ok() ? row->job : "";
}

Result<v1::KeepReply> Incoming::Keep(const v1::KeepRequest& request) {
  Copy copy = FindCopy(request.token());
  if (copy == nullptr) return Status(StatusCode::kNotFound, "no copy is on its way by that token");
  return copy->Keep(request);
}

// On a thread that is no caller's: those are few, and who asks again would hold one more of them.
Result<std::optional<std::future<Result<v1::Outcome>>>> Incoming::BeginLetGo(
    const std::shared_ptr<Arrival>& arrival, const v1::LetGoRequest& request) {
  using Answer = std::optional<std::future<Result<v1::Outcome>>>;
  const std::string& token = request.token();
  std::lock_guard lock(mutex_);
  if (letting_go_.count(token) != 0) return Answer();
  for (const auto& [other, there] : arrivals_) {
    // What it becomes may descend from what is to end.
    if (other != token && there->job() == arrival->job() && !there->Settled()) return Answer();
  }
  auto told = std::make_shared<std::promise<Result<v1::Outcome>>>();
  const bool posted = enders_.Post([this, arrival, token, node = request.from_node(), told] {
    Result<v1::Outcome> outcome = arrival->LetGo(node);
    {
      std::lock_guard one(mutex_);
      letting_go_.erase(token);
    }
    told->set_value(std::move(outcome));
  });
  if (!posted) return Status(StatusCode::kUnavailable, "too many jobs that were taken back are to end");
  letting_go_[token] = arrival;
  return Answer(told->get_future());
}

Result<v1::Outcome> Incoming::LetGo(const v1::LetGoRequest& request) {
  RETURN_IF_ERROR(CheckLetGo(request));
  ASSIGN_OR_RETURN(std::shared_ptr<Arrival> arrival, FindForOutcome(request.token()));
  ASSIGN_OR_RETURN(auto told, BeginLetGo(arrival, request));
  if (!told || told->wait_for(let_go_wait_) != std::future_status::ready) return Undecided();
  return told->get();
}

Status Incoming::Settle(const v1::SettleRequest& request) {
  if (Copy copy = FindCopy(request.token())) {
    copy->GiveUp();
    std::lock_guard lock(mutex_);
    copies_.erase(request.token());
    return Status();
  }
  ASSIGN_OR_RETURN(std::shared_ptr<Arrival> arrival, FindForOutcome(request.token()));
  {
    std::lock_guard lock(mutex_);
    // What is to end may not have begun to.
    if (letting_go_.count(request.token()) != 0 || !arrival->Settled())
      return Status(StatusCode::kFailedPrecondition, "it is not decided yet");
    arrivals_.erase(request.token());
  }
  RETURN_IF_ERROR(table_.Forget(request.token()));
  if (arrival->Runs()) shelf_->Forget(arrival->job());
  return Status();
}

}  // namespace stasis
