// How much host memory a copy of device memory may take: what the machine has, and what the limits of the
// control groups that this process is in leave of it.
#ifndef GHOST_HOST_MEMORY_H_
#define GHOST_HOST_MEMORY_H_

#include <cstdint>
#include <string>

#include "base/status.h"

namespace stasis {

struct HostRoom {
  uint64_t bytes = 0;
  std::string limited_by;  // a control group's folder; empty: by the machine
};

// `proc`: where /proc is. Nothing when the machine does not say what it has; groups that say nothing do not
// limit.
HostRoom FreeHostRoom(const std::string& proc = "/proc");

// OK when so much fits; else kResourceExhausted with what is needed, what there is, and whose limit it is.
Status CheckHostRoom(uint64_t bytes, const HostRoom& room);

}  // namespace stasis

#endif  // GHOST_HOST_MEMORY_H_
