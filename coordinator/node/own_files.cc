#include "coordinator/node/own_files.h"

#include <unistd.h>

#include <climits>
#include <filesystem>

namespace stasis {
namespace {

#ifndef STASIS_VERSION
#error "the build tells the version"
#endif

// What is mapped into tasks lies in a folder of its version: running tasks and images need the very files
// that they have begun with, also when a newer version has been installed beside it.
constexpr char kRuntime[] = "../lib/stasis/" STASIS_VERSION;

// `places` are relative to the folder of the program: the build folder's first, then an installation's.
std::string Choose(const std::string& folder, std::initializer_list<const char*> places, const char* file) {
  std::string first;
  for (const char* place : places) {
    std::filesystem::path path = std::filesystem::path(folder) / place / file;
    std::string normal = path.lexically_normal().string();
    if (access(normal.c_str(), F_OK) == 0) return normal;
    if (first.empty()) first = normal;
  }
  return first;
}

}  // namespace

OwnFiles FindOwnFilesOf(const std::string& program) {
  std::string folder = program.substr(0, program.rfind('/'));
  OwnFiles files;
  files.stasis = program;
  files.preload = Choose(folder, {"../lib", kRuntime}, "libstasis.so");
  files.init = Choose(folder, {".", kRuntime}, "stasis-init");
  files.ghost = Choose(folder, {".", "../lib/stasis"}, "stasis-ghost");
  files.simulator = Choose(folder, {".", "../lib/stasis"}, "stasis-sim");
  files.softgpud = Choose(folder, {".", "../lib/stasis"}, "softgpud");
  files.softgpu_smi = Choose(folder, {".", "../lib/stasis"}, "softgpu-smi");
  std::string driver = Choose(folder, {"../lib/softgpu", "../lib/stasis/softgpu"}, "libcuda.so.1");
  files.softgpu_folder = driver.substr(0, driver.rfind('/'));
  return files;
}

OwnFiles FindOwnFiles() {
  char path[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  return FindOwnFilesOf(length > 0 ? std::string(path, static_cast<size_t>(length)) : "/usr/bin/stasis");
}

Status RequireFile(const std::string& path, int mode, const char* what) {
  if (access(path.c_str(), mode) == 0) return Status();
  return Errorf(StatusCode::kNotFound, "%s is missing: no %s. Build or install Stasis completely", what,
                path.c_str());
}

}  // namespace stasis
