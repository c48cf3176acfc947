// Restoring a task where its own files are elsewhere than at the checkpoint: on another site, or under
// another name. What the task has open of them is given to CRIU open, in their new place.
#ifndef GHOST_MOVED_FILES_H_
#define GHOST_MOVED_FILES_H_

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "ghost/criu.h"
#include "ghost/manifest.h"

namespace stasis {

struct MovedFiles {
  std::string log_before, log_now;  // equal, or empty where the task has no log
  std::string run_before, run_now;  // run folders
};

// Makes `manifest` say where the files are here, and tells what that has changed.
MovedFiles MoveToHere(Manifest* manifest, const std::string& log, const std::string& run);
// Opens what has moved, as the task had it open. The log must be there, and the folders too.
Result<std::vector<CriuInherited>> OpenMovedFiles(const MovedFiles& moved);

}  // namespace stasis

#endif  // GHOST_MOVED_FILES_H_
