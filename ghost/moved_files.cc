#include "ghost/moved_files.h"

#include <fcntl.h>

#include "base/files.h"

namespace stasis {

MovedFiles MoveToHere(Manifest* manifest, const std::string& log, const std::string& run) {
  MovedFiles moved{manifest->log, manifest->log.empty() ? "" : log, manifest->run, run};
  for (ManifestFile& file : manifest->files) {
    if (file.path == moved.log_before) file.path = moved.log_now;
  }
  manifest->log = moved.log_now;
  manifest->run = moved.run_now;
  return moved;
}

Result<std::vector<CriuInherited>> OpenMovedFiles(const MovedFiles& moved) {
  std::vector<CriuInherited> inherited;
  if (moved.log_before != moved.log_now) {
    ASSIGN_OR_RETURN(Fd log, OpenFile(moved.log_now, O_WRONLY | O_APPEND | O_NOFOLLOW));
    inherited.push_back({moved.log_before, std::move(log)});
  }
  if (moved.run_before == moved.run_now) return inherited;
  // The working folder of the first process, and what deaf processes hold.
  for (const char* folder : {"", "/ctl"}) {
    ASSIGN_OR_RETURN(Fd fd, OpenFile(moved.run_now + folder, O_RDONLY | O_DIRECTORY));
    inherited.push_back({moved.run_before + folder, std::move(fd)});
  }
  return inherited;
}

}  // namespace stasis
