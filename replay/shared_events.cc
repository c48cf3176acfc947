#include "replay/shared_events.h"

#include <new>

namespace stasis::replay {

SharedEvents& SharedEvents::Get() {
  static SharedEvents* const events = new SharedEvents;  // outlives every destructor
  return *events;
}

void SharedEvents::Note(uint64_t key, const CUipcEventHandle& handle) {
  const std::lock_guard lock(mutex_);
  handles_[key] = handle;
}

void SharedEvents::Forget(uint64_t key) {
  const std::lock_guard lock(mutex_);
  handles_.erase(key);
}

std::optional<CUipcEventHandle> SharedEvents::Find(uint64_t key) const {
  const std::lock_guard lock(mutex_);
  auto found = handles_.find(key);
  return found == handles_.end() ? std::nullopt : std::optional<CUipcEventHandle>(found->second);
}

void SharedEvents::set_finder(Finder finder) {
  const std::lock_guard lock(mutex_);
  finder_ = finder;
}

std::optional<CUipcEventHandle> SharedEvents::AskOthers(uint64_t key) const {
  Finder finder = nullptr;
  {
    const std::lock_guard lock(mutex_);
    finder = finder_;
  }
  return finder == nullptr ? std::nullopt : finder(key);
}

void SharedEvents::ResetAfterFork() { new (this) SharedEvents; }

}  // namespace stasis::replay
