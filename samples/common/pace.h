// Rests between two pieces of work: as a program has them that waits for its data, and so that ranks are not
// in step.
#pragma once

#include <stdint.h>

#include "random.h"

namespace sample {

// A random time each. No more once the file exists that PACE_UNTIL names: the work lasts as long as somebody
// needs, and ends soon after.
class Pace {
 public:
  Pace(int milliseconds, uint64_t seed) : milliseconds_(milliseconds), random_(seed) {}
  void Wait();

 private:
  const int milliseconds_;  // at most; 0: none
  Random random_;
};

}  // namespace sample
