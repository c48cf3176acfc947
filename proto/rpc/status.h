// Our Status on the wire and back (proto/stasis/v1/agent.proto says in which form).
#ifndef PROTO_RPC_STATUS_H_
#define PROTO_RPC_STATUS_H_

#include <grpcpp/client_context.h>
#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <string>

#include "base/status.h"

namespace stasis {

// Sets the trailing metadata of `context`; `remedy` may be empty.
grpc::Status ToRpcStatus(const Status& status, const std::string& remedy, grpc::ServerContextBase* context);

// Of a call that has ended: OK, or what the server said; kUnavailable where it could not be reached at all,
// kTimeout after the call's deadline. `*remedy` may be null.
Status FromRpcStatus(const grpc::Status& status, const grpc::ClientContext& context, std::string* remedy);

}  // namespace stasis

#endif  // PROTO_RPC_STATUS_H_
