// Whether it pays to send what does not change while a job still runs, so that it stands still for less when
// it moves. Pure arithmetic.
//
// Two images of the running job in a row tell what changes all the time: chunks that are in both have stayed
// the same, and only those travel ahead. So no byte is sent in vain that is not new within a round.
#ifndef COORDINATOR_AGENT_PRECOPY_RULE_H_
#define COORDINATOR_AGENT_PRECOPY_RULE_H_

#include <cstdint>
#include <string>

namespace stasis {

enum class Precopy { kAuto, kAlways, kNever };

struct PrecopyFacts {
  double bytes_per_second = 0;  // of the way to the target
  // What an image of it costs the running job, in seconds of standing still; of the last one.
  double standstill = 0;
  int rounds = 0;             // that have been sent
  uint64_t stable_bytes = 0;  // that the target lacks and that have not changed between the latest two images
  uint64_t sent_before = 0;   // in the round before
};

inline constexpr int kMaxPrecopyRounds = 5;

// Before anything is known but the size of the job's device memory: is a first image worth it?
bool WorthLooking(Precopy mode, uint64_t device_bytes, double bytes_per_second);
// Is the stable part worth sending ahead, with one more image after it?
bool WorthSending(Precopy mode, const PrecopyFacts& facts);

}  // namespace stasis

#endif  // COORDINATOR_AGENT_PRECOPY_RULE_H_
