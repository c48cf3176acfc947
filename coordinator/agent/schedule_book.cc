#include "coordinator/agent/schedule_book.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log/log.h"
#include "coordinator/agent/schedule_rules.h"

namespace stasis {
namespace {

constexpr char kComponent[] = "schedule";

bool HasEnded(const v1::Operation& operation) {
  return operation.state() == v1::OPERATION_STATE_SUCCEEDED ||
         operation.state() == v1::OPERATION_STATE_FAILED ||
         operation.state() == v1::OPERATION_STATE_CANCELLED;
}

// The request of a step, with a key by which asking twice is asking once.
OperationRequest RequestOf(const ScheduledJob& job) {
  const ScheduleState& state = job.state();
  OperationRequest request;
  request.job = job.rules().job();
  request.key = fmt::format("schedule/{}/{}", request.job, state.sequence);
  request.actor = {state.pending == Step::kCheckpoint ? "schedule" : "restart", Role::kItself};
  auto fill = [&](auto message, const char* verb) {
    message.mutable_change()->set_idempotency_key(request.key);
    message.set_job(request.job);
    if constexpr (std::is_same_v<decltype(message), v1::RestoreRequest>) message.set_image(state.image);
    request.verb = verb;
    request.request = message.SerializeAsString();
  };
  switch (state.pending) {
    case Step::kCheckpoint:
      fill(v1::CheckpointRequest(), "checkpoint");
      break;
    case Step::kEndRest:
      fill(v1::CancelRequest(), "cancel");
      break;
    case Step::kRestore:
      fill(v1::RestoreRequest(), "restore");
      break;
    case Step::kNothing:
      break;
  }
  return request;
}

void LogError(const char* what, const std::string& job, const Status& status) {
  Log(LogLevel::kError, kComponent, what, {{"job", job}, {"error", status.ToString()}});
}

// Not another one that has got the name since.
bool StillThere(const ScheduledJob& job, const JobPicture& picture) {
  return picture != nullptr && !picture->gone() && picture->created_ms() == job.state().job_created_ms;
}

ScheduledJob NewJob(const v1::Schedule& rules, const v1::Job& job, double default_mtbf_ms, Moment now) {
  ScheduleState state;
  state.job_created_ms = job.created_ms();
  // Keys of an earlier schedule for a job of this name may still be known.
  state.sequence = static_cast<uint64_t>(std::max<int64_t>(now.wall_ms, 0));
  return ScheduledJob(rules, std::move(state), default_mtbf_ms, now);
}

}  // namespace

ScheduleBook::ScheduleBook(ScheduleParts parts) : parts_(std::move(parts)), table_(*parts_.database) {}

Result<std::unique_ptr<ScheduleBook>> ScheduleBook::Open(ScheduleParts parts, Moment now) {
  std::unique_ptr<ScheduleBook> book(new ScheduleBook(std::move(parts)));
  book->Subscribe();
  RETURN_IF_ERROR(book->Load(now));
  return book;
}

void ScheduleBook::Subscribe() {
  jobs_ = parts_.registry->Subscribe([this](const JobPicture& job) {
    {
      std::lock_guard lock(events_mutex_);
      events_.jobs.insert(job->name());
    }
    parts_.wake();
  });
  operations_ = parts_.operations->Subscribe("", [this](const v1::Operation& operation) {
    if (!HasEnded(operation)) return;
    {
      std::lock_guard lock(events_mutex_);
      events_.ended.push_back(operation);
    }
    parts_.wake();
  });
}

Status ScheduleBook::Load(Moment now) {
  std::lock_guard lock(mutex_);
  ASSIGN_OR_RETURN(std::vector<ScheduleTable::Row> rows, table_.Load());
  for (ScheduleTable::Row& row : rows) {
    std::string name = row.rules.job();
    ScheduledJob job(std::move(row.rules), std::move(row.state), parts_.default_mtbf_ms, now);
    auto [entry, added] = entries_.emplace(name, Entry{std::move(job), std::nullopt, ""});
    TakeUp(entry->second, now);
    Process(name, now);
  }
  return Status();
}

void ScheduleBook::TakeUp(Entry& entry, Moment now) {
  const ScheduleState& state = entry.job.state();
  if (state.pending == Step::kNothing) return;
  // Killed between writing down what is started and learning that it was: the key tells.
  if (state.operation.empty()) return Submit(entry, now);
  Result<v1::Operation> operation = parts_.operations->Get(state.operation, /*spans=*/false);
  if (!operation.ok()) return entry.job.NotBegun(operation.status(), now);
  if (operation->state() == v1::OPERATION_STATE_CANCELLED) {
    // By the agent, which was to end.
    return entry.job.NotBegun(Status(StatusCode::kCancelled, "the agent was stopped"), now);
  }
  if (HasEnded(*operation)) HandleEnded(*operation, now);
}

ScheduleBook::Events ScheduleBook::TakeEvents() {
  std::lock_guard lock(events_mutex_);
  return std::exchange(events_, {});
}

std::optional<Duration> ScheduleBook::Turn(Moment now) {
  std::lock_guard lock(mutex_);
  Events events = TakeEvents();
  for (const v1::Operation& operation : events.ended) {
    HandleEnded(operation, now);
    events.jobs.insert(operation.job());
  }
  for (const auto& [name, entry] : entries_) {
    if (entry.wake && *entry.wake <= now.monotonic) events.jobs.insert(name);
  }
  for (const std::string& name : events.jobs) Process(name, now);
  std::optional<Duration> wait;
  for (const auto& [name, entry] : entries_) {
    if (entry.wake) wait = std::min(wait.value_or(Duration::max()), *entry.wake - now.monotonic);
  }
  return wait;
}

void ScheduleBook::HandleEnded(const v1::Operation& operation, Moment now) {
  auto entry = entries_.find(operation.job());
  if (entry == entries_.end()) return;
  ScheduledJob& job = entry->second.job;
  bool own = operation.id() == job.state().operation;
  job.Ended(operation, now);
  bool made = own && operation.verb() == "checkpoint" && operation.state() == v1::OPERATION_STATE_SUCCEEDED;
  if (made) NoteImage(operation.job(), {job.state().last_image, now.wall_ms}, job.rules());
  // What comes next is decided by how the job is after it.
  parts_.registry->Refresh(operation.job());
}

void ScheduleBook::NoteImage(const std::string& job, const ScheduleImage& image, const v1::Schedule& rules) {
  Status noted = image.id.empty() ? Status() : table_.AddImage(job, image);
  if (!noted.ok()) LogError("an image is not known as the schedule's, and stays", job, noted);
  parts_.background([this, job, rules] { Keep(job, rules); });
}

// On the background's thread; uses what is thread-safe by itself.
void ScheduleBook::Keep(const std::string& job, const v1::Schedule& rules) {
  auto keep = [&]() -> Status {
    ASSIGN_OR_RETURN(std::vector<std::string> there, parts_.images->List(job));
    ASSIGN_OR_RETURN(std::vector<ScheduleImage> made, table_.Images(job));
    std::vector<ScheduleImage> left;
    for (const ScheduleImage& image : made) {
      if (std::binary_search(there.begin(), there.end(), image.id)) {
        left.push_back(image);
      } else {
        RETURN_IF_ERROR(table_.ForgetImage(job, image.id));
      }
    }
    std::vector<std::string> remove = ImagesToRemove(left, rules.keep_last(), rules.keep_every_ms());
    if (remove.empty()) return Status();
    RETURN_IF_ERROR(parts_.images->Remove(job, remove));
    for (const std::string& id : remove) RETURN_IF_ERROR(table_.ForgetImage(job, id));
    return Status();
  };
  Status kept = keep();
  if (!kept.ok()) LogError("old images were not removed", job, kept);
}

void ScheduleBook::Process(const std::string& name, Moment now) {
  auto found = entries_.find(name);
  if (found == entries_.end()) return;
  Entry& entry = found->second;
  JobPicture picture = parts_.registry->Find(name);
  if (!StillThere(entry.job, picture)) {
    Status dropped = Drop(name);
    if (!dropped.ok()) LogError("the schedule of a job that is gone was not removed", name, dropped);
    return;
  }
  Step step = entry.job.Next(*picture, now);
  if (step != Step::kNothing) Start(entry, step, now);
  Status saved = Save(entry);
  if (!saved.ok()) LogError("a schedule's state was not written", name, saved);
  Tell(entry, now);
}

void ScheduleBook::Start(Entry& entry, Step step, Moment now) {
  const std::string& name = entry.job.rules().job();
  std::string image;
  if (step == Step::kRestore) {
    Result<std::vector<std::string>> images = parts_.images->List(name);
    const std::set<std::string>& bad = entry.job.bad_images();
    if (images.ok()) {
      std::erase_if(*images, [&](const std::string& id) { return bad.count(id) != 0; });
      if (images->empty()) return entry.job.NoImage();
      image = images->back();
    }
    entry.job.Begin(step, image, now);
    if (!images.ok()) return entry.job.NotBegun(images.status(), now);
  } else {
    entry.job.Begin(step, image, now);
  }
  Status saved = Save(entry);
  if (!saved.ok()) return entry.job.NotBegun(saved, now);
  Submit(entry, now);
}

void ScheduleBook::Submit(Entry& entry, Moment now) {
  OperationRequest request = RequestOf(entry.job);
  Result<v1::Operation> operation = parts_.operations->Submit(request);
  Log(operation.ok() ? LogLevel::kInfo : LogLevel::kWarning, kComponent,
      operation.ok() ? "started" : "could not be started",
      {{"job", request.job},
       {"verb", request.verb},
       {"image", entry.job.state().image},
       {"operation", operation.ok() ? operation->id() : ""},
       {"error", operation.ok() ? "" : operation.status().ToString()}});
  if (!operation.ok()) return entry.job.NotBegun(operation.status(), now);
  entry.job.Began(operation->id());
  // A key that was used before the agent was killed: it may have ended long ago.
  if (HasEnded(*operation)) HandleEnded(*operation, now);
}

Status ScheduleBook::Save(Entry& entry) {
  std::string state = entry.job.state().ToJson().dump(-1, ' ', false, Json::error_handler_t::replace);
  if (state == entry.saved) return Status();
  RETURN_IF_ERROR(table_.Save({entry.job.rules(), entry.job.state()}));
  entry.saved = std::move(state);
  return Status();
}

void ScheduleBook::Tell(Entry& entry, Moment now) {
  std::optional<Duration> wait = entry.job.Wait(now);
  entry.wake = wait ? std::optional<MonotonicTime>(now.monotonic + *wait) : std::nullopt;
  v1::Schedule told = entry.job.Told(now);
  std::lock_guard lock(told_mutex_);
  v1::Schedule& before = told_[told.job()];
  if (before.state() != told.state() && told.state() != "watching") {
    Log(told.state() == "given-up" ? LogLevel::kError : LogLevel::kInfo, kComponent,
        "the job is " + told.state(),
        {{"job", told.job()}, {"last_error", told.last_error()}, {"restarts", told.restarts()}});
  }
  before = std::move(told);
}

Status ScheduleBook::Drop(const std::string& name) {
  RETURN_IF_ERROR(table_.Remove(name));
  entries_.erase(name);
  std::lock_guard lock(told_mutex_);
  told_.erase(name);
  return Status();
}

Result<v1::Schedule> ScheduleBook::Set(const v1::Schedule& schedule, Moment now) {
  const std::string& name = schedule.job();
  RETURN_IF_ERROR(CheckTaskName(name));
  RETURN_IF_ERROR(CheckSchedule(schedule));
  v1::Schedule rules = RulesOf(schedule);
  std::lock_guard lock(mutex_);
  // It may have been made a moment ago.
  if (parts_.registry->Find(name) == nullptr) parts_.registry->Refresh(name);
  JobPicture picture = parts_.registry->Find(name);
  if (picture == nullptr) return Status(StatusCode::kNotFound, "there is no job " + name);
  auto found = entries_.find(name);
  bool known = found != entries_.end() && StillThere(found->second.job, picture);
  if (!known || HasNoRule(rules)) RETURN_IF_ERROR(Drop(name));
  if (HasNoRule(rules)) return rules;
  ScheduledJob job = known ? found->second.job : NewJob(rules, *picture, parts_.default_mtbf_ms, now);
  job.SetRules(rules, *picture, now);
  RETURN_IF_ERROR(table_.Save({job.rules(), job.state()}));
  entries_.insert_or_assign(name, Entry{std::move(job), std::nullopt, ""});
  Process(name, now);
  parts_.wake();
  return List(name).at(0);
}

std::vector<v1::Schedule> ScheduleBook::List(const std::string& job) const {
  std::lock_guard lock(told_mutex_);
  std::vector<v1::Schedule> schedules;
  for (const auto& [name, told] : told_) {
    if (job.empty() || job == name) schedules.push_back(told);
  }
  return schedules;
}

}  // namespace stasis
