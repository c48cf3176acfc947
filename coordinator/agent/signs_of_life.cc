#include "coordinator/agent/signs_of_life.h"

#include <utility>

#include "base/quiet_thread.h"

namespace stasis {
namespace {

// The target has nothing to wait for. Anything else, as a disk that is full there, another sign may find
// better.
bool IsOver(const Status& status) {
  return status.code() == StatusCode::kNotFound || status.code() == StatusCode::kFailedPrecondition;
}

}  // namespace

SignsOfLife::SignsOfLife(PeerLink& peer, std::string token, Duration interval)
    : peer_(peer),
      token_(std::move(token)),
      interval_(interval),
      thread_(StartQuietThread([this] { Run(); })) {}

SignsOfLife::~SignsOfLife() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void SignsOfLife::Run() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, interval_, [this] { return stop_; })) {
    lock.unlock();
    const Status heard = peer_.StillAtIt(token_);
    lock.lock();
    if (IsOver(heard)) return;
  }
}

}  // namespace stasis
