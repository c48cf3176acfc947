// What `stasis` exits with. The table is part of the interface: docs/cli.md has it for users.
#ifndef CLI_EXIT_CODES_H_
#define CLI_EXIT_CODES_H_

#include "base/status.h"

namespace stasis {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,
  kExitUsage = 2,
  kExitNotFound = 3,  // no such task or image
  kExitState = 4,     // not possible in the state the task is in, or the name is taken
  kExitTimeout = 5,
  kExitUnsupported = 6,  // refused by name: the task holds something that cannot be carried
  kExitPermission = 7,   // a privilege is missing
  kExitNoRoom = 8,       // device memory, disk, descriptors
  kExitCancelled = 9,
  kExitPeerGone = 10,  // the ghost or the task went away
  kExitCorrupt = 11,   // a damaged image or file
  // Only from run and restore, which otherwise exit as the program does (128 + n after signal n).
  kExitCheckpointed = 124,   // the task was ended by `checkpoint --stop` and can be restored
  kExitCannotExecute = 126,  // the program is there and cannot be executed
  kExitNoProgram = 127,      // no such program
};

ExitCode ExitCodeOf(StatusCode code);
// The code with that StatusCodeName; kInternal for a name that is none.
StatusCode StatusCodeByName(std::string_view name);

}  // namespace stasis

#endif  // CLI_EXIT_CODES_H_
