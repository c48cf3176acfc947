#include "cli/agent_client.h"

#include <fmt/format.h>

#include <random>

#include "proto/rpc/endpoint.h"

namespace stasis {

Result<AgentClient> AgentClient::Open(const std::string& endpoint) {
  ASSIGN_OR_RETURN(Endpoint parsed, ParseEndpoint(endpoint));
  ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel, OpenChannel(parsed, TlsFromEnvironment()));
  return AgentClient(endpoint, v1::Agent::NewStub(channel));
}

Status AgentClient::Explained(Status status) const {
  if (status.code() != StatusCode::kUnavailable) return status;
  return std::move(status).WithContext("the agent at " + endpoint_);
}

std::string NewIdempotencyKey() {
  std::random_device random;
  return fmt::format("cli-{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

}  // namespace stasis
