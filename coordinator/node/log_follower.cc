#include "coordinator/node/log_follower.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace stasis {
namespace {

constexpr size_t kCopySize = 64 << 10;

}  // namespace

Result<bool> WriteOutput(int out, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t written = write(out, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {
      // Standard output may be somebody's non-blocking pipe.
      pollfd wait{out, POLLOUT, 0};
      (void)poll(&wait, 1, -1);
      continue;
    }
    if (written < 0 && errno == EPIPE) return false;
    if (written < 0) return ErrnoStatus(errno, "write the output");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

Result<LogFollower> LogFollower::Open(const std::string& path, uint64_t offset) {
  Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return ErrnoStatus(errno, path);
  return LogFollower(std::move(file), offset);
}

Result<bool> LogFollower::Pump(int out) {
  return Pump([out](std::string_view bytes) { return WriteOutput(out, bytes); });
}

Result<bool> LogFollower::Pump(const Sink& sink) {
  struct stat info {};
  if (fstat(file_.get(), &info) != 0) return ErrnoStatus(errno, "output.log");
  offset_ = std::min(offset_, static_cast<uint64_t>(info.st_size));
  char buffer[kCopySize];
  while (!reader_gone_) {
    ssize_t got = pread(file_.get(), buffer, sizeof buffer, static_cast<off_t>(offset_));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "read output.log");
    if (got == 0) break;
    ASSIGN_OR_RETURN(bool read, sink(std::string_view(buffer, static_cast<size_t>(got))));
    reader_gone_ = !read;
    offset_ += static_cast<uint64_t>(got);
  }
  return !reader_gone_;
}

}  // namespace stasis
