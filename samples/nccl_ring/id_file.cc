#include "id_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "../common/fail.h"

namespace nccl_ring {
namespace {

std::string Folder(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

[[noreturn]] void FailOn(const char* what, const std::string& path) {
  sample::Fail(sample::kExitFailure, "%s %s: %s", what, path.c_str(), strerror(errno));
}

// False: there is no such file.
bool TryRead(const std::string& path, ncclUniqueId* id) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 && errno == ENOENT) return false;
  if (fd < 0) FailOn("cannot open", path);
  const ssize_t size = read(fd, id, sizeof(*id));
  close(fd);
  if (size != static_cast<ssize_t>(sizeof(*id)))
    sample::Fail(sample::kExitFailure, "%s is no unique id", path.c_str());
  return true;
}

}  // namespace

void WriteId(const std::string& path, const ncclUniqueId& id) {
  const std::string part = path + ".part";
  const int fd = open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) FailOn("cannot create", part);
  if (write(fd, &id, sizeof(id)) != static_cast<ssize_t>(sizeof(id))) FailOn("cannot write", part);
  close(fd);
  // Unlike rename, this does not replace the file of another run.
  const bool linked = link(part.c_str(), path.c_str()) == 0;
  const int error = errno;
  unlink(part.c_str());
  errno = error;
  if (!linked) FailOn("cannot create", path);
}

ncclUniqueId ReadId(const std::string& path) {
  ncclUniqueId id;
  const int watch = inotify_init1(IN_CLOEXEC);
  // Before the first look, so that no change goes unseen.
  if (watch < 0 || inotify_add_watch(watch, Folder(path).c_str(), IN_CREATE | IN_MOVED_TO) < 0)
    FailOn("cannot wait for", path);
  while (!TryRead(path, &id)) {
    char events[4096];
    if (read(watch, events, sizeof(events)) < 0 && errno != EINTR) FailOn("cannot wait for", path);
  }
  close(watch);
  return id;
}

}  // namespace nccl_ring
