// Joins memory (vmm/) with handles (replay/), captures and taints for the hooks of memory.
#ifndef INTERCEPT_MEMORY_ENVIRONMENT_H_
#define INTERCEPT_MEMORY_ENVIRONMENT_H_

#include "intercept/captures.h"
#include "intercept/share_server.h"
#include "intercept/wrapper_support.h"
#include "intercept_hooks.h"
#include "vmm/environment.h"

namespace stasis::hooks {

// For the first line of each hook that makes or frees memory: the control thread needs it, too, but never
// before the program has memory.
inline void JoinMemory() {
  static constexpr vmm::Environment kEnvironment = {
      .real_context = [](CUcontext visible) { return replay::ToReal(visible); },
      .visible_context = [](CUcontext real) { return replay::ToVisible(real); },
      .captures_in_progress = &CapturesInProgress,
      .set_sharing = &SetSharing,
  };
  vmm::SetEnvironment(&kEnvironment);
}

}  // namespace stasis::hooks

#endif  // INTERCEPT_MEMORY_ENVIRONMENT_H_
