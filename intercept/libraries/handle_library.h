// What cuBLAS, cuBLASLt and cuDNN have in common: a handle is made in a context, hides device memory there
// and has settings of its own; destroyed and made again with the same settings it is the same to the program.
#ifndef INTERCEPT_LIBRARIES_HANDLE_LIBRARY_H_
#define INTERCEPT_LIBRARIES_HANDLE_LIBRARY_H_

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

#include "intercept/libraries/library.h"

namespace stasis::libraries {

// One handle of the program's.
class HandleObject {
 public:
  virtual ~HandleObject() = default;

  // In the control thread, the handle's context being current. `real` is the library's own handle.
  //
  // Keeps the settings, which Apply() gives to the handle that was made in its place.
  virtual void Read(void* real) = 0;
  virtual Status Apply(void* real) = 0;

 private:
  friend class HandleLibrary;
  void* visible_ = nullptr;
  CUcontext context_ = nullptr;    // visible; null: none was current
  bool there_ = true;              // the library has the object
  std::atomic<bool> kept_{false};  // is never destroyed by us
  uint64_t sequence_ = 0;
};
using HandleObjectPtr = std::shared_ptr<HandleObject>;

class HandleLibrary : public Library {
 public:
  // ---- For the hooks, inside of the library gate.

  // The library has made `real` in the calling thread's current context; returns the visible handle.
  void* Made(void* real, HandleObjectPtr object);
  // Calls `change(object)` under the library's lock; not at all for a handle that is not there.
  template <typename Change>
  void With(const void* visible, Change change) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = objects_.find(visible);
    if (found != objects_.end()) change(*found->second);
  }
  // Something that we cannot see into may point to the object, or to its device memory: a plan of the
  // library's, or a graph into which a call was captured. That memory is carried like the program's own from
  // now on. Does nothing for a handle that is not there.
  void Keep(const void* visible);
  // Calls `destroy` with the real handle; its result is true when the object is gone.
  template <typename Destroy>
  bool Destroyed(void* visible, Destroy destroy) {
    const HandleObjectPtr object = Take(visible);
    void* const real = Forget(visible);
    if (destroy(real)) return End(visible), true;
    PutBack(visible, real, object);
    return false;
  }

  // The context is gone, and with it all that its handles hid; the program's to destroy.
  void ContextGone(CUcontext visible);

  void ResetAfterFork() { new (&mutex_) std::mutex; }

  // ---- Of Library.
  Status GiveUp() final;
  Status Rebuild() final;

 protected:
  // The library's functions, in the control thread with the handle's context current.
  virtual Result<void*> Create() = 0;
  virtual Status Destroy(void* real) = 0;

 private:
  HandleObjectPtr Take(void* visible);
  static void* Forget(void* visible);
  static void End(void* visible);
  void PutBack(void* visible, void* real, const HandleObjectPtr& object);
  std::vector<HandleObjectPtr> Objects();  // oldest first
  Status GiveUpOne(HandleObject& object);
  Status RebuildOne(HandleObject& object);

  std::mutex mutex_;
  std::unordered_map<const void*, HandleObjectPtr> objects_;  // guarded by mutex_; by visible handle
  uint64_t next_sequence_ = 0;                                // guarded by mutex_
};

// A context of the program's is gone: for every library's handles.
void ContextGone(CUcontext visible);
void RegisterHandles(HandleLibrary* library);
// In a child after fork(2): the locks may have been held by other threads.
void ResetHandleLibrariesAfterFork();

// Registers a library that was just made, once.
template <typename T>
T* Registered(T* library) {
  RegisterHandles(library);
  return library;
}

}  // namespace stasis::libraries

#endif  // INTERCEPT_LIBRARIES_HANDLE_LIBRARY_H_
