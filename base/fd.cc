#include "base/fd.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace stasis {

void Fd::Reset(int fd) {
  if (fd_ >= 0) {
    int saved = errno;
    // On Linux the descriptor is gone even when close() reports EINTR, so it is never called twice.
    (void)close(fd_);
    errno = saved;
  }
  fd_ = fd;
}

Fd Fd::Duplicate() const { return Fd(fcntl(fd_, F_DUPFD_CLOEXEC, 0)); }

}  // namespace stasis
