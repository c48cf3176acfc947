#include "intercept/driver_path.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <cstdlib>
#include <string_view>

#include "base/task_protocol.h"

namespace stasis {
namespace {

constexpr char kSystemFolders[] =
    "/usr/lib/x86_64-linux-gnu:/usr/lib/aarch64-linux-gnu:/usr/lib64:/usr/lib/wsl/lib:/usr/lib:/lib64:/lib:"
    "/usr/local/nvidia/lib64:/usr/local/nvidia/lib";

bool IsThisLibrary(const struct stat& file) {
  Dl_info info;
  struct stat self;
  if (dladdr(reinterpret_cast<void*>(&FindDriverPath), &info) == 0 || info.dli_fname == nullptr) return false;
  return stat(info.dli_fname, &self) == 0 && self.st_dev == file.st_dev && self.st_ino == file.st_ino;
}

std::string FindIn(std::string_view folders) {
  while (!folders.empty()) {
    const size_t end = folders.find_first_of(":;");
    const std::string_view folder = folders.substr(0, end);
    folders.remove_prefix(end == std::string_view::npos ? folders.size() : end + 1);
    if (folder.empty() || folder[0] != '/') continue;
    std::string path = std::string(folder) + "/libcuda.so.1";
    struct stat file;
    if (stat(path.c_str(), &file) == 0 && S_ISREG(file.st_mode) && !IsThisLibrary(file)) return path;
  }
  return {};
}

}  // namespace

std::string FindDriverPath() {
  const char* given = getenv(kTaskDriverVariable);
  if (given != nullptr && given[0] == '/') return given;
  const char* search = getenv("LD_LIBRARY_PATH");
  std::string path = FindIn(search == nullptr ? "" : search);
  return path.empty() ? FindIn(kSystemFolders) : path;
}

}  // namespace stasis
