// The client's side of one of our services: who it is, calls that are answered at once, and whom a failure is
// about.
#ifndef CLI_SERVICE_CLIENT_H_
#define CLI_SERVICE_CLIENT_H_

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/status.h"
#include "proto/rpc/endpoint.h"
#include "proto/rpc/status.h"

namespace stasis {

// How long a service may take to answer a call that does not wait for anything.
inline constexpr Duration kAgentPatience = std::chrono::seconds(30);

// What people call who serves it. One for each service that there are clients of.
template <typename Service>
inline constexpr const char* kServerName = nullptr;

template <typename Service>
class ServiceClient {
 public:
  using Stub = typename Service::Stub;

  // `endpoint` as ParseEndpoint takes it. Reaches out with the first call only.
  //
  // The threads that gRPC starts inherit the signal mask: whoever takes signals by a descriptor blocks them
  // before.
  static Result<ServiceClient> Open(const std::string& endpoint) {
    ASSIGN_OR_RETURN(Endpoint parsed, ParseEndpoint(endpoint));
    ASSIGN_OR_RETURN(std::shared_ptr<grpc::Channel> channel, OpenChannel(parsed, TlsFromEnvironment()));
    return ServiceClient(endpoint, Service::NewStub(channel));
  }

  Stub& stub() const { return *stub_; }
  const std::string& endpoint() const { return endpoint_; }

  // kUnavailable where there is nobody. On failure the remedy that the server gave, or "", is in remedy().
  // `wait`: for the server to be there, as long as it may take to answer.
  template <typename Request, typename Response>
  Result<Response> Call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                        const Request& request, bool wait = false) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kAgentPatience);
    context.set_wait_for_ready(wait);
    Response response;
    remedy_.clear();
    Status status = FromRpcStatus((stub_.get()->*method)(&context, request, &response), context, &remedy_);
    if (!status.ok()) return Explained(std::move(status));
    return response;
  }
  const std::string& remedy() const { return remedy_; }
  // The same with whom it was about, where nobody was reached.
  Status Explained(Status status) const {
    if (status.code() != StatusCode::kUnavailable) return status;
    return std::move(status).WithContext(std::string("the ") + kServerName<Service> + " at " + endpoint_);
  }

 private:
  ServiceClient(std::string endpoint, std::unique_ptr<Stub> stub)
      : endpoint_(std::move(endpoint)), stub_(std::move(stub)) {}

  std::string endpoint_;
  std::unique_ptr<Stub> stub_;
  std::string remedy_;
};

// A key that no other request has.
std::string NewIdempotencyKey();

}  // namespace stasis

#endif  // CLI_SERVICE_CLIENT_H_
