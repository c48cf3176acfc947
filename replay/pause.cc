#include "replay/pause.h"

namespace stasis::replay {

Status Drain(const Deadline&, std::vector<TaskBlocker>*) { return {}; }
std::string BrokenContext() { return {}; }
Status CheckRebuildable() { return {}; }
Status Save() { return {}; }
Status Teardown() { return {}; }
Status RebuildContexts() { return {}; }
Status RebuildObjects() { return {}; }
uint32_t Generation() { return 0; }
void FillStatus(TaskStatus*) {}

}  // namespace stasis::replay
