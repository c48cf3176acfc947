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
  }
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
    case Giver::Step::kGone:
    case Giver::Step::kKept:
      return;
  }
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

// Pauses are longer each time in vain; what gives the operation up does not, since only the target knows.
HandOverAnswer MigrationRun::AskTarget() {
  if (asked_ > 0) Pause(std::min(kFirstPauseMs << std::min(asked_, 5), kLongestPauseMs));
  ++asked_;
  if (!peer_) {
    Result<std::unique_ptr<PeerLink>> peer = options_.connect(request_.node());
    if (!peer.ok()) return HandOverAnswer::kNone;
    peer_ = *std::move(peer);
  }
  Result<v1::Outcome> outcome = peer_->AskOutcome(memory_.token, kAskWait);
  if (outcome.ok()) asked_ = 0;
  if (!outcome.ok() && asked_ == 1)
    context_.Note("the target does not say what became of it, and is asked again: " +
                  outcome.status().ToString());
  return Answer(outcome);
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
