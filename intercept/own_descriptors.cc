#include "intercept/own_descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

namespace stasis {
namespace {

// Numbers above this stay with the program, whose habit of counting on low ones is not disturbed. Low enough
// that the kernel's table of descriptors does not grow for us.
constexpr int kHighestBand = 4096;
constexpr int kBandSize = 64;

// Numbers, because a child may use nothing else of the parent's thread. One more than the descriptor, so that
// nothing has to be set at start.
constinit std::atomic<int> g_own_fds[static_cast<size_t>(OwnFd::kCount)] = {};

}  // namespace

int LowestOwnFd() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const int end = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, kHighestBand));
  return std::max(end - kBandSize, 0);
}

Fd MoveToOwnFds(Fd fd) {
  const int high = fcntl(fd.get(), F_DUPFD_CLOEXEC, LowestOwnFd());
  return high >= 0 ? Fd(high) : std::move(fd);
}

void NoteOwnFd(OwnFd which, int fd) {
  g_own_fds[static_cast<size_t>(which)].store(fd + 1, std::memory_order_relaxed);
}

void CloseOwnFdsAfterFork() {
  for (std::atomic<int>& own : g_own_fds) {
    const int fd = own.exchange(0, std::memory_order_relaxed) - 1;
    if (fd >= 0) close(fd);
  }
}

}  // namespace stasis
