#include "coordinator/agent/precopy_rule.h"

#include <algorithm>

namespace stasis {
namespace {

// Moving takes about so long anyway, whatever the size: what travels in less is not worth an image.
constexpr double kShortSeconds = 0.25;
// Sending ahead must save so many times what the images for it cost.
constexpr double kGain = 2;
// A round that finds nearly as much as the one before it follows a job that changes as fast as the way is.
constexpr double kShrink = 0.7;

}  // namespace

bool WorthLooking(Precopy mode, uint64_t device_bytes, double bytes_per_second) {
  if (mode != Precopy::kAuto) return mode == Precopy::kAlways;
  return static_cast<double>(device_bytes) > kShortSeconds * bytes_per_second;
}

bool WorthSending(Precopy mode, const PrecopyFacts& facts) {
  if (mode == Precopy::kNever || facts.rounds >= kMaxPrecopyRounds || facts.stable_bytes == 0) return false;
  if (mode == Precopy::kAlways && facts.rounds == 0) return true;
  const double bytes = static_cast<double>(facts.stable_bytes);
  const double saved = bytes / std::max(1.0, facts.bytes_per_second);
  const bool shrinks = facts.rounds == 0 || bytes < kShrink * static_cast<double>(facts.sent_before);
  return shrinks && saved > std::max(kShortSeconds, kGain * facts.standstill);
}

}  // namespace stasis
