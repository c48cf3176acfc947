// Allocations of other processes of the task that the program has opened (cuIpcOpenMemHandle). What lies
// behind them is kept by VirtualMemory; to the program they are plain memory of another process.
//
// Thread-safe. The lock is a leaf, held for no driver call.
#ifndef VMM_OPENED_MEMORY_H_
#define VMM_OPENED_MEMORY_H_

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "base/status.h"
#include "vmm/memory.h"
#include "vmm/shared_memory.h"

namespace stasis::vmm {

class OpenedMemory {
 public:
  static OpenedMemory& Get();

  // cuIpcOpenMemHandle in the caller's context. `fetch` asks the process that has the memory for it.
  // CUDA_ERROR_MAP_FAILED: it is gone.
  CUresult Open(CUdeviceptr* address, uint64_t key, const std::function<Result<SharedMemory>()>& fetch);
  // cuIpcCloseMemHandle. False when nothing was opened there.
  bool Close(CUdeviceptr address, CUresult* result);
  void ContextGone(CUcontext context);

  // The allocation that contains `address`, as a block of kind kOpened.
  std::optional<Block> Find(CUdeviceptr address) const;
  void NoteSyncMemops(CUdeviceptr address, bool on);
  // Whether `address` is one of ours: no address for the program to map at.
  bool Covers(CUdeviceptr address) const;

 private:
  struct Opened {
    Block block;
    uint64_t key = 0;
    uint64_t start = 0, size = 0;  // of what is reserved and mapped
    uint64_t opens = 1;
  };

  OpenedMemory() = default;
  bool OpenAgain(CUcontext context, uint64_t key, CUdeviceptr* address);
  static CUresult MapPieces(const Caller& caller, SharedMemory memory, Opened* opened);
  static CUresult MapPiece(CUdeviceptr at, const SharedPiece& piece, const Fd& fd, uint32_t handle_types,
                           int caller_device, int* device);
  static CUresult Unmap(const Opened& opened);

  mutable std::mutex mutex_;
  std::map<uint64_t, Opened> opened_;  // by start
};

}  // namespace stasis::vmm

#endif  // VMM_OPENED_MEMORY_H_
