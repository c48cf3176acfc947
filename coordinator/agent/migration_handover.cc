// The part of a migration from which there is no way back but by what the target says.
#include <poll.h>

#include <algorithm>

#include "coordinator/agent/migration_run.h"
#include "coordinator/job_json.h"
#include "coordinator/job_result.h"

namespace stasis {
namespace {

// An answer that takes longer is asked for: a connection that is cut says nothing.
constexpr auto kHandOverWait = std::chrono::seconds(15);
constexpr auto kAskWait = std::chrono::seconds(5);
constexpr int kFirstPauseMs = 100;
constexpr int kLongestPauseMs = 2000;
// Asked so often in vain, over some ten seconds: the agent there is not just being started again.
constexpr int kInVain = 8;
constexpr double kMs = 1000;

double MsSince(MonotonicTime start) {
  return std::chrono::duration<double>(Clock::Real().Now() - start).count() * kMs;
}

}  // namespace

Json MigrationRun::HandOverAndEnd(Giver giver) {
  ScopedSpan span(context_, "hand over");
  context_.Progress("hand over", 0, 0);
  while (!giver.ended()) {
    CarryOut(giver);
    if (giver.step() == Giver::Step::kAsk && LeaveItToTheNext())
      return Failed(Status(StatusCode::kCancelled, "the target has not said what became of it"), "in-doubt");
    if (giver.step() == Giver::Step::kEnd && not_ended_ && LeaveItToTheNext())
      return Failed(Status(StatusCode::kCancelled, "what is paused here has not ended"), "in-doubt");
    // An order that waits would be carried out beside the life there, should that be the last word. A target
    // that is at it still is let end that.
    const bool unheard = giver.step() == Giver::Step::kAsk && asked_ > 0;
    if (unheard || giver.step() == Giver::Step::kWriteGone) {
      memory_.order = context_.overruled_by();
      if (!memory_.order.empty()) giver.Overrule();
    }
    const bool taking_back =
        giver.step() == Giver::Step::kWriteTakenBack || giver.step() == Giver::Step::kYield;
    if (taking_back && (not_owed_ || not_ended_) && LeaveItToTheNext())
      return Failed(Status(StatusCode::kCancelled, "it has not been taken back yet"), "in-doubt");
  }
  if (giver.step() == Giver::Step::kTakenBack) return TakenBack();
  return giver.step() == Giver::Step::kGone ? Gone() : Kept();
}

void MigrationRun::CarryOut(Giver& giver) {
  switch (giver.step()) {
    case Giver::Step::kWriteGiving: {
      Status written = job_->Mark(memory_.target);
      if (written.ok()) written = Remember(RecordName(Giver::Record::kGiving));
      if (!written.ok()) context_.Note(written.ToString());
      return giver.Done(written.ok());
    }
    case Giver::Step::kWriteGone:
      return giver.Done(Remember(RecordName(Giver::Record::kGone)).ok());
    case Giver::Step::kWriteKept:
      return giver.Done(Remember(RecordName(Giver::Record::kKept)).ok());
    case Giver::Step::kHandOver:
      return giver.Answered(TellTarget());
    case Giver::Step::kAsk:
      return giver.Answered(AskTarget());
    case Giver::Step::kEnd:
      return giver.Done(End());
    case Giver::Step::kKeep: {
      kept_ = Keep();
      return giver.Done(kept_);
    }
    case Giver::Step::kWriteTakenBack:
      return giver.Done(Owed(Remember(RecordName(Giver::Record::kTakenBack))));
    case Giver::Step::kYield:
      return giver.Done(Yield());
    case Giver::Step::kGone:
    case Giver::Step::kKept:
    case Giver::Step::kTakenBack:
      return;
  }
}

// What cannot be written down now is tried again.
bool MigrationRun::Owed(const Status& written) {
  if (!written.ok() && !not_owed_)
    context_.Note("that it was taken back cannot be written down, and is tried again: " + written.ToString());
  not_owed_ = !written.ok();
  if (not_owed_) Pause(kLongestPauseMs);
  return !not_owed_;
}

// It may run at the target, which is told as soon as it is heard. Who ends the job here ends what is paused;
// who brings it back does that from the image of it.
bool MigrationRun::Yield() {
  if (!Owed(options_.reclaim(ReclaimOf(job_->name())))) return false;
  // From the image it comes back as from any other, whether or not the order that comes next succeeds.
  return (memory_.order == "cancel" || End()) && Owed(UnmarkHere());
}

Reclaim MigrationRun::ReclaimOf(const std::string& job) const {
  return {memory_.token, job, request_.node(), memory_.target};
}

// It is nobody else's.
Status MigrationRun::UnmarkHere() {
  RETURN_IF_ERROR(job_->Unmark());
  options_.registry->SetMovedTo(job_->name(), "");
  return Status();
}

// It runs at the target: nothing that is here may stay, and nothing but the next attempt can help.
bool MigrationRun::End() {
  // That is refused while anything of it lives: what is here now was never paused for this.
  if (!job_->Marked()) {
    context_.Note("it was taken back meanwhile, and what is here stays");
    return true;
  }
  if (not_ended_) Pause(kLongestPauseMs);
  // Before anybody sees it end.
  options_.registry->SetMovedTo(job_->name(), memory_.target);
  Status ended = job_->EndPaused();
  if (ended.ok()) return true;
  if (!not_ended_)
    context_.Note("what is paused here does not end, and is killed again: " + ended.ToString());
  not_ended_ = true;
  return false;
}

// Until then, or somebody interrupts.
void MigrationRun::Pause(int milliseconds) {
  pollfd wait{context_.interrupt().fd(), POLLIN, 0};
  (void)poll(&wait, 1, milliseconds);
}

HandOverAnswer MigrationRun::Answer(const Result<v1::Outcome>& outcome) {
  if (!outcome.ok()) return HandOverAnswer::kNone;
  outcome_ = *outcome;
  switch (outcome->kind()) {
    case v1::OUTCOME_KIND_UNDECIDED:
      return HandOverAnswer::kUndecided;
    case v1::OUTCOME_KIND_RUNS:
      return HandOverAnswer::kRuns;
    case v1::OUTCOME_KIND_NOT_TAKEN:
      return HandOverAnswer::kNotTaken;
    default:
      return HandOverAnswer::kNone;
  }
}

HandOverAnswer MigrationRun::TellTarget() {
  v1::HandOverRequest request;
  request.set_token(memory_.token);
  if (job_->ranked()) request.set_job_json(JobRecordText(job_->record()));
  if (options_.schedule_of) {
    if (std::optional<v1::Schedule> rules = options_.schedule_of(job_->name()))
      *request.mutable_schedule() = *std::move(rules);
  }
  return Answer(peer_->HandOver(request, kHandOverWait));
}

Result<v1::Outcome> MigrationRun::AskOnce() {
  if (!peer_) {
    ASSIGN_OR_RETURN(peer_, options_.connect(request_.node()));
  }
  return peer_->AskOutcome(memory_.token, kAskWait);
}

// Pauses are longer each time in vain; what gives the operation up does not, since only the target knows.
HandOverAnswer MigrationRun::AskTarget() {
  if (asked_ > 0) Pause(std::min(kFirstPauseMs << std::min(asked_, 5), kLongestPauseMs));
  ++asked_;
  Result<v1::Outcome> outcome = AskOnce();
  if (!outcome.ok() && asked_ == 1)
    context_.Note("the target does not say what became of it, and is asked again: " +
                  outcome.status().ToString());
  if (outcome.ok()) asked_ = 0;
  RefuseOthers(outcome.status());
  return Answer(outcome);
}

// Nobody knows how long it takes: those who do not decide it need not wait.
void MigrationRun::RefuseOthers(const Status& unheard) {
  const bool refuse = !unheard.ok() && asked_ >= kInVain;
  if (refuse == refused_) return;
  refused_ = refuse;
  if (!refuse) return context_.RefuseOthers(Status(), "");
  const std::string& job = job_->name();
  Status why(StatusCode::kUnavailable,
             job + " was handed over to node " + memory_.target +
                 ", which does not say whether it runs there: " + std::string(unheard.message()));
  context_.RefuseOthers(
      why, "it is decided once node " + memory_.target +
               " is reached; where that one is gone for good, `stasis restore --take-back " + job +
               "` brings it back here, and `stasis cancel " + job + "` ends it");
}

// The first interrupt is somebody who wants it undone, which nobody can promise now; the second one an agent
// that is about to end.
bool MigrationRun::LeaveItToTheNext() {
  pollfd wait{context_.interrupt().fd(), POLLIN, 0};
  if (poll(&wait, 1, 0) > 0 && context_.interrupt().Take()) ++interrupts_;
  return interrupts_ >= 2;
}

Json MigrationRun::Gone() {
  const double standstill = MsSince(stopped_), total = MsSince(begun_);
  if (peer_) (void)peer_->Settle(memory_.token);
  options_.registry->Refresh(job_->name());
  DropEarlyImages();
  Json result = figures_;
  Json there = Json::parse(outcome_.result_json(), nullptr, false);
  result["ok"] = true;
  result["verb"] = "migrate";
  result["moved_to"] = memory_.target;
  result["standstill_ms"] = standstill;
  result["total_ms"] = total;
  if (!there.is_object()) return result;
  result["image"] = TextField(there, "image");
  result["gpus"] = IntegersField(there, "gpus");
  result["restore_ms"] = NumberField(there, "total_ms");
  result["notes"] = TextsField(there, "notes");
  return result;
}

Json MigrationRun::TakenBack() {
  options_.registry->Refresh(job_->name());
  DropEarlyImages();
  const bool heard = outcome_.kind() == v1::OUTCOME_KIND_RUNS;
  Status why(StatusCode::kUnavailable,
             "node " + memory_.target + (heard ? " runs it" : " does not say what became of it") + ", and `" +
                 memory_.order +
                 "` has decided that it is not to have it: as soon as it is reached, "
                 "what runs there ends");
  return Failed(why, memory_.order == "cancel" ? "paused" : "lost");
}

Json MigrationRun::Kept() {
  if (peer_) (void)peer_->Settle(memory_.token);
  DropEarlyImages();
  Json there = Json::parse(outcome_.result_json(), nullptr, false);
  std::string why = there.is_object() ? TextField(there, "message") : "";
  Status status(StatusCode::kUnavailable, "node " + memory_.target + " has not taken it" +
                                              (why.empty() ? "" : ": " + why) +
                                              (kept_ ? "; it is here as before" : "; it is lost"));
  Json result = Failed(status, kept_ ? "rolled-back" : "lost");
  if (!there.is_object()) return result;
  result["code"] = TextField(there, "code", TextField(result, "code"));
  result["remedy"] = TextField(there, "remedy");
  return result;
}

}  // namespace stasis
