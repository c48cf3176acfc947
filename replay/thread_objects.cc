#include "replay/thread_objects.h"

namespace stasis::replay {

void RebuildThread(ThreadObjects&) {}

}  // namespace stasis::replay
