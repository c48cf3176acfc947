// Which handles of a library are alive, so that one which is not is told instead of followed.
#ifndef SOFTGPU_BLAS_LIVE_HANDLES_H_
#define SOFTGPU_BLAS_LIVE_HANDLES_H_

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace softgpu::blas {

// From a handle to its state. Thread-safe; a state found lives as long as its finder holds it.
template <typename Handle, typename State>
class LiveHandles {
 public:
  void Add(Handle handle, std::shared_ptr<State> state) {
    std::lock_guard lock(mutex_);
    states_[handle] = std::move(state);
  }
  std::shared_ptr<State> Find(Handle handle) const {
    std::shared_lock lock(mutex_);
    auto found = states_.find(handle);
    return found == states_.end() ? nullptr : found->second;
  }
  // Null: not alive.
  std::shared_ptr<State> Remove(Handle handle) {
    std::lock_guard lock(mutex_);
    auto found = states_.find(handle);
    if (found == states_.end()) return nullptr;
    std::shared_ptr<State> state = std::move(found->second);
    states_.erase(found);
    return state;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<Handle, std::shared_ptr<State>> states_;
};

}  // namespace softgpu::blas

#endif  // SOFTGPU_BLAS_LIVE_HANDLES_H_
