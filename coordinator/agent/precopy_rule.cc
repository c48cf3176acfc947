#include "coordinator/agent/precopy_rule.h"

#include <algorithm>

namespace stasis {
namespace {

// Moving takes about so long anyway, whatever the size.
constexpr double kShortSeconds = 0.25;
// For how long an image makes a job stand still of which none was made yet.
constexpr double kUsualStandstill = 0.25;
// An image must be able to save so many times what it costs: hardly ever is all of it stable.
constexpr double kGain = 2;
// An image that leaves nearly as much as the one before follows a job that changes as fast as the way is.
constexpr double kShrink = 0.7;

}  // namespace

bool WorthImage(Precopy mode, const PrecopyFacts& facts) {
  if (mode == Precopy::kNever || facts.images >= kMaxPrecopyImages) return false;
  // The first tells nothing without a second.
  if (mode == Precopy::kAlways && facts.images < 2) return true;
  const double unsent = static_cast<double>(facts.unsent_bytes);
  const double saves = unsent / std::max(1.0, facts.bytes_per_second);
  const double costs = facts.images == 0 ? 2 * kUsualStandstill : facts.standstill;
  const bool shrinks = facts.images < 2 || unsent < kShrink * static_cast<double>(facts.unsent_before);
  return shrinks && saves > std::max(kShortSeconds, kGain * costs);
}

}  // namespace stasis
