// Calls that created state nobody here tracks: a task that made one runs on, and is not paused. Thread-safe.
#ifndef INTERCEPT_TAINT_H_
#define INTERCEPT_TAINT_H_

#include <vector>

#include "base/task_protocol.h"
#include "vmm/real_driver.h"

namespace stasis {

// Marks the task. `call` names the reason: the exact name of a driver function, if need be with a word on
// what about it. `both`: no strategy can carry it; else only TaskStrategy::kReconstruct cannot. The same
// reason again costs a search and no memory.
void Taint(const char* call, bool both);
// The same for a driver function, free after its first time.
void TaintOnce(Fn function, bool both);
// What was noted, oldest first.
std::vector<TaskTaint> Taints();
// kUnsupported, naming the calls, when something was noted that `strategy` cannot carry.
Status CheckTaints(TaskStrategy strategy);

// For a child after fork(2): it has made no calls.
void ResetTaintsAfterFork();

}  // namespace stasis

#endif  // INTERCEPT_TAINT_H_
