#include "ghost/coordination.h"

namespace stasis {

const char* VotePointName(VotePoint point) {
  switch (point) {
    case VotePoint::kDrained:
      return "drained";
    case VotePoint::kHeld:
      return "held";
    case VotePoint::kDumped:
      return "dumped";
    case VotePoint::kSaved:
      return "saved";
    case VotePoint::kCommitted:
      return "committed";
    case VotePoint::kLoaded:
      return "loaded";
    case VotePoint::kRevived:
      return "revived";
    case VotePoint::kJoined:
      return "joined";
  }
  return "unknown";
}

}  // namespace stasis
