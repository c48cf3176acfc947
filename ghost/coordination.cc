#include "ghost/coordination.h"

namespace stasis {

Result<Coordination::CutAnswer> AloneCoordination::Cut(const std::vector<CutReport>& mine,
                                                       const Deadline& deadline) {
  search_.Take(mine, Clock::Real().Now());
  RETURN_IF_ERROR(search_.refused());
  if (!search_.settled() && deadline.Expired()) return Status(StatusCode::kTimeout, search_.Missing());
  return CutAnswer{search_.settled(), search_.targets()};
}

Status AloneCoordination::Vote(VotePoint, const Deadline&) { return {}; }

Result<std::vector<CommId>> AloneCoordination::Join(const std::vector<CommReport>& mine, const Deadline&) {
  const std::vector<CommKey>& ended = search_.targets().ended;
  return JoinComms(mine, {ended.begin(), ended.end()});
}

Result<std::vector<bool>> AloneCoordination::Claim(std::span<const Hash128> chunks) {
  return std::vector<bool>(chunks.size(), true);
}

}  // namespace stasis
