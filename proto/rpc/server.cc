#include "proto/rpc/server.h"

#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>

#include <chrono>
#include <list>
#include <utility>

namespace stasis {
namespace {

constexpr int kMaxMetadataBytes = 16 << 10;
// A connection that says nothing is asked whether it is still there.
constexpr int kKeepaliveMs = 30000;

void Limit(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(kMaxReadBytes);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // Two servers on one port would each get some of the calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

}  // namespace

Result<std::unique_ptr<RpcServer>> RpcServer::Start(Options options, Doors& doors) {
  std::unique_ptr<RpcServer> server(new RpcServer(doors));
  grpc::ServerBuilder builder;
  Limit(builder);
  std::list<std::pair<Endpoint, int>> ports;  // told by BuildAndStart
  for (const Endpoint& endpoint : options.endpoints) {
    if (IsClear(endpoint, options.tls)) continue;
    ASSIGN_OR_RETURN(auto credentials, ServerCredentialsFor(endpoint, options.tls));
    ports.emplace_back(endpoint, 0);
    builder.AddListeningPort(endpoint.Target(), credentials, &ports.back().second);
  }
  for (grpc::Service* service : options.services) builder.RegisterService(service);
  std::vector<std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>> observers;
  if (options.observer != nullptr) observers.push_back(std::move(options.observer));
  builder.experimental().SetInterceptorCreators(std::move(observers));
  server->server_ = builder.BuildAndStart();
  for (auto& [endpoint, port] : ports) {
    if (server->server_ == nullptr || port == 0) {
      return Status(StatusCode::kAlreadyExists, "cannot listen on " + endpoint.Target());
    }
    endpoint.port = port;
    server->endpoints_.push_back(endpoint);
  }
  if (server->server_ == nullptr) return Status(StatusCode::kInternal, "gRPC does not start");
  for (const Endpoint& endpoint : doors.endpoints()) server->endpoints_.push_back(endpoint);
  grpc::Server* raw = server->server_.get();
  RETURN_IF_ERROR(doors.Begin([raw](int fd) { grpc::AddInsecureChannelFromFd(raw, fd); }, options.refused));
  return server;
}

RpcServer::~RpcServer() { Stop(Duration::zero()); }

void RpcServer::Stop(Duration patience) {
  doors_.Stop();
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() +
                    std::chrono::duration_cast<std::chrono::milliseconds>(patience));
  server_->Wait();
  server_.reset();
}

}  // namespace stasis
