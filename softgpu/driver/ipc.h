// Memory opened from other processes by 64-byte handles (cuIpc*).
//
// The exporting process keeps the daemon's descriptor for the memory open as long as the allocation lives,
// and the handle says where: process, descriptor number, and the daemon's id of the memory, which the
// importer compares with what it gets. The importer opens that descriptor through /proc, so that both must
// belong to the same user and see the same processes. Memory that was opened lives until it is closed,
// whatever the exporter does; a handle is dead once the exporter has freed the memory or ended.
#ifndef SOFTGPU_DRIVER_IPC_H_
#define SOFTGPU_DRIVER_IPC_H_

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "base/fd.h"
#include "softgpu/driver/memory_manager.h"

namespace softgpu {

// Thread-safe. Its lock serialises opening and closing, also across calls to the daemon; the MemoryManager's
// is taken inside it.
class IpcTable {
 public:
  explicit IpcTable(MemoryManager& memory) : memory_(memory) {}

  // INVALID_VALUE: not plain device memory of this process.
  CUresult GetHandle(CUdeviceptr address, CUipcMemHandle* handle);
  // INVALID_CONTEXT in the process that exported it; MAP_FAILED when the memory is gone. The same memory
  // opened again in the same context has the same address, and is closed as often as it was opened.
  CUresult Open(CUcontext context, int device, const CUipcMemHandle& handle, CUdeviceptr* address);
  // The users of the memory must be drained.
  CUresult Close(CUdeviceptr address);
  // The allocation is gone, and with it its handle.
  void Freed(CUdeviceptr address);
  // Before the MemoryManager forgets the context's memory.
  void RemoveContext(CUcontext context);

 private:
  struct Wire;
  CUresult Map(CUcontext context, int device, const Wire& wire, CUdeviceptr* address);

  MemoryManager& memory_;
  std::mutex mutex_;
  std::map<CUdeviceptr, stasis::Fd> exported_;  // by the base of the allocation
  struct Opened {
    CUdeviceptr address = 0;
    uint64_t opens = 0;
  };
  using Key = std::pair<CUcontext, std::pair<uint64_t, uint64_t>>;  // context, {daemon's id, offset}
  std::map<Key, Opened> opened_;
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_IPC_H_
