#include "base/quiet_thread.h"

#include <csignal>
#include <utility>

namespace stasis {

std::thread StartQuietThread(std::function<void()> work) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(work));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace stasis
