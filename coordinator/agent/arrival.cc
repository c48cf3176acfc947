#include "coordinator/agent/arrival.h"

#include <google/protobuf/util/json_util.h>

#include <optional>
#include <utility>

#include "coordinator/agent/arrival_job.h"
#include "coordinator/agent/peer_link.h"
#include "coordinator/agent/request_checks.h"
#include "coordinator/agent/schedule_rules.h"
#include "coordinator/job_json.h"
#include "coordinator/job_result.h"
#include "coordinator/moved_mark.h"
#include "coordinator/node/image_names.h"
#include "coordinator/node/task.h"

namespace stasis {
namespace {

// Of the result of what is being restored.
constexpr char kImages[] = "images", kSchedule[] = "schedule";
constexpr uint32_t kRestoreMs = 5 * 60 * 1000;

ArrivedJob JobOf(const HandOverRow& row) { return {row.token, row.job, row.ranked, row.tasks}; }

Json FailureOf(const Status& status, const std::string& remedy) {
  return {{"ok", false},
          {"code", StatusCodeName(status.code())},
          {"message", std::string(status.message())},
          {"remedy", remedy}};
}

v1::OutcomeKind KindOf(HandOverAnswer answer) {
  switch (answer) {
    case HandOverAnswer::kUndecided:
      return v1::OUTCOME_KIND_UNDECIDED;
    case HandOverAnswer::kRuns:
      return v1::OUTCOME_KIND_RUNS;
    case HandOverAnswer::kNotTaken:
      return v1::OUTCOME_KIND_NOT_TAKEN;
    case HandOverAnswer::kNone:
      break;
  }
  return v1::OUTCOME_KIND_UNSPECIFIED;
}

std::string RulesText(const v1::Schedule& rules) {
  if (HasNoRule(rules)) return "";
  std::string text;
  (void)google::protobuf::util::MessageToJsonString(rules, &text);
  return text;
}

// The record of an earlier stay is there again, when there was one.
void TellEarlierStay(const Arrival::Parts& parts, const HandOverRow& row) {
  const std::string node = MovedTo(TaskPaths(parts.site.folders, row.tasks.front()).folder);
  if (node.empty()) return;
  parts.registry->Refresh(row.job);
  parts.registry->SetMovedTo(row.job, node);
}

}  // namespace

Arrival::Arrival(const Parts& parts, HandOverRow row, Taker taker, std::vector<Arriving> ranks,
                 std::vector<std::vector<int>> gpus)
    : parts_(parts),
      receiving_(*parts.clock, std::move(ranks)),
      gpus_(std::move(gpus)),
      row_(std::move(row)),
      taker_(taker) {}

Result<std::shared_ptr<Arrival>> Arrival::Make(const Parts& parts, HandOverRow row,
                                               std::vector<Arriving> ranks,
                                               std::vector<std::vector<int>> gpus, std::string from) {
  std::shared_ptr<Arrival> arrival(
      new Arrival(parts, std::move(row), Taker(), std::move(ranks), std::move(gpus)));
  arrival->from_ = std::move(from);
  ASSIGN_OR_RETURN(std::shared_ptr<Store> store, OpenOrCreateStore(parts.site.folders));
  RETURN_IF_ERROR(arrival->receiving_.Begin(std::move(store)));
  return arrival;
}

std::shared_ptr<Arrival> Arrival::Recovered(const Parts& parts, HandOverRow row) {
  Taker taker = Taker::Recovered(row.record);
  std::vector<std::string> images = TextsField(row.result, kImages);
  std::shared_ptr<Arrival> arrival(new Arrival(parts, std::move(row), taker, {}, {}));
  arrival->images_ = std::move(images);
  return arrival;
}

bool Arrival::Silent(Duration how_long) const {
  std::lock_guard lock(mutex_);
  return receiving_.Silent(how_long) && !preparing_;
}

bool Arrival::Runs() const {
  std::lock_guard lock(mutex_);
  return taker_.answer() == HandOverAnswer::kRuns;
}

bool Arrival::Settled() const {
  std::lock_guard lock(mutex_);
  return !taker_.open() && !preparing_ && taker_.step() == Taker::Step::kWait;
}

bool Arrival::Written() const {
  std::lock_guard lock(mutex_);
  return written_;
}

// Everything that can be done before it counts.
Status Arrival::Prepare(const v1::HandOverRequest& request) {
  RETURN_IF_ERROR(CheckRules(request.schedule()));
  ASSIGN_OR_RETURN(std::vector<ImageManifest> manifests, receiving_.Manifests());
  std::optional<JobRecord> record;
  if (row_.ranked) {
    ASSIGN_OR_RETURN(record, ParseJobRecord(request.job_json()));
    if (record->name != row_.job || static_cast<size_t>(record->ranks()) != row_.tasks.size())
      return Status(StatusCode::kInvalidArgument, "the record is not of the job that was offered");
  }
  std::vector<TaskConfig> of;
  for (const Arriving& rank : receiving_.ranks()) of.push_back(rank.config);
  ArrivedJob job = JobOf(row_);
  RETURN_IF_ERROR(CheckRoomFor(parts_.site.folders, job, of));
  ASSIGN_OR_RETURN(images_, CommitImages(receiving_.store(), *receiving_.writer(), job, manifests));
  return WriteRecords(parts_.site, job, manifests, images_, record);
}

v1::Outcome Arrival::HandOver(const v1::HandOverRequest& request) {
  {
    std::lock_guard lock(mutex_);
    receiving_.Touch();
    if (!taker_.open() || preparing_) return OutcomeNow();
    preparing_ = true;
    receiving_.Seal();
  }
  Status ready = Prepare(request);
  bool taken = false;
  {
    std::lock_guard lock(mutex_);
    preparing_ = false;
    if (ready.ok()) taker_.Take();
    taken = taker_.step() == Taker::Step::kWriteMine;
  }
  if (taken) {
    Take(request);
  } else {
    if (ready.ok()) RemoveAgain();
    // What could not be written has taken the place of what was there all the same.
    if (!ready.ok()) {
      parts_.copies->Reinstate(row_.job);
      TellEarlierStay(parts_, row_);
    }
    GiveUp(ready);
  }
  std::lock_guard lock(mutex_);
  return OutcomeNow();
}

// As it was before it came: with copies of its images that were here.
void Arrival::RemoveAgain() {
  RemoveRecords(parts_.site, JobOf(row_), images_);
  parts_.copies->Reinstate(row_.job);
  TellEarlierStay(parts_, row_);
}

// Nothing can make it this node's any more.
void Arrival::GiveUp(const Status& why) {
  std::lock_guard lock(mutex_);
  (void)taker_.Ask();
  if (!why.ok()) row_.result = FailureOf(why, "");
  receiving_.Drop();
  changed_.notify_all();
}

void Arrival::Take(const v1::HandOverRequest& request) {
  {
    std::lock_guard lock(mutex_);
    row_.result = {{kImages, images_}, {kSchedule, RulesText(request.schedule())}};
  }
  Status written = Write(Taker::Record::kMine);
  {
    std::lock_guard lock(mutex_);
    taker_.Done(written.ok());
  }
  if (written.ok()) return Restore(request.deadline_ms() > 0 ? request.deadline_ms() : kRestoreMs);
  RemoveAgain();
  GiveUp(written);
}

void Arrival::Restore(uint32_t deadline_ms) {
  ArrivedJob job = JobOf(row_);
  Result<Json> answer = RestoreArrived(parts_.site, job, images_, gpus_, deadline_ms);
  if (answer.ok()) return Conclude(BoolField(*answer, "ok"), *answer);
  const std::optional<bool> runs = HasArrived(parts_.site, job, *parts_.stop);
  if (runs) Conclude(*runs, FailureOf(answer.status(), ""));
}

void Arrival::Probe() {
  {
    std::lock_guard lock(mutex_);
    if (taker_.step() != Taker::Step::kProbe) return;
  }
  const std::optional<bool> runs = HasArrived(parts_.site, JobOf(row_), *parts_.stop);
  if (!runs) return;
  Status why(StatusCode::kPeerDied, "the agent of the target was killed before the job ran there");
  Conclude(*runs, *runs ? Json{{"ok", true}} : FailureOf(why, ""));
}

// Where that cannot be done the job runs all the same, and whoever moved it is told.
void Arrival::TakeOverSchedule(Json* result) {
  std::string rules;
  {
    std::lock_guard lock(mutex_);
    rules = TextField(row_.result, kSchedule);
  }
  if (rules.empty()) return;
  v1::Schedule schedule;
  Status set = google::protobuf::util::JsonStringToMessage(rules, &schedule).ok()
                   ? parts_.set_schedule(row_.job, schedule)
                   : Status(StatusCode::kCorrupt, "its rules cannot be read");
  if (!set.ok()) AddNote("it runs without its schedule: " + set.ToString(), result);
}

void Arrival::Conclude(bool runs, Json result) {
  // What is of no use any more goes before anybody is told that it is not here.
  if (!runs) RemoveAgain();
  if (runs) {
    parts_.registry->SetMovedTo(row_.job, "");
    parts_.registry->Refresh(row_.job);
    TakeOverSchedule(&result);
  }
  {
    std::lock_guard lock(mutex_);
    row_.result = std::move(result);
    taker_.Done(runs);
  }
  Status written = Write(runs ? Taker::Record::kRuns : Taker::Record::kReturned);
  std::lock_guard lock(mutex_);
  taker_.Done(written.ok());
  receiving_.Drop();
  changed_.notify_all();
}

Status Arrival::Write(Taker::Record record) {
  std::lock_guard one(write_mutex_);
  HandOverRow row;
  {
    std::lock_guard lock(mutex_);
    row_.record = record;
    row = row_;
  }
  Status written = parts_.table->Write(row);
  std::lock_guard lock(mutex_);
  written_ = written.ok();
  return written;
}

void Arrival::WriteAgain() {
  std::lock_guard one(write_mutex_);
  HandOverRow row;
  {
    std::lock_guard lock(mutex_);
    if (written_ || taker_.open() || preparing_ || taker_.step() != Taker::Step::kWait) return;
    // Not what could not be written then: that it is this node's may have become untrue with that.
    row_.record = taker_.answer() == HandOverAnswer::kRuns ? Taker::Record::kRuns : Taker::Record::kReturned;
    row = row_;
  }
  Status written = parts_.table->Write(row);
  std::lock_guard lock(mutex_);
  written_ = written.ok();
}

v1::Outcome Arrival::Ask(Duration wait) {
  std::unique_lock lock(mutex_);
  receiving_.Touch();
  const bool was_open = taker_.open();
  (void)taker_.Ask();
  if (was_open && !preparing_) receiving_.Drop();
  changed_.wait_for(lock, wait, [this] { return taker_.answer() != HandOverAnswer::kUndecided; });
  return OutcomeNow();
}

// As handed over to that node, unless it was to another one. What is here may be another life of the job by
// now: begun anew, or taken back by an order, it has no token, and nobody has asked for it.
Result<Arrival::WhatCame> Arrival::MarkWhatCame(const std::string& node) const {
  WhatCame came;
  for (const std::string& task : row_.tasks) {
    TaskPaths paths(parts_.site.folders, task);
    ASSIGN_OR_RETURN(const std::string token, CameBy(paths.folder));
    if (token.empty()) continue;
    ASSIGN_OR_RETURN(const TaskFacts facts, ReadTaskFacts(paths));
    const bool live = IsLive(DeriveCondition(facts).condition);
    // Nobody can say whether it descends from what was to end.
    if (token != row_.token && live)
      return Status(StatusCode::kFailedPrecondition, task + " is here by another hand-over");
    if (token != row_.token) continue;
    came.any = true;
    came.live = came.live || live;
    const std::string moved_to = MovedTo(paths.folder);
    if (!moved_to.empty() && moved_to != node) {
      came.moved_on = task + " has moved on to node " + moved_to;
    } else {
      // From now on nothing makes it run here.
      RETURN_IF_ERROR(MarkMoved(paths.folder, node));
    }
  }
  if (came.any && came.moved_on.empty()) parts_.registry->SetMovedTo(row_.job, node);
  return came;
}

// What an operation was at, a restore or a migration, may have made it live, or taken the mark away: the end
// comes after that, and only then it is known.
Status Arrival::EndWhatCame(const std::string& node) {
  ASSIGN_OR_RETURN(const WhatCame before, MarkWhatCame(node));
  if (!before.any) return Status();
  RETURN_IF_ERROR(parts_.end_job(row_.job));
  ASSIGN_OR_RETURN(const WhatCame after, MarkWhatCame(node));
  if (!after.moved_on.empty()) return Status(StatusCode::kFailedPrecondition, after.moved_on);
  return after.live ? Status(StatusCode::kUnavailable, row_.job + " lives again") : Status();
}

Result<v1::Outcome> Arrival::LetGo(const std::string& node) {
  (void)Ask(Duration::zero());
  {
    std::lock_guard lock(mutex_);
    // It is being restored.
    if (taker_.step() != Taker::Step::kWait) return OutcomeNow();
    taker_.LetGo();
    if (taker_.step() != Taker::Step::kEnd) return OutcomeNow();
  }
  Status ended = EndWhatCame(node);
  {
    std::lock_guard lock(mutex_);
    taker_.Done(ended.ok());
    if (!ended.ok()) return ended;
    row_.result = FailureOf(Status(StatusCode::kCancelled, "node " + node + " has taken it back"), "");
  }
  Status written = Write(Taker::Record::kReturned);
  std::lock_guard lock(mutex_);
  taker_.Done(written.ok());
  return OutcomeNow();
}

v1::Outcome Arrival::OutcomeNow() const {
  v1::Outcome outcome;
  HandOverAnswer answer = preparing_ && taker_.open() ? HandOverAnswer::kUndecided : taker_.answer();
  outcome.set_kind(KindOf(answer));
  if (answer == HandOverAnswer::kRuns || answer == HandOverAnswer::kNotTaken) {
    outcome.set_result_json(row_.result.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  return outcome;
}

}  // namespace stasis
