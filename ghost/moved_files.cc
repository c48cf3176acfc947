#include "ghost/moved_files.h"

#include <fcntl.h>

#include "base/files.h"

namespace stasis {

MovedFiles MoveToHere(Manifest* manifest, const std::string& log, const std::string& ctl) {
  MovedFiles moved{manifest->log, manifest->log.empty() ? "" : log, manifest->ctl, ctl};
  for (ManifestFile& file : manifest->files) {
    if (file.path == moved.log_before) file.path = moved.log_now;
  }
  manifest->log = moved.log_now;
  manifest->ctl = moved.ctl_now;
  return moved;
}

Result<std::vector<CriuInherited>> OpenMovedFiles(const MovedFiles& moved) {
  std::vector<CriuInherited> inherited;
  if (moved.log_before != moved.log_now) {
    ASSIGN_OR_RETURN(Fd log, OpenFile(moved.log_now, O_WRONLY | O_APPEND | O_NOFOLLOW));
    inherited.push_back({moved.log_before, std::move(log)});
  }
  if (moved.ctl_before != moved.ctl_now) {
    ASSIGN_OR_RETURN(Fd ctl, OpenFile(moved.ctl_now, O_RDONLY | O_DIRECTORY));
    inherited.push_back({moved.ctl_before, std::move(ctl)});
  }
  return inherited;
}

}  // namespace stasis
