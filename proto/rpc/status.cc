#include "proto/rpc/status.h"

#include <iterator>

namespace stasis {
namespace {

constexpr char kCodeKey[] = "stasis-code";
constexpr char kRemedyKey[] = "stasis-remedy-bin";

constexpr struct {
  StatusCode ours;
  grpc::StatusCode theirs;
} kCodes[] = {
    {StatusCode::kInvalidArgument, grpc::INVALID_ARGUMENT},
    {StatusCode::kNotFound, grpc::NOT_FOUND},
    {StatusCode::kAlreadyExists, grpc::ALREADY_EXISTS},
    {StatusCode::kFailedPrecondition, grpc::FAILED_PRECONDITION},
    {StatusCode::kPermissionDenied, grpc::PERMISSION_DENIED},
    {StatusCode::kResourceExhausted, grpc::RESOURCE_EXHAUSTED},
    {StatusCode::kUnavailable, grpc::UNAVAILABLE},
    {StatusCode::kTimeout, grpc::DEADLINE_EXCEEDED},
    {StatusCode::kPeerDied, grpc::ABORTED},
    {StatusCode::kCorrupt, grpc::DATA_LOSS},
    {StatusCode::kUnsupported, grpc::UNIMPLEMENTED},
    {StatusCode::kCancelled, grpc::CANCELLED},
    {StatusCode::kDriver, grpc::UNKNOWN},
    {StatusCode::kInternal, grpc::INTERNAL},
};

grpc::StatusCode TheirCode(StatusCode code) {
  for (const auto& pair : kCodes) {
    if (pair.ours == code) return pair.theirs;
  }
  return grpc::INTERNAL;
}

StatusCode OurCode(grpc::StatusCode code) {
  if (code == grpc::UNAUTHENTICATED) return StatusCode::kPermissionDenied;
  if (code == grpc::OUT_OF_RANGE) return StatusCode::kInvalidArgument;
  for (const auto& pair : kCodes) {
    if (pair.theirs == code) return pair.ours;
  }
  return StatusCode::kInternal;
}

// What the server calls it, where it is one of ours.
StatusCode NamedCode(std::string_view name, StatusCode fallback) {
  for (const auto& pair : kCodes) {
    if (name == StatusCodeName(pair.ours)) return pair.ours;
  }
  return fallback;
}

}  // namespace

grpc::Status ToRpcStatus(const Status& status, const std::string& remedy, grpc::ServerContextBase* context) {
  if (status.ok()) return grpc::Status::OK;
  context->AddTrailingMetadata(kCodeKey, StatusCodeName(status.code()));
  if (!remedy.empty()) context->AddTrailingMetadata(kRemedyKey, remedy);
  return grpc::Status(TheirCode(status.code()), std::string(status.message()));
}

Status FromRpcStatus(const grpc::Status& status, const grpc::ClientContext& context, std::string* remedy) {
  if (status.ok()) return Status();
  StatusCode code = OurCode(status.error_code());
  for (const auto& [key, value] : context.GetServerTrailingMetadata()) {
    const std::string_view name(key.data(), key.size()), text(value.data(), value.size());
    if (name == kCodeKey) code = NamedCode(text, code);
    if (name == kRemedyKey && remedy != nullptr) *remedy = std::string(text);
  }
  return Status(code, status.error_message());
}

}  // namespace stasis
