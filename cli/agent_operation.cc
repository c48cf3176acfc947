#include "cli/agent_operation.h"

#include <poll.h>

#include <optional>
#include <set>

#include "cli/agent_stream.h"

namespace stasis {
namespace {

using Stream = AgentStream<v1::Operation>;

class Wait {
 public:
  Wait(AgentClient& client, const v1::Operation& operation, Interrupt& interrupt, Reporter& reporter)
      : client_(client), id_(operation.id()), interrupt_(interrupt), reporter_(reporter) {
    Tell(operation);
  }

  Result<v1::Operation> Run() {
    while (!end_) {
      Status status = Watch();
      if (end_ || status.ok()) continue;
      if (status.code() != StatusCode::kUnavailable) return status;
      RETURN_IF_ERROR(ReachAgain(status));
    }
    return *end_;
  }

 private:
  void Tell(const v1::Operation& operation);
  Status Watch();
  Status TakeInterrupt();
  Status ReachAgain(const Status& lost);

  AgentClient& client_;
  const std::string id_;
  Interrupt& interrupt_;
  Reporter& reporter_;
  int told_ = 0;  // notes
  bool asked_to_undo_ = false;
  std::optional<v1::Operation> end_;
};

void Wait::Tell(const v1::Operation& operation) {
  for (; told_ < operation.notes_size(); told_++) reporter_.Note(operation.notes(told_));
  if (HasEnded(operation)) {
    end_ = operation;
  } else if (!operation.phase().empty() && operation.phase() != "begin") {
    reporter_.Progress(operation.phase(), operation.done_bytes(), operation.total_bytes());
  }
}

Status Wait::TakeInterrupt() {
  if (!interrupt_.Take()) return Status();
  if (asked_to_undo_) {
    return Status(
        StatusCode::kCancelled,
        "no longer waiting; the agent finishes what it does by itself: `stasis ops show " + id_ + "`");
  }
  asked_to_undo_ = true;
  v1::CancelOperationRequest request;
  request.set_id(id_);
  Result<v1::Operation> asked = client_.Call(&v1::Agent::Stub::CancelOperation, request);
  // Too late is no failure: the result tells.
  if (!asked.ok() && asked.status().code() != StatusCode::kFailedPrecondition) return asked.status();
  return Status();
}

Status Wait::Watch() {
  v1::WatchOperationRequest request;
  request.set_id(id_);
  Stream stream(
      [&](grpc::ClientContext* context) { return client_.stub().WatchOperation(context, request); });
  for (;;) {
    pollfd waits[] = {{stream.fd(), POLLIN, 0}, {interrupt_.fd(), POLLIN, 0}};
    if (poll(waits, 2, -1) < 0 && errno != EINTR) return ErrnoStatus(errno, "poll");
    if (waits[1].revents != 0) RETURN_IF_ERROR(TakeInterrupt());
    bool ended = false;
    for (const v1::Operation& operation : stream.Take(&ended)) Tell(operation);
    if (end_) return Status();
    if (!ended) continue;
    if (!stream.status().ok()) return client_.Explained(stream.status());
    return Status(StatusCode::kUnavailable, "the agent has ended the stream before the operation ended");
  }
}

// The operation is on record: the next agent has it.
Status Wait::ReachAgain(const Status& lost) {
  reporter_.Note("the agent is gone; waiting for the next one");
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(std::chrono::system_clock::now() + kAgentPatience);
  v1::GetOperationRequest request;
  request.set_id(id_);
  v1::Operation operation;
  Status status = FromRpcStatus(client_.stub().GetOperation(&context, request, &operation), context, nullptr);
  if (status.code() == StatusCode::kTimeout || status.code() == StatusCode::kUnavailable) {
    return Status(lost).WithContext("lost sight of operation " + id_);
  }
  if (status.ok()) Tell(operation);
  return status;
}

}  // namespace

Result<v1::Operation> AwaitOperation(AgentClient& client, const v1::Operation& operation,
                                     Interrupt& interrupt, Reporter& reporter) {
  return Wait(client, operation, interrupt, reporter).Run();
}

bool HasEnded(const v1::Operation& operation) {
  return operation.state() == v1::OPERATION_STATE_SUCCEEDED ||
         operation.state() == v1::OPERATION_STATE_FAILED ||
         operation.state() == v1::OPERATION_STATE_CANCELLED;
}

const char* OperationStateName(v1::OperationState state) {
  switch (state) {
    case v1::OPERATION_STATE_QUEUED:
      return "queued";
    case v1::OPERATION_STATE_RUNNING:
      return "running";
    case v1::OPERATION_STATE_SUCCEEDED:
      return "succeeded";
    case v1::OPERATION_STATE_FAILED:
      return "failed";
    case v1::OPERATION_STATE_CANCELLED:
      return "cancelled";
    default:
      return "unknown";
  }
}

Json ResultOf(const v1::Operation& operation) {
  Json result = Json::parse(operation.result_json(), nullptr, false);
  if (result.is_object()) return result;
  return {{"ok", false},
          {"code", StatusCodeName(StatusCode::kInternal)},
          {"message", "operation " + operation.id() + " has no result"}};
}

}  // namespace stasis
