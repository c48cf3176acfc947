// The control thread: serves the task protocol on the process's socket in the task's run folder.
#ifndef INTERCEPT_CONTROL_H_
#define INTERCEPT_CONTROL_H_

#include <string>

#include "base/status.h"

namespace stasis {

// Listens on `task_folder`/ctl/<pid>.sock and starts the thread, with all signals blocked. Once a process.
Status StartControlThread(const std::string& task_folder);

}  // namespace stasis

#endif  // INTERCEPT_CONTROL_H_
