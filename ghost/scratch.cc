#include "ghost/scratch.h"

#include <linux/magic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "base/files.h"

namespace stasis {
namespace {

constexpr char kMemory[] = "/dev/shm";
constexpr std::string_view kPrefix = "/dev/shm/stasis-scratch-";

// One that MakeScratch() has made, and nobody else: a link may have been put there by whoever wrote the disk.
bool IsOurs(const std::string& folder) {
  if (!folder.starts_with(kPrefix) || folder.find('/', kPrefix.size()) != std::string::npos) return false;
  struct stat info;
  return lstat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid();
}

}  // namespace

Status MakeScratch(const std::string& path, bool in_memory) {
  RETURN_IF_ERROR(RemoveScratch(path));
  if (!in_memory) return MakeFolders(path);
  struct statfs system;
  if (statfs(kMemory, &system) != 0 || system.f_type != TMPFS_MAGIC) {
    return Status(StatusCode::kFailedPrecondition,
                  std::string(kMemory) +
                      " is no file system in memory: what is encrypted has no other place to "
                      "pass through");
  }
  size_t slash = path.rfind('/');
  if (slash != std::string::npos) RETURN_IF_ERROR(MakeFolders(path.substr(0, slash)));
  std::string folder = std::string(kPrefix) + "XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return ErrnoStatus(errno, "make a folder in memory");
  if (symlink(folder.c_str(), path.c_str()) == 0) return Status();
  Status status = ErrnoStatus(errno, "link " + path);
  rmdir(folder.c_str());
  return status;
}

Status RemoveScratch(const std::string& path) {
  Result<std::string> target = ReadLink(path);
  if (target.ok() && IsOurs(*target)) RETURN_IF_ERROR(RemoveTree(*target));
  return RemoveTree(path);
}

}  // namespace stasis
