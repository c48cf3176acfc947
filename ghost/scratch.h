// Folders for what is on its way between processes and the store: CRIU's files, in the clear.
//
// What the store encrypts does not lie on a disk meanwhile: the folder is a link then, to one of a file
// system in memory (/dev/shm). Who finds the link after a crash finds the folder by it.
#ifndef GHOST_SCRATCH_H_
#define GHOST_SCRATCH_H_

#include <string>

#include "base/status.h"

namespace stasis {

// Makes `path` anew, empty, only for its owner. kFailedPrecondition: there is no file system in memory.
Status MakeScratch(const std::string& path, bool in_memory);
// With all that is in it; OK when there is none.
Status RemoveScratch(const std::string& path);

}  // namespace stasis

#endif  // GHOST_SCRATCH_H_
