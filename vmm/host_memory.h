// Pinned and managed memory of the program: pages of the process itself, registered with the driver.
//
// What cuMemHostAlloc gives is plain anonymous memory of ours, so that it is dumped, restored and found at
// the same address like all memory of the process; the driver only knows its registration, which is undone
// before the driver goes and made again after. A forked child inherits the pages, as it does those of
// cuMemHostRegister: pages that a device has pinned are copied for the child, not taken from the parent.
//
// Managed memory is given the same way where the device reaches host pages as well as its own
// (ManagedMode::kHost); else it stays the driver's and cannot be carried.
//
// Thread-safe. The lock is never held across a driver call.
#ifndef VMM_HOST_MEMORY_H_
#define VMM_HOST_MEMORY_H_

#include <cuda.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/task_protocol.h"
#include "vmm/range_set.h"

namespace stasis::vmm {

enum class HostKind : uint8_t { kAllocated, kRegistered, kManaged };

struct HostBlock {
  HostKind kind = HostKind::kAllocated;
  uint64_t base = 0, size = 0;  // as the program asked
  unsigned flags = 0;           // as the program asked
  unsigned registration = 0;    // CU_MEMHOSTREGISTER_*
  bool registered = false;      // the driver knows it now
  bool sync_memops = false;     // see sync_memops.h
  CUcontext context = nullptr;  // visible
  int device = -1;              // virtual ordinal
  uint64_t buffer_id = 0;
  uint64_t end() const { return base + size; }
};

class HostMemory {
 public:
  static HostMemory& Get();

  // The driver's functions of these names. `carried`: false when the driver's own memory had to be given,
  // because its devices see host memory elsewhere than the host does.
  CUresult Allocate(void** pointer, size_t bytes, unsigned flags, bool* carried);
  CUresult Free(void* pointer);
  CUresult GetFlags(unsigned* flags, void* pointer);
  // `register_memory` is the variant of cuMemHostRegister that was called.
  CUresult Register(void* pointer, size_t bytes, unsigned flags,
                    decltype(&cuMemHostRegister_v2) register_memory);
  CUresult Unregister(void* pointer);

  // Whether managed memory of the caller's device is given as host pages (STASIS_MANAGED, or what the device
  // says of itself).
  bool ManagedOnHost(int device);
  CUresult AllocateManaged(CUdeviceptr* address, size_t bytes, unsigned flags);
  // cuMemFree of managed memory; `otherwise` for what is none.
  CUresult FreeManaged(CUdeviceptr address, CUresult otherwise);

  std::optional<HostBlock> Find(uint64_t address) const;
  void NoteSyncMemops(uint64_t address, bool on);
  void ContextGone(CUcontext context);
  uint64_t bytes() const;

  // --- For the pause.
  // kUnsupported, by name, when some of it cannot be carried.
  Status CheckReleasable(TaskStrategy strategy) const;
  // Undoes every registration. What the program has unmapped without telling the driver is forgotten.
  Status Release();
  Status Reattach();

 private:
  HostMemory() = default;
  void Insert(HostBlock block);
  std::optional<HostBlock> Take(uint64_t base, HostKind kind);
  CUresult AllocatePages(size_t bytes, HostBlock* block);
  CUresult FreePages(HostBlock block);
  static bool IsUnmapped(const HostBlock& block, const RangeSet& mapped);

  mutable std::mutex mutex_;
  std::map<uint64_t, HostBlock> blocks_;  // by base
};

}  // namespace stasis::vmm

#endif  // VMM_HOST_MEMORY_H_
