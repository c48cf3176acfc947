// User objects: something of the program that graphs keep alive by counting references.
#ifndef SOFTGPU_DRIVER_USER_OBJECT_H_
#define SOFTGPU_DRIVER_USER_OBJECT_H_

#include <cuda.h>

#include <cstdint>
#include <mutex>

namespace softgpu {

// Thread-safe. The program's destructor runs on a thread of the driver, without locks held, and may not call
// CUDA.
class UserObject {
 public:
  UserObject(void* object, CUhostFn destroy, uint64_t references)
      : object_(object), destroy_(destroy), references_(references) {}
  void Retain(uint64_t count);
  // False when there are not that many. *last is set when none is left; then call Destroy().
  bool Release(uint64_t count, bool* last);
  void Destroy() const;

 private:
  void* const object_;
  const CUhostFn destroy_;
  std::mutex mutex_;
  uint64_t references_;
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_USER_OBJECT_H_
