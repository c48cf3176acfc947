#include "softgpu/driver/device_heap.h"

#include "softgpu/driver/context.h"
#include "softgpu/driver/memory_parts.h"
#include "softgpu/driver/state.h"

namespace softgpu {

uint64_t DeviceHeap::Malloc(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  if (!ready_) {
    size_t size;
    {
      std::lock_guard settings(context_.settings_mutex());
      size = context_.limits.malloc_heap_size;
    }
    CUdeviceptr base = 0;
    MemoryManager& memory = State::Get()->memory().manager();
    if (memory.AllocateDevice(context_.handle(), size, BlockKind::kModule, &base) != CUDA_SUCCESS) return 0;
    space_.AddRegion(base, size);
    ready_ = true;
  }
  return space_.Allocate(bytes == 0 ? 1 : bytes).value_or(0);
}

void DeviceHeap::Free(uint64_t address) {
  std::lock_guard lock(mutex_);
  if (space_.BlockSize(address) != 0) space_.Free(address);
}

bool DeviceHeap::in_use() const {
  std::lock_guard lock(mutex_);
  return ready_;
}

}  // namespace softgpu
