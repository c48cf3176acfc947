// Who asks, and what that one may do.
#ifndef PROTO_RPC_ACTOR_H_
#define PROTO_RPC_ACTOR_H_

#include <string>

#include "base/status.h"

namespace stasis {

// Of a client's certificate, by its organizational unit (OU); of a client on the unix socket, by its uid.
enum class Role {
  kReader,     // stasis-reader: looks
  kOperator,   // stasis-operator, and the service's own uid: everything but what is for agents
  kScheduler,  // stasis-scheduler: as an operator, with a fence
  kAgent,      // stasis-agent: what is for agents, and what everybody may look at
  kItself,     // the agent's own schedules and restarts
};
const char* RoleName(Role role);

struct Actor {
  std::string name;  // "uid 1000", "cn node-7", "schedule", "restart"
  Role role = Role::kReader;
};

}  // namespace stasis

#endif  // PROTO_RPC_ACTOR_H_
