// How it is told that a newer scheduler reigns (Change.fence in agent.proto).
#ifndef PROTO_RPC_FENCING_H_
#define PROTO_RPC_FENCING_H_

#include <string_view>

#include "base/status.h"

namespace stasis {

inline constexpr std::string_view kFencedOff = "the fence is ";

// Whether an agent's refusal says so.
inline bool IsFencedOff(const Status& refusal) {
  return refusal.code() == StatusCode::kFailedPrecondition && refusal.message().starts_with(kFencedOff);
}

}  // namespace stasis

#endif  // PROTO_RPC_FENCING_H_
