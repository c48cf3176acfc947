#include "coordinator/ghost_children.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace stasis {

GhostChildren& GhostChildren::OfThisProcess() {
  static GhostChildren children;
  return children;
}

GhostChildren::GhostChildren() : ends_(epoll_create1(EPOLL_CLOEXEC)) {}

void GhostChildren::Add(pid_t child) {
  std::lock_guard lock(mutex_);
  // An unreaped child keeps its pid, so this is the one that was started.
  Fd end(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
  epoll_event event{};
  event.events = EPOLLIN;
  if (end.valid()) epoll_ctl(ends_.get(), EPOLL_CTL_ADD, end.get(), &event);
  children_.insert_or_assign(child, std::move(end));
}

void GhostChildren::Reap() {
  std::lock_guard lock(mutex_);
  for (auto each = children_.begin(); each != children_.end();) {
    bool runs = waitpid(each->first, nullptr, WNOHANG) == 0;
    each = runs ? std::next(each) : children_.erase(each);
  }
}

size_t GhostChildren::size() const {
  std::lock_guard lock(mutex_);
  return children_.size();
}

}  // namespace stasis
