#include "cli/exit_codes.h"

namespace stasis {

ExitCode ExitCodeOf(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return kExitOk;
    case StatusCode::kInvalidArgument:
      return kExitUsage;
    case StatusCode::kNotFound:
      return kExitNotFound;
    case StatusCode::kAlreadyExists:
    case StatusCode::kFailedPrecondition:
      return kExitState;
    case StatusCode::kTimeout:
      return kExitTimeout;
    case StatusCode::kUnsupported:
      return kExitUnsupported;
    case StatusCode::kPermissionDenied:
      return kExitPermission;
    case StatusCode::kResourceExhausted:
      return kExitNoRoom;
    case StatusCode::kCancelled:
      return kExitCancelled;
    case StatusCode::kPeerDied:
    case StatusCode::kUnavailable:
      return kExitPeerGone;
    case StatusCode::kCorrupt:
      return kExitCorrupt;
    case StatusCode::kDriver:
    case StatusCode::kInternal:
      return kExitFailed;
  }
  return kExitFailed;
}

StatusCode StatusCodeByName(std::string_view name) {
  for (int code = 0; code <= static_cast<int>(StatusCode::kInternal); code++) {
    if (name == StatusCodeName(static_cast<StatusCode>(code))) return static_cast<StatusCode>(code);
  }
  return StatusCode::kInternal;
}

}  // namespace stasis
