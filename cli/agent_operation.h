// An operation of the agent, from the request to its result.
#ifndef CLI_AGENT_OPERATION_H_
#define CLI_AGENT_OPERATION_H_

#include "cli/agent_client.h"
#include "cli/report.h"
#include "coordinator/interrupt.h"

namespace stasis {

// Tells progress and notes until the operation has ended, and returns it as it has, well or not. A first
// interrupt asks the agent to give the operation up, a second one is kCancelled: it goes on by itself. An
// agent that is started anew meanwhile is asked again; kUnavailable: there was none for half a minute.
Result<v1::Operation> AwaitOperation(AgentClient& client, const v1::Operation& operation,
                                     Interrupt& interrupt, Reporter& reporter);

// Submit and await. On failure before there is an operation the agent's remedy is in client.remedy().
template <typename Request>
Result<v1::Operation> CarryOut(AgentClient& client,
                               grpc::Status (v1::Agent::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                       v1::Operation*),
                               Request request, Interrupt& interrupt, Reporter& reporter) {
  request.mutable_change()->set_idempotency_key(NewIdempotencyKey());
  Result<v1::Operation> operation = client.Call(method, request);
  if (!operation.ok()) return operation.status();
  return AwaitOperation(client, *operation, interrupt, reporter);
}

bool HasEnded(const v1::Operation& operation);
// "queued", "running", "succeeded", "failed", "cancelled".
const char* OperationStateName(v1::OperationState state);
// What the operation's result_json holds; a failure of kInternal where it is no object.
Json ResultOf(const v1::Operation& operation);

}  // namespace stasis

#endif  // CLI_AGENT_OPERATION_H_
