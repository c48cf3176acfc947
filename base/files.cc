#include "base/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

namespace stasis {
namespace {

std::string ParentOf(const std::string& path) {
  size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

struct CloseDir {
  void operator()(DIR* dir) const { closedir(dir); }
};

Status RemoveInside(const std::string& path) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, ListFolder(path));
  for (const std::string& name : names) RETURN_IF_ERROR(RemoveTree(path + "/" + name));
  if (rmdir(path.c_str()) != 0 && errno != ENOENT) return ErrnoStatus(errno, "remove " + path);
  return Status();
}

}  // namespace

Result<Fd> OpenFile(const std::string& path, int flags, mode_t mode) {
  Fd fd(open(path.c_str(), flags | O_CLOEXEC, mode));
  if (!fd.valid()) return ErrnoStatus(errno, "open " + path);
  return fd;
}

Result<std::string> ReadFile(const std::string& path, size_t limit) {
  ASSIGN_OR_RETURN(Fd fd, OpenFile(path, O_RDONLY | O_NONBLOCK));
  std::string text;
  char buffer[16384];
  for (;;) {
    ssize_t got = read(fd.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "read " + path);
    if (got == 0) return text;
    if (text.size() + static_cast<size_t>(got) > limit) {
      return Errorf(StatusCode::kCorrupt, "%s is longer than %zu bytes", path.c_str(), limit);
    }
    text.append(buffer, static_cast<size_t>(got));
  }
}

Status WriteAt(int fd, std::span<const std::byte> bytes, uint64_t offset) {
  while (!bytes.empty()) {
    ssize_t put = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return ErrnoStatus(errno, "write");
    bytes = bytes.subspan(static_cast<size_t>(put));
    offset += static_cast<uint64_t>(put);
  }
  return Status();
}

Status ReadAt(int fd, std::span<std::byte> bytes, uint64_t offset) {
  while (!bytes.empty()) {
    ssize_t got = pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "read");
    if (got == 0) return Status(StatusCode::kCorrupt, "the file ends too early");
    bytes = bytes.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return Status();
}

Status SyncFd(int fd, const std::string& path) {
  return fsync(fd) == 0 ? Status() : ErrnoStatus(errno, "sync " + path);
}

Status SyncFolder(const std::string& path) {
  ASSIGN_OR_RETURN(Fd fd, OpenFile(path, O_RDONLY | O_DIRECTORY));
  return SyncFd(fd.get(), path);
}

Status WriteFileAtomically(const std::string& path, std::string_view text, mode_t mode) {
  std::string fresh = path + ".new";
  {
    ASSIGN_OR_RETURN(Fd fd, OpenFile(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, mode));
    Status written = WriteAt(fd.get(), std::as_bytes(std::span(text)), 0);
    if (written.ok()) written = SyncFd(fd.get(), fresh);
    if (!written.ok()) {
      unlink(fresh.c_str());
      return written.WithContext(fresh);
    }
  }
  if (rename(fresh.c_str(), path.c_str()) != 0) return ErrnoStatus(errno, "rename " + fresh);
  return SyncFolder(ParentOf(path));
}

Status MakeFolders(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0) return Status();
  if (errno == ENOENT && !path.empty()) {
    RETURN_IF_ERROR(MakeFolders(ParentOf(path)));
    if (mkdir(path.c_str(), 0700) == 0) return Status();
  }
  if (errno != EEXIST) return ErrnoStatus(errno, "create folder " + path);
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, path);
  if (!S_ISDIR(info.st_mode)) return Status(StatusCode::kFailedPrecondition, path + " is no folder");
  return Status();
}

Result<std::vector<std::string>> ListFolder(const std::string& path) {
  std::vector<std::string> names;
  std::unique_ptr<DIR, CloseDir> dir(opendir(path.c_str()));
  if (!dir) {
    if (errno == ENOENT) return names;
    return ErrnoStatus(errno, "list " + path);
  }
  errno = 0;
  while (dirent* entry = readdir(dir.get())) {
    std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(std::move(name));
  }
  if (errno != 0) return ErrnoStatus(errno, "list " + path);
  std::sort(names.begin(), names.end());
  return names;
}

Status RemoveTree(const std::string& path) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) {
    return errno == ENOENT ? Status() : ErrnoStatus(errno, "stat " + path);
  }
  if (S_ISDIR(info.st_mode)) return RemoveInside(path);
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return ErrnoStatus(errno, "remove " + path);
  return Status();
}

bool Exists(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0;
}

Status CopyFile(const std::string& from, const std::string& to, uint64_t size) {
  ASSIGN_OR_RETURN(Fd in, OpenFile(from, O_RDONLY));
  ASSIGN_OR_RETURN(Fd out, OpenFile(to, O_WRONLY | O_CREAT | O_EXCL));
  std::vector<std::byte> buffer(std::min<uint64_t>(size, 1 << 20));
  for (uint64_t at = 0; at < size; at += buffer.size()) {
    std::span<std::byte> part = std::span(buffer).first(std::min<uint64_t>(buffer.size(), size - at));
    RETURN_IF_ERROR(ReadAt(in.get(), part, at).WithContext(from));
    RETURN_IF_ERROR(WriteAt(out.get(), part, at).WithContext(to));
  }
  return SyncFd(out.get(), to);
}

bool IsPlainName(std::string_view name) {
  if (name.empty() || name.size() > NAME_MAX || name == "." || name == "..") return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    unsigned char byte = static_cast<unsigned char>(c);
    return byte >= 0x20 && byte != 0x7f && c != '/';
  });
}

Result<std::string> ReadLink(const std::string& path) {
  char buffer[PATH_MAX];
  ssize_t size = readlink(path.c_str(), buffer, sizeof buffer);
  if (size < 0) return ErrnoStatus(errno, "read link " + path);
  return std::string(buffer, static_cast<size_t>(size));
}

}  // namespace stasis
