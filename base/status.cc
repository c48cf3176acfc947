#include "base/status.h"

#include <cerrno>
#include <cstdarg>
#include <cstring>

namespace stasis {

const char* StatusCodeName(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "OK";
    case StatusCode::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case StatusCode::kNotFound:
      return "NOT_FOUND";
    case StatusCode::kAlreadyExists:
      return "ALREADY_EXISTS";
    case StatusCode::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    case StatusCode::kPermissionDenied:
      return "PERMISSION_DENIED";
    case StatusCode::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case StatusCode::kUnavailable:
      return "UNAVAILABLE";
    case StatusCode::kTimeout:
      return "TIMEOUT";
    case StatusCode::kPeerDied:
      return "PEER_DIED";
    case StatusCode::kCorrupt:
      return "CORRUPT";
    case StatusCode::kUnsupported:
      return "UNSUPPORTED";
    case StatusCode::kCancelled:
      return "CANCELLED";
    case StatusCode::kDriver:
      return "DRIVER";
    case StatusCode::kInternal:
      return "INTERNAL";
  }
  return "UNKNOWN";
}

Status::Status(StatusCode code, std::string message) {
  if (code != StatusCode::kOk) rep_ = std::make_unique<Rep>(Rep{code, std::move(message)});
}

std::string Status::ToString() const {
  if (ok()) return "OK";
  return std::string(StatusCodeName(code())) + ": " + rep_->message;
}

Status Status::WithContext(std::string_view context) && {
  if (rep_) rep_->message = std::string(context) + ": " + rep_->message;
  return std::move(*this);
}

Status Status::WithContext(std::string_view context) const& { return Status(*this).WithContext(context); }

static StatusCode CodeOfErrno(int err) {
  switch (err) {
    case EINVAL:
    case ENAMETOOLONG:
    case ENOTDIR:
    case EISDIR:
      return StatusCode::kInvalidArgument;
    case ENOENT:
    case ESRCH:
    case ENXIO:
    case ENODEV:
      return StatusCode::kNotFound;
    case EEXIST:
      return StatusCode::kAlreadyExists;
    case EPERM:
    case EACCES:
    case EROFS:
      return StatusCode::kPermissionDenied;
    case ENOMEM:
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
      return StatusCode::kResourceExhausted;
    case EAGAIN:
    case EBUSY:
    case ECONNREFUSED:
    case ENETUNREACH:
    case EHOSTUNREACH:
      return StatusCode::kUnavailable;
    case ETIMEDOUT:
      return StatusCode::kTimeout;
    case EPIPE:
    case ECONNRESET:
    case ENOTCONN:
      return StatusCode::kPeerDied;
    case ENOSYS:
    case EOPNOTSUPP:
      return StatusCode::kUnsupported;
    case ECANCELED:
      return StatusCode::kCancelled;
    default:
      return StatusCode::kInternal;
  }
}

Status ErrnoStatus(int err, std::string_view context) {
  char buffer[128];
  const char* text = strerror_r(err, buffer, sizeof buffer);
  std::string message(context);
  message.append(": ").append(text).append(" (").append(std::to_string(err)).append(")");
  return Status(CodeOfErrno(err), std::move(message));
}

Status Errorf(StatusCode code, const char* format, ...) {
  va_list args;
  va_start(args, format);
  char* text = nullptr;
  int length = vasprintf(&text, format, args);
  va_end(args);
  if (length < 0) return Status(code, format);
  std::string message(text, static_cast<size_t>(length));
  free(text);
  return Status(code, std::move(message));
}

void CheckFailed(const char* file, int line, const char* expression) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, expression);
  std::abort();
}

}  // namespace stasis
