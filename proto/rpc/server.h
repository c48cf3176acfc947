// A gRPC server: its listeners, and how it ends.
#ifndef PROTO_RPC_SERVER_H_
#define PROTO_RPC_SERVER_H_

#include <grpcpp/server.h>
#include <grpcpp/support/server_interceptor.h>

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "proto/rpc/doors.h"
#include "proto/rpc/endpoint.h"

namespace stasis {

class RpcServer {
 public:
  // Where a client needs no TLS.
  static bool IsClear(const Endpoint& endpoint, const TlsFiles& tls) {
    return endpoint.unix_socket || tls.empty();
  }

  struct Options {
    std::vector<Endpoint> endpoints;
    TlsFiles tls;
    std::vector<grpc::Service*> services;  // outlive the object
    // Sees every call; may be null.
    std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> observer;
    // Told of clients in the clear that were turned away.
    Doors::Refused refused;
  };
  // Those endpoints that are in the clear are served through `doors`, which outlives the object.
  static Result<std::unique_ptr<RpcServer>> Start(Options options, Doors& doors);
  ~RpcServer();

  // With the ports that were taken.
  const std::vector<Endpoint>& endpoints() const { return endpoints_; }
  // Takes no new calls, and ends those that have not ended after `patience`. Idempotent.
  void Stop(Duration patience);

 private:
  explicit RpcServer(Doors& doors) : doors_(doors) {}

  Doors& doors_;
  std::vector<Endpoint> endpoints_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace stasis

#endif  // PROTO_RPC_SERVER_H_
