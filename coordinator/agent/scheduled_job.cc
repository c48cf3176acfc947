#include "coordinator/agent/scheduled_job.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>

#include "coordinator/agent/schedule_rules.h"

namespace stasis {
namespace {

using std::chrono::milliseconds;
using Phase = ScheduleState::Phase;

enum class Stand {
  kRuns,
  kStands,  // lives, and does not run: paused, or something is being done to it
  kOver,    // as it should be, or on request
  kFailed,  // by itself; what is left of it may live
};

Stand StandOf(const v1::Job& job) {
  switch (job.condition()) {
    case v1::CONDITION_RUNNING:
      return Stand::kRuns;
    case v1::CONDITION_BROKEN:
      return Stand::kFailed;
    case v1::CONDITION_EXITED:
      return job.exit_code() == 0 || !job.ended_by().empty() ? Stand::kOver : Stand::kFailed;
    case v1::CONDITION_KILLED:
      // Ctrl-C is a request, too.
      return job.signal() == SIGINT || !job.ended_by().empty() ? Stand::kOver : Stand::kFailed;
    case v1::CONDITION_CREATED:
    case v1::CONDITION_CHECKPOINTED:
    case v1::CONDITION_MIGRATED:
      return Stand::kOver;
    default:
      return Stand::kStands;
  }
}

constexpr const char* kPhaseNames[] = {"watching", "restarting", "given-up", "ended"};
constexpr const char* kStepNames[] = {"", "checkpoint", "cancel", "restore"};

template <typename Enum, size_t kCount>
Enum Named(const char* const (&names)[kCount], const std::string& name) {
  for (size_t i = 0; i < kCount; i++) {
    if (name == names[i]) return static_cast<Enum>(i);
  }
  return Enum{};
}

Json ResultOf(const v1::Operation& operation) {
  Json result = Json::parse(operation.result_json(), nullptr, /*allow_exceptions=*/false);
  return result.is_object() ? result : Json::object();
}

// Another image may do where this one did not.
bool IsOfTheImage(const std::string& code) {
  return code == StatusCodeName(StatusCode::kCorrupt) || code == StatusCodeName(StatusCode::kNotFound) ||
         code == StatusCodeName(StatusCode::kUnsupported);
}

// A wall clock that was set meanwhile makes no more of it than now, or long ago.
MonotonicTime MonotonicAt(int64_t wall_ms, Moment now) {
  int64_t ago = std::clamp<int64_t>(now.wall_ms - wall_ms, 0, now.monotonic / milliseconds(1));
  return now.monotonic - milliseconds(ago);
}

std::string FailureOf(const v1::Operation& operation, const Json& result) {
  std::string message = TextField(result, "message");
  return operation.verb() + ": " + (message.empty() ? "failed" : message);
}

}  // namespace

const char* PhaseName(Phase phase) { return kPhaseNames[static_cast<size_t>(phase)]; }

Json ScheduleState::ToJson() const {
  return {{"phase", PhaseName(phase)},
          {"job_created_ms", job_created_ms},
          {"cost_ms", cost.standstill_ms},
          {"last_ms", last_ms},
          {"restarts", restarts},
          {"failures_in_a_row", failures_in_a_row},
          {"ends_rest", ends_rest},
          {"last_error", last_error},
          {"last_image", last_image},
          {"sequence", sequence},
          {"pending", kStepNames[static_cast<size_t>(pending)]},
          {"image", image},
          {"operation", operation}};
}

ScheduleState ScheduleState::FromJson(const Json& json) {
  ScheduleState state;
  state.phase = Named<Phase>(kPhaseNames, TextField(json, "phase"));
  state.job_created_ms = IntegerField(json, "job_created_ms");
  state.cost.standstill_ms = NumberField(json, "cost_ms", -1);
  state.last_ms = IntegerField(json, "last_ms");
  state.restarts = static_cast<uint32_t>(IntegerField(json, "restarts"));
  state.failures_in_a_row = static_cast<uint32_t>(IntegerField(json, "failures_in_a_row"));
  state.ends_rest = BoolField(json, "ends_rest");
  state.last_error = TextField(json, "last_error");
  state.last_image = TextField(json, "last_image");
  state.sequence = static_cast<uint64_t>(IntegerField(json, "sequence"));
  state.pending = Named<Step>(kStepNames, TextField(json, "pending"));
  state.image = TextField(json, "image");
  state.operation = TextField(json, "operation");
  return state;
}

ScheduledJob::ScheduledJob(v1::Schedule rules, ScheduleState state, double default_mtbf_ms, Moment now)
    : rules_(std::move(rules)), state_(std::move(state)), default_mtbf_ms_(default_mtbf_ms) {
  timer_.emplace(rules_, default_mtbf_ms_);
  if (state_.last_ms != 0) count_from_ = MonotonicAt(state_.last_ms, now);
}

void ScheduledJob::SetRules(v1::Schedule rules, const v1::Job& job, Moment now) {
  rules_ = std::move(rules);
  timer_.emplace(rules_, default_mtbf_ms_);
  if (state_.pending == Step::kCheckpoint) timer_->Started(now);
  begun_ = false;
  count_from_ = now.monotonic;
  state_.failures_in_a_row = 0;
  state_.last_error.clear();
  // Who changes the rules of a job that has failed does not ask for a restart by that.
  if (state_.phase == Phase::kGivenUp || (state_.phase == Phase::kWatching && !job.live())) {
    state_.phase = Phase::kEnded;
  }
}

Step ScheduledJob::Next(const v1::Job& job, Moment now) {
  if (state_.pending != Step::kNothing) return Step::kNothing;
  Stand stand = StandOf(job);
  runs_ = stand == Stand::kRuns;
  switch (stand) {
    case Stand::kRuns:
      Revive(now);
      return !rules_.paused() && timer_->Due(now, state_.cost) ? Step::kCheckpoint : Step::kNothing;
    case Stand::kStands:
      timer_->Skip(now);
      return Step::kNothing;
    case Stand::kFailed:
      return NextOfFailed(job, now);
    case Stand::kOver:
      break;
  }
  if (state_.phase == Phase::kRestarting && state_.ends_rest) return NextOfFailed(job, now);
  state_.phase = Phase::kEnded;
  return Step::kNothing;
}

void ScheduledJob::Revive(Moment now) {
  if (state_.phase != Phase::kWatching) {
    state_.phase = Phase::kWatching;
    state_.ends_rest = false;
    bad_images_.clear();
    begun_ = false;
    count_from_ = now.monotonic;
  }
  restart_.reset();
  if (begun_) return;
  begun_ = true;
  timer_->Begin(count_from_.value_or(now.monotonic), now);
}

Step ScheduledJob::NextOfFailed(const v1::Job& job, Moment now) {
  if (rules_.max_restarts() == 0 || rules_.paused()) return Step::kNothing;
  if (state_.phase == Phase::kGivenUp || state_.phase == Phase::kEnded) return Step::kNothing;
  if (!restart_) PlanRestart(now);
  // Whoever works on it may bring it back.
  if (!restart_ || now.monotonic < *restart_ || !job.operation().empty()) return Step::kNothing;
  return job.live() ? Step::kEndRest : Step::kRestore;
}

void ScheduledJob::PlanRestart(Moment now) {
  restart_.reset();
  if (state_.failures_in_a_row >= rules_.max_restarts()) {
    return GiveUp(fmt::format("failed again after {} restarts without another image{}{}",
                              state_.failures_in_a_row, state_.last_error.empty() ? "" : "; ",
                              state_.last_error));
  }
  state_.phase = Phase::kRestarting;
  double wait = BackoffMs(rules_.restart_backoff_ms(), state_.failures_in_a_row);
  restart_ = now.monotonic + milliseconds(static_cast<int64_t>(wait));
}

void ScheduledJob::GiveUp(const std::string& why) {
  state_.phase = Phase::kGivenUp;
  state_.last_error = why;
  restart_.reset();
}

std::optional<Duration> ScheduledJob::Wait(Moment now) {
  if (state_.pending != Step::kNothing || rules_.paused()) return std::nullopt;
  if (runs_) return timer_->Wait(now, state_.cost);
  if (restart_ && *restart_ > now.monotonic) return *restart_ - now.monotonic;
  return std::nullopt;
}

void ScheduledJob::Begin(Step step, const std::string& image, Moment now) {
  state_.pending = step;
  state_.image = image;
  state_.operation.clear();
  state_.sequence++;
  if (step == Step::kEndRest) state_.ends_rest = true;
  if (step == Step::kCheckpoint) timer_->Started(now);
}

void ScheduledJob::NotBegun(const Status& status, Moment now) {
  Step step = state_.pending;
  state_.pending = Step::kNothing;
  state_.last_error = status.message();
  if (step == Step::kCheckpoint) return timer_->Failed(now);
  PlanRestart(now);
}

void ScheduledJob::NoImage() {
  GiveUp(bad_images_.empty() ? "there is no image to restart it from"
                             : "none of its images can be restored; " + state_.last_error);
}

void ScheduledJob::Ended(const v1::Operation& operation, Moment now) {
  Json result = ResultOf(operation);
  bool own = state_.pending != Step::kNothing && operation.id() == state_.operation;
  Step step = own ? state_.pending : Step::kNothing;
  if (own) state_.pending = Step::kNothing;
  bool succeeded = operation.state() == v1::OPERATION_STATE_SUCCEEDED;
  if (operation.verb() == "checkpoint" && succeeded) {
    if (own) {
      state_.last_image = TextField(result, "image");
    } else {
      timer_->Started(now);
    }
    CheckpointEnded(operation, result, now);
  } else if (step == Step::kCheckpoint) {
    OwnCheckpointFailed(operation, result, now);
  } else if (step == Step::kEndRest) {
    RestEnded(operation, result, now);
  } else if (step == Step::kRestore) {
    RestoreEnded(operation, result, now);
  }
}

void ScheduledJob::CheckpointEnded(const v1::Operation& operation, const Json& result, Moment now) {
  state_.cost.Learn(NumberField(result, "standstill_ms", NumberField(result, "total_ms", -1)));
  state_.failures_in_a_row = 0;
  state_.last_error.clear();
  state_.last_ms = operation.started_ms();
  bad_images_.clear();
  timer_->Succeeded();
  // Begun by an earlier agent, or under other rules.
  if (!begun_) count_from_ = MonotonicAt(state_.last_ms, now);
}

void ScheduledJob::OwnCheckpointFailed(const v1::Operation& operation, const Json& result, Moment now) {
  state_.last_error = FailureOf(operation, result);
  // Who gives it up does not want it a moment later.
  if (operation.state() == v1::OPERATION_STATE_CANCELLED) return timer_->Succeeded();
  timer_->Failed(now);
}

void ScheduledJob::RestEnded(const v1::Operation& operation, const Json& result, Moment now) {
  if (operation.state() == v1::OPERATION_STATE_SUCCEEDED) {
    restart_ = now.monotonic;
    return;
  }
  // It may have ended by itself meanwhile: the job's condition decides.
  state_.last_error = FailureOf(operation, result);
  PlanRestart(now);
}

void ScheduledJob::RestoreEnded(const v1::Operation& operation, const Json& result, Moment now) {
  if (operation.state() == v1::OPERATION_STATE_SUCCEEDED) {
    state_.restarts++;
    state_.failures_in_a_row++;
    state_.last_error.clear();
    state_.phase = Phase::kWatching;
    state_.ends_rest = false;
    restart_.reset();
    begun_ = false;
    count_from_ = now.monotonic;
    return;
  }
  if (operation.state() == v1::OPERATION_STATE_CANCELLED) return GiveUp("the restart was cancelled");
  state_.last_error = FailureOf(operation, result);
  std::string code = TextField(result, "code");
  if (IsOfTheImage(code)) {
    bad_images_.insert(state_.image);
    restart_ = now.monotonic;
    return;
  }
  if (code != StatusCodeName(StatusCode::kAlreadyExists)) state_.failures_in_a_row++;
  PlanRestart(now);
}

int64_t ScheduledJob::NextMs(Moment now) {
  if (!runs_ || state_.pending != Step::kNothing || rules_.paused()) return 0;
  std::optional<Duration> wait = timer_->Wait(now, state_.cost);
  return wait ? now.wall_ms + std::chrono::ceil<milliseconds>(*wait).count() : 0;
}

int64_t ScheduledJob::RestartMs(Moment now) const {
  if (!restart_ || state_.phase != Phase::kRestarting || state_.pending != Step::kNothing) return 0;
  return now.wall_ms + std::chrono::ceil<milliseconds>(*restart_ - now.monotonic).count();
}

v1::Schedule ScheduledJob::Told(Moment now) {
  v1::Schedule told = rules_;
  told.set_next_ms(NextMs(now));
  told.set_measured_cost_ms(std::max(0.0, state_.cost.standstill_ms));
  told.set_suggested_interval_ms(static_cast<uint64_t>(timer_->SuggestedMs(state_.cost)));
  told.set_restarts(state_.restarts);
  told.set_restarts_in_a_row(state_.failures_in_a_row);
  told.set_restart_ms(RestartMs(now));
  told.set_last_error(state_.last_error);
  told.set_last_image(state_.last_image);
  told.set_state(PhaseName(state_.phase));
  return told;
}

}  // namespace stasis
