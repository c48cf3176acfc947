// The client's side of stasis.v1.Agent.
#ifndef CLI_AGENT_CLIENT_H_
#define CLI_AGENT_CLIENT_H_

#include <chrono>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "proto/rpc/status.h"
#include "stasis/v1/agent.grpc.pb.h"

namespace stasis {

// How long an agent may take to answer a call that does not wait for anything.
inline constexpr Duration kAgentPatience = std::chrono::seconds(30);

class AgentClient {
 public:
  // `endpoint` as ParseEndpoint takes it. Reaches out with the first call only.
  //
  // The threads that gRPC starts inherit the signal mask: whoever takes signals by a descriptor blocks them
  // before.
  static Result<AgentClient> Open(const std::string& endpoint);

  v1::Agent::Stub& stub() const { return *stub_; }
  const std::string& endpoint() const { return endpoint_; }

  // kUnavailable where there is no agent. On failure the remedy that the agent gave, or "", is in remedy().
  template <typename Request, typename Response>
  Result<Response> Call(grpc::Status (v1::Agent::Stub::*method)(grpc::ClientContext*, const Request&,
                                                                Response*),
                        const Request& request) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kAgentPatience);
    Response response;
    remedy_.clear();
    Status status = FromRpcStatus((stub_.get()->*method)(&context, request, &response), context, &remedy_);
    if (!status.ok()) return Explained(std::move(status));
    return response;
  }
  const std::string& remedy() const { return remedy_; }
  // The same with whom it was about, where nobody was reached.
  Status Explained(Status status) const;

 private:
  AgentClient(std::string endpoint, std::unique_ptr<v1::Agent::Stub> stub)
      : endpoint_(std::move(endpoint)), stub_(std::move(stub)) {}

  std::string endpoint_;
  std::unique_ptr<v1::Agent::Stub> stub_;
  std::string remedy_;
};

// A key that no other request has.
std::string NewIdempotencyKey();

}  // namespace stasis

#endif  // CLI_AGENT_CLIENT_H_
