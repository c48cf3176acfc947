// Who calls, and whether that one may.
#ifndef PROTO_RPC_GATE_H_
#define PROTO_RPC_GATE_H_

#include <google/protobuf/message.h>
#include <grpcpp/server_context.h>

#include "base/status.h"
#include "proto/rpc/actor.h"
#include "proto/rpc/certificate.h"
#include "proto/rpc/doors.h"

namespace stasis {

// What a call does, as far as it matters for who may.
enum class Access {
  kLook,    // what it is: everybody with a role
  kRead,    // what is in it: everybody but agents
  kChange,  // operators and schedulers
  kPeer,    // agents only
  kJoin,    // agents, and operators for them
};
// True when a client of that role may.
bool MayDo(Role role, Access access);

// Thread-safe.
class Gate {
 public:
  explicit Gate(const Doors& doors) : doors_(doors) {}
  // kPermissionDenied: nobody that is known, or one that may not do this; kResourceExhausted: `message` is
  // larger than kMaxMessageBytes.
  Result<Actor> Admit(const grpc::ServerContextBase& context, Access access,
                      const google::protobuf::Message& message);
  // Who calls, whatever that one may.
  Result<Actor> Identify(const grpc::ServerContextBase& context);

 private:
  const Doors& doors_;
  Certificates certificates_;
};

}  // namespace stasis

#endif  // PROTO_RPC_GATE_H_
