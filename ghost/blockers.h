// The threads that keep a program from standing still, with what they are doing.
#ifndef GHOST_BLOCKERS_H_
#define GHOST_BLOCKERS_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/task_protocol.h"

namespace stasis {

struct Blocker {
  pid_t pid = 0;
  pid_t tid = 0;
  std::string call;
  std::vector<std::string> stack;  // innermost first; empty when it could not be read
};

// `found` is what process `pid` reported, with its own numbers. Each thread is held for the time that reading
// its stack takes.
std::vector<Blocker> DescribeBlockers(pid_t pid, const std::vector<TaskBlocker>& found);
// "main+0x1c (train)", innermost frame first.
std::vector<std::string> StackOf(pid_t pid, pid_t tid);

}  // namespace stasis

#endif  // GHOST_BLOCKERS_H_
