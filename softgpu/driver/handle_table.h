// Which handles of one kind are alive. A handle is the address of its object.
//
// Thread-safe. A lookup shares ownership, so that an object destroyed by another thread lives until the call
// that found it returns. The lock is a leaf.
#ifndef SOFTGPU_DRIVER_HANDLE_TABLE_H_
#define SOFTGPU_DRIVER_HANDLE_TABLE_H_

#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace softgpu {

template <typename Handle, typename T>
class HandleTable {
 public:
  Handle Add(std::shared_ptr<T> object) {
    Handle handle = reinterpret_cast<Handle>(object.get());
    std::lock_guard lock(mutex_);
    objects_.emplace(handle, std::move(object));
    return handle;
  }
  // Null when the handle is not alive.
  std::shared_ptr<T> Find(Handle handle) const {
    std::lock_guard lock(mutex_);
    auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : found->second;
  }
  std::shared_ptr<T> Remove(Handle handle) {
    std::lock_guard lock(mutex_);
    auto found = objects_.find(handle);
    if (found == objects_.end()) return nullptr;
    std::shared_ptr<T> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }
  // The objects for which `matches(const T&)` holds, taken out of the table.
  template <typename Predicate>
  std::vector<std::shared_ptr<T>> RemoveIf(Predicate matches) {
    std::vector<std::shared_ptr<T>> removed;
    std::lock_guard lock(mutex_);
    for (auto it = objects_.begin(); it != objects_.end();) {
      if (!matches(*it->second)) {
        ++it;
        continue;
      }
      removed.push_back(std::move(it->second));
      it = objects_.erase(it);
    }
    return removed;
  }
  std::vector<std::shared_ptr<T>> All() const {
    std::vector<std::shared_ptr<T>> all;
    std::lock_guard lock(mutex_);
    all.reserve(objects_.size());
    for (const auto& entry : objects_) all.push_back(entry.second);
    return all;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<Handle, std::shared_ptr<T>> objects_;
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_HANDLE_TABLE_H_
