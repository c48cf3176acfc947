#include "pace.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

namespace sample {

void Pace::Wait() {
  if (milliseconds_ == 0) return;
  const char* until = getenv("PACE_UNTIL");
  if (until != nullptr && access(until, F_OK) == 0) return;
  const uint32_t microseconds = random_.Below(static_cast<uint32_t>(milliseconds_) * 1000 + 1);
  timespec left = {microseconds / 1000000, static_cast<long>(microseconds % 1000000) * 1000};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

}  // namespace sample
