// The client's side of stasis.v1.Agent.
#ifndef CLI_AGENT_CLIENT_H_
#define CLI_AGENT_CLIENT_H_

#include "cli/service_client.h"
#include "stasis/v1/agent.grpc.pb.h"

namespace stasis {

template <>
inline constexpr const char* kServerName<v1::Agent> = "agent";
using AgentClient = ServiceClient<v1::Agent>;

}  // namespace stasis

#endif  // CLI_AGENT_CLIENT_H_
