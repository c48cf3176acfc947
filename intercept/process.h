// The interposer's life in a process: what happens at its first CUDA call, and in the children it forks.
#ifndef INTERCEPT_PROCESS_H_
#define INTERCEPT_PROCESS_H_

#include <string>

namespace stasis {

// Opens the real driver and, in a process of a task, starts the control thread. Does its work once; other
// threads that call it meanwhile wait. Without a driver every call of the program answers as if it had none.
void StartProcess();
// The task's run folder, empty in a process that no launcher of ours has started. After StartProcess().
const std::string& TaskFolder();

}  // namespace stasis

#endif  // INTERCEPT_PROCESS_H_
