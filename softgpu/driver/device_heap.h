// DeviceHeap: what kernels get from malloc(). Its memory is taken from the device when first used and stays
// until the context ends (CU_LIMIT_MALLOC_HEAP_SIZE). Thread-safe.
#ifndef SOFTGPU_DRIVER_DEVICE_HEAP_H_
#define SOFTGPU_DRIVER_DEVICE_HEAP_H_

#include <cstdint>
#include <mutex>

#include "softgpu/driver/memory_suballoc.h"

namespace softgpu {

class Context;

class DeviceHeap {
 public:
  explicit DeviceHeap(Context* context) : context_(*context) {}
  // 0 when the heap is used up.
  uint64_t Malloc(uint64_t bytes);
  // Unknown addresses are ignored.
  void Free(uint64_t address);
  bool in_use() const;

 private:
  Context& context_;
  mutable std::mutex mutex_;
  bool ready_ = false;
  SubAllocator space_{16};
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_DEVICE_HEAP_H_
