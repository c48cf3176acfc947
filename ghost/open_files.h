// Puts the files of a task back to what they were at the dump, losing nothing that was written since.
#ifndef GHOST_OPEN_FILES_H_
#define GHOST_OPEN_FILES_H_

#include <string>
#include <vector>

#include "base/status.h"
#include "ghost/manifest.h"

namespace stasis {

// What was done to one file, so that it can be undone while the restore has not succeeded.
struct SetAside {
  std::string path;
  uint64_t size = 0;      // that it has now
  std::string tail_path;  // where what followed is; empty: the file was made anew
};

// Checks all files first and changes nothing when one of them cannot be put back (kUnsupported names it): it
// is missing, shorter, or longer and only read by the task. Then a file that is longer is cut, its tail kept
// in "PATH.after-ID" (or ".after-ID.2" and so on when that exists). `log` may be missing: it is copied from
// `log_copy` if that is not empty. The list holds what was done, also when an error is returned.
Status PrepareFiles(const std::vector<ManifestFile>& files, const std::string& log,
                    const std::string& log_copy, const std::string& image_id, std::vector<SetAside>* done,
                    std::string* remedy);
// The reverse.
Status UndoPrepareFiles(std::vector<SetAside>& done);
// A sentence for the user.
std::string Note(const SetAside& aside);

}  // namespace stasis

#endif  // GHOST_OPEN_FILES_H_
