// What keeps CRIU from dumping a task, found before CRIU is asked, and named in words for the user.
#ifndef GHOST_DUMPABLE_H_
#define GHOST_DUMPABLE_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/status.h"

namespace stasis {

// Terminals and devices, TCP connections that lead out of the tree and sockets of other protocols, io_uring,
// replaced files: what no pause takes away.
// kUnsupported names process, descriptor and thing; *remedy says what to do. Asked before anything is
// touched.
Status CheckDescriptors(const std::vector<pid_t>& tree, std::string* remedy);
// Pipes, sockets and shared memory whose other end is outside of the tree, device files, the driver's among
// them, and, in the processes `closed` that have closed it, the driver library `driver`. Its pages that a
// forked child has inherited are plain file pages that nobody runs. Asked once the task is deaf: until then
// the driver and the interposer own such things rightly.
Status CheckResidue(const std::vector<pid_t>& tree, const std::vector<pid_t>& closed,
                    const std::string& driver, std::string* remedy);

}  // namespace stasis

#endif  // GHOST_DUMPABLE_H_
