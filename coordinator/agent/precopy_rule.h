// Whether it pays to send what does not change while a job still runs, so that it stands still for less when
// it moves. Pure arithmetic.
//
// Two images of the running job in a row tell what changes all the time: chunks that are in both have stayed
// the same, and only those travel ahead. So no byte is sent in vain that is not new within a round. What
// costs are the images: the job stands still for each.
#ifndef COORDINATOR_AGENT_PRECOPY_RULE_H_
#define COORDINATOR_AGENT_PRECOPY_RULE_H_

#include <cstdint>
#include <string>

namespace stasis {

enum class Precopy { kAuto, kAlways, kNever };

struct PrecopyFacts {
  double bytes_per_second = 0;  // of the way to the target
  int images = 0;               // that have been made to find out
  // What the latest of them cost the running job, in seconds of standing still.
  double standstill = 0;
  // The most that the next one can let travel ahead: what the target still lacks of the latest one, before
  // the first the job's device memory.
  uint64_t unsent_bytes = 0;
  uint64_t unsent_before = 0;  // the same when the latest one was to be made
};

inline constexpr int kMaxPrecopyImages = 6;

// Is one more image of the running job worth it?
bool WorthImage(Precopy mode, const PrecopyFacts& facts);

}  // namespace stasis

#endif  // COORDINATOR_AGENT_PRECOPY_RULE_H_
