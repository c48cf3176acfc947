// The criu that the Debian package stasis-criu puts beside our own programs.
#ifndef BASE_BUNDLED_CRIU_H_
#define BASE_BUNDLED_CRIU_H_

#include <unistd.h>

#include <climits>
#include <string>

namespace stasis {

// For the program of that path, in /usr/bin or in /usr/lib/stasis; "": there is none.
inline std::string BundledCriuOf(const std::string& program) {
  const std::string folder = program.substr(0, program.rfind('/'));
  const std::string parent = folder.substr(0, folder.rfind('/'));
  for (const std::string& path : {parent + "/lib/stasis/criu", folder + "/criu"}) {
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

// For this process.
inline std::string BundledCriu() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  return length <= 0 ? "" : BundledCriuOf(std::string(path, static_cast<size_t>(length)));
}

}  // namespace stasis

#endif  // BASE_BUNDLED_CRIU_H_
