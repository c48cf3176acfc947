#include "intercept/low_point.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <atomic>
#include <cerrno>

#include "base/fd.h"
#include "intercept/captures.h"
#include "intercept/gate.h"
#include "intercept/own_descriptors.h"
#include "vmm/active_memory.h"

namespace stasis {
namespace {

struct Wait {
  Fd event;
  std::atomic<bool> reached{false};
};

// In a thread of the program. A capture would have to end first, and so cannot be stopped here.
bool StopHere(void* context) {
  if (CapturesInProgress() != 0) return false;
  const int saved_errno = errno;
  Wait* const wait = static_cast<Wait*>(context);
  ShutGate();
  wait->reached.store(true, std::memory_order_release);
  (void)eventfd_write(wait->event.get(), 1);
  errno = saved_errno;
  return true;
}

Status AwaitEvent(int event, int connection, const Deadline& deadline) {
  pollfd fds[] = {{event, POLLIN, 0}, {connection, POLLIN | POLLRDHUP, 0}};
  while (poll(fds, 2, deadline.PollTimeout()) <= 0)
    if (deadline.Expired()) return {};
  if (fds[1].revents != 0) return Status(StatusCode::kCancelled, "the ghost waits no longer");
  return {};
}

}  // namespace

Result<bool> WaitForLowPoint(int connection, const Deadline& deadline) {
  Wait wait;
  wait.event = MoveToOwnFds(Fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)));
  if (!wait.event.valid()) return ErrnoStatus(errno, "eventfd");
  NoteOwnFd(OwnFd::kLowPoint, wait.event.get());
  vmm::ActiveMemory::Get().Watch(&StopHere, &wait);
  Status status = AwaitEvent(wait.event.get(), connection, deadline);
  vmm::ActiveMemory::Get().StopWatching();
  NoteOwnFd(OwnFd::kLowPoint, -1);
  RETURN_IF_ERROR(status);
  return wait.reached.load(std::memory_order_acquire);
}

}  // namespace stasis
