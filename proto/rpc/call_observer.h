// Sees every call of every service, also those that no service sees because their message cannot be read:
// tells of them, and puts the unreadable ones on record.
#ifndef PROTO_RPC_CALL_OBSERVER_H_
#define PROTO_RPC_CALL_OBSERVER_H_

#include <grpcpp/support/server_interceptor.h>

#include <functional>
#include <string>

#include "proto/rpc/audit.h"
#include "proto/rpc/gate.h"

namespace stasis {

// Of a server; gate and audit outlive it.
class CallObserver final : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  // Called at each call's end, from any thread: its method, the code it is answered with, and how long it
  // took in seconds, or -1 of a stream.
  using Ended = std::function<void(const std::string& method, int code, double seconds)>;
  CallObserver(Gate& gate, Audit& audit, Ended ended = {})
      : gate_(gate), audit_(audit), ended_(std::move(ended)) {}
  grpc::experimental::Interceptor* CreateServerInterceptor(grpc::experimental::ServerRpcInfo* info) override;

 private:
  Gate& gate_;
  Audit& audit_;
  const Ended ended_;
};

}  // namespace stasis

#endif  // PROTO_RPC_CALL_OBSERVER_H_
