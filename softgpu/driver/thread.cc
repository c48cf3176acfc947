#include "softgpu/driver/thread.h"

#include <signal.h>
#include <time.h>

#include <memory>
#include <string>
#include <utility>

#include "base/status.h"

namespace softgpu {

namespace {

struct Body {
  std::string name;
  std::function<void()> run;
};

void* RunBody(void* argument) {
  std::unique_ptr<Body> body(static_cast<Body*>(argument));
  pthread_setname_np(pthread_self(), body->name.c_str());
  body->run();
  return nullptr;
}

}  // namespace

Thread::~Thread() { STASIS_CHECK(!running_); }

bool Thread::Start(const char* name, std::function<void()> run) {
  auto body = std::make_unique<Body>(Body{std::string(name).substr(0, 15), std::move(run)});
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  running_ = pthread_create(&handle_, nullptr, RunBody, body.get()) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (running_) static_cast<void>(body.release());
  return running_;
}

bool Thread::Join(const stasis::Deadline& deadline) {
  if (!running_) return true;
  if (deadline.never()) {
    pthread_join(handle_, nullptr);
  } else {
    // Not pthread_clockjoin_np, which ThreadSanitizer does not know; a step of the clock moves the deadline
    // only.
    timespec until{};
    clock_gettime(CLOCK_REALTIME, &until);
    int64_t when = until.tv_sec * int64_t{1000000000} + until.tv_nsec + deadline.Remaining().count();
    until = {static_cast<time_t>(when / 1000000000), static_cast<long>(when % 1000000000)};
    if (pthread_timedjoin_np(handle_, nullptr, &until) != 0) return false;
  }
  running_ = false;
  return true;
}

void Thread::Abandon() {
  if (running_) pthread_detach(handle_);
  running_ = false;
}

}  // namespace softgpu
