#include "proto/rpc/gate.h"

#include <grpc/grpc_security_constants.h>

#include <charconv>
#include <ctime>
#include <string_view>

#include "proto/rpc/endpoint.h"

namespace stasis {
namespace {

// The name that gRPC gives to connections that came in through the doors.
constexpr std::string_view kDoorPrefix = "fd:";

std::optional<int> DescriptorOf(std::string_view peer) {
  if (!peer.starts_with(kDoorPrefix)) return std::nullopt;
  int fd = -1;
  auto [end, error] = std::from_chars(peer.data() + kDoorPrefix.size(), peer.data() + peer.size(), fd);
  if (error != std::errc() || end != peer.data() + peer.size()) return std::nullopt;
  return fd;
}

}  // namespace

bool MayDo(Role role, Access access) {
  switch (access) {
    case Access::kLook:
      return true;
    case Access::kRead:
      return role != Role::kAgent;
    case Access::kChange:
      return role == Role::kOperator || role == Role::kScheduler || role == Role::kItself;
    case Access::kPeer:
      return role == Role::kAgent;
    case Access::kJoin:
      return role == Role::kAgent || role == Role::kOperator;
  }
  return false;
}

Result<Actor> Gate::Identify(const grpc::ServerContextBase& context) {
  std::shared_ptr<const grpc::AuthContext> auth = context.auth_context();
  if (auth != nullptr && auth->IsPeerAuthenticated()) {
    std::vector<grpc::string_ref> pem = auth->FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
    if (pem.size() != 1) return Status(StatusCode::kPermissionDenied, "the client has shown no certificate");
    return certificates_.ActorOf(std::string(pem[0].data(), pem[0].size()), std::time(nullptr));
  }
  std::optional<int> fd = DescriptorOf(context.peer());
  std::optional<uid_t> uid = fd ? doors_.OwnerOf(*fd) : std::nullopt;
  if (!uid) return Status(StatusCode::kPermissionDenied, "nobody knows who the client is");
  return Actor{"uid " + std::to_string(*uid), Role::kOperator};
}

Result<Actor> Gate::Admit(const grpc::ServerContextBase& context, Access access,
                          const google::protobuf::Message& message) {
  ASSIGN_OR_RETURN(Actor actor, Identify(context));
  if (!MayDo(actor.role, access)) {
    return Status(StatusCode::kPermissionDenied,
                  actor.name + " has the role of a " + RoleName(actor.role) + ", which may not do this");
  }
  size_t bytes = message.ByteSizeLong();
  if (bytes <= static_cast<size_t>(kMaxMessageBytes)) return actor;
  return Errorf(StatusCode::kResourceExhausted, "the message has %zu bytes; at most %d are taken", bytes,
                kMaxMessageBytes);
}

}  // namespace stasis
