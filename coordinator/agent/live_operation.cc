#include "coordinator/agent/live_operation.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "dedup/json.h"

namespace stasis {
namespace {

uint64_t MicrosecondsNow() {
  auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
}

std::string TokenOf(const OperationRow& row) {
  return fmt::format("{}-{:x}", row.operation.id(), row.operation.created_ms());
}

}  // namespace

OperationInterrupt::OperationInterrupt() : count_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE)) {}

bool OperationInterrupt::Take() {
  uint64_t one;
  return read(count_.get(), &one, sizeof one) == sizeof one;
}

void OperationInterrupt::Add() {
  uint64_t one = 1;
  (void)!write(count_.get(), &one, sizeof one);
}

void OperationInterrupt::Ask() {
  if (!asked_.exchange(true)) Add();
}

void OperationInterrupt::Abandon() {
  Ask();
  if (!abandoned_.exchange(true)) Add();
}

LiveOperation::LiveOperation(OperationRow row, bool recovers, OperationTable& table, Hooks hooks)
    : table_(table),
      hooks_(std::move(hooks)),
      recovers_(recovers),
      actor_{row.operation.actor(), row.role},
      token_(TokenOf(row)),
      row_(std::move(row)) {
  trace_.Start();
}

void LiveOperation::Changed(bool urgent) {
  {
    std::lock_guard lock(mutex_);
    uint64_t revision = std::max(row_.operation.revision() + 1, MicrosecondsNow());
    row_.operation.set_revision(revision);
  }
  hooks_.changed(urgent);
}

v1::Operation LiveOperation::Snapshot(bool spans) const {
  std::lock_guard lock(mutex_);
  v1::Operation operation = row_.operation;
  trace_.Fill(&operation, spans);
  return operation;
}

Status LiveOperation::Begin() {
  trace_.Start();
  {
    std::lock_guard lock(mutex_);
    row_.operation.set_state(v1::OPERATION_STATE_RUNNING);
    if (!recovers_) row_.operation.set_started_ms(MillisecondsNow());
  }
  if (!recovers_) RETURN_IF_ERROR(table_.Begin(row_));
  Changed(true);
  return Status();
}

// Nobody is told before it is durable.
v1::Operation LiveOperation::End(const Json& result, Status* written) {
  trace_.Finish();
  v1::Operation ended = Snapshot(true);
  ended.set_state(StateOfResult(result));
  ended.set_ended_ms(MillisecondsNow());
  ended.set_result_json(JsonText(result));
  ended.set_revision(std::max(ended.revision() + 1, MicrosecondsNow()));
  *written = table_.End(row_.number, ended);
  if (!written->ok()) ended.add_notes("the end of this could not be written down: " + written->ToString());
  return ended;
}

std::string LiveOperation::job() const {
  std::lock_guard lock(mutex_);
  return row_.operation.job();
}

void LiveOperation::SetJob(const std::string& name) {
  {
    std::lock_guard lock(mutex_);
    if (row_.operation.job() == name) return;
    row_.operation.set_job(name);
  }
  Status written = table_.SetJob(row_.number, name);
  if (!written.ok()) Note("the name could not be written down: " + written.ToString());
  hooks_.job_set(name);
  Changed(true);
}

void LiveOperation::Progress(const std::string& phase, uint64_t done, uint64_t total) {
  trace_.Progress(phase, done, total);
  Changed(false);
}

void LiveOperation::Note(const std::string& sentence) {
  trace_.Note(sentence);
  Changed(false);
}

uint32_t LiveOperation::BeginSpan(std::string_view name, uint32_t parent, std::string_view rank) {
  uint32_t span = trace_.BeginSpan(name, parent, rank);
  Changed(false);
  return span;
}

void LiveOperation::EndSpan(uint32_t span, uint64_t bytes) {
  trace_.EndSpan(span, bytes);
  Changed(false);
}

void LiveOperation::TakeEvent(const std::string& rank, const Json& event) {
  trace_.TakeEvent(rank, event);
  Changed(false);
}

Status LiveOperation::Remember(const Json& state) {
  std::string text = JsonText(state);
  RETURN_IF_ERROR(table_.Remember(row_.number, text));
  std::lock_guard lock(mutex_);
  row_.remembered = std::move(text);
  return Status();
}

Json LiveOperation::remembered() const {
  std::lock_guard lock(mutex_);
  Result<Json> state = ParseJsonObject(row_.remembered);
  return state.ok() ? *std::move(state) : Json::object();
}

v1::OperationState StateOfResult(const Json& result) {
  if (BoolField(result, "ok")) return v1::OPERATION_STATE_SUCCEEDED;
  std::string left = TextField(result, "left");
  // A resume that was given up leaves what it found.
  bool undone = left == "unchanged" || left == "rolled-back" ||
                (left == "paused" && TextField(result, "verb") == "resume");
  bool cancelled = TextField(result, "code") == StatusCodeName(StatusCode::kCancelled);
  return cancelled && undone ? v1::OPERATION_STATE_CANCELLED : v1::OPERATION_STATE_FAILED;
}

}  // namespace stasis
