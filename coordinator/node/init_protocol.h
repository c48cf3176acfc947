// How `stasis run` and stasis-init talk while a task starts: a SOCK_SEQPACKET pair on which the launcher has
// set SO_PASSCRED, so that the kernel itself tells it the pids of stasis-init and of the program in the
// launcher's PID namespace.
//
//   stasis-init -> launcher   InitReport kInit       pid 1 of the task exists
//   program     -> launcher   InitReport kProgram    value: the program's pid in its own namespace; waits
//   launcher    -> program    one byte               the task is on record: go
//   program     -> launcher   InitReport kExecFailed value: errno; without it the end of the stream means
//                                                    that the program runs
// Where it cannot come so far: kNamespaceFailed, kFolderFailed, kExecFailed, with an errno.
// A launcher that ends before the byte ends the task too.
#ifndef COORDINATOR_NODE_INIT_PROTOCOL_H_
#define COORDINATOR_NODE_INIT_PROTOCOL_H_

#include <cstdint>

namespace stasis {

enum class InitReportKind : uint32_t {
  kInit = 1,
  kProgram = 2,
  kExecFailed = 3,
  kNamespaceFailed = 4,
  kFolderFailed = 5
};

struct InitReport {
  InitReportKind kind;
  int32_t value;
};
static_assert(sizeof(InitReport) == 8);

// stasis-init CONTROL_FD NAMESPACES(0|1) EXIT_FILE FOLDER EXECUTABLE ARGV0 [ARG...], with the program's
// environment as its own, /dev/null as descriptor 0 and the log as 1 and 2. FOLDER is the program's working
// folder, or empty for the present one: what leads into another mount namespace leaves that.
inline constexpr int kInitFixedArguments = 6;

// EXIT_FILE with this is an empty file that says: the program was never executed.
inline constexpr char kUnstartedSuffix[] = ".unstarted";

}  // namespace stasis

#endif  // COORDINATOR_NODE_INIT_PROTOCOL_H_
