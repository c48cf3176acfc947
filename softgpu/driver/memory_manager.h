// MemoryManager: everything the process holds in the unified address space, and which device may touch it.
//
// One object a process. Thread-safe. Its lock ("memory lock") is a leaf: it is never held across a call to
// the daemon, a wait on a stream, a callback or another lock. Callers drain the work that may use a range
// before they free it; the manager itself knows no streams.
//
// All addresses are both device and host addresses. Device memory stays readable by the process
// (memory_space.h). Managed memory is the process's own private memory, reachable by every device; it is not
// counted to any device, as on a machine with concurrent managed access where nothing was touched by a device
// yet.
#ifndef SOFTGPU_DRIVER_MEMORY_MANAGER_H_
#define SOFTGPU_DRIVER_MEMORY_MANAGER_H_

#include <cuda.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include "base/mapping.h"
#include "softgpu/driver/memory_physical.h"
#include "softgpu/driver/memory_space.h"
#include "softgpu/driver/memory_suballoc.h"
#include "softgpu/driver/memory_table.h"
#include "softgpu/ptx/exec/access_map.h"

namespace softgpu {

// The contents of one piece of physical memory, kept in private memory of the process.
struct SavedMemory {
  Physical* memory = nullptr;
  stasis::Mapping bytes;
  std::vector<std::pair<uint64_t, uint64_t>> extents;  // offset and size of the parts that are not zero
};

// The CUDA error that fits a failure of the daemon or the system.
CUresult MemoryError(const stasis::Status& status);

// SUCCESS, or the documented error of cuMemCreate and cuMemPoolCreate for what cannot be allocated.
CUresult CheckAllocationProp(const CUmemAllocationProp& prop, int devices);

class MemoryManager {
 public:
  // `client` may be null and be set later; `devices` is their number.
  static stasis::Result<std::unique_ptr<MemoryManager>> Create(DeviceClient* client, int devices);
  // Unmaps everything; no work may be running.
  ~MemoryManager();
  MemoryManager(const MemoryManager&) = delete;
  MemoryManager& operator=(const MemoryManager&) = delete;

  // What kernels on `device` may touch. Lives as long as the manager.
  const exec::AccessMap* access_map(int device) const { return access_maps_[device].get(); }
  int devices() const { return static_cast<int>(access_maps_.size()); }
  PhysicalSource& source() { return source_; }

  // --- Contexts (memory_context.cc). A context's memory belongs to it until it is removed.
  void AddContext(CUcontext context, int device);
  // Frees all that the context owns. Its work must have ended.
  void RemoveContext(CUcontext context);
  // Kernels of `from`'s device may touch plain memory of `owner`, now and later. PEER_ACCESS_ALREADY_ENABLED,
  // PEER_ACCESS_NOT_ENABLED as documented.
  CUresult EnablePeer(CUcontext from, CUcontext owner);
  CUresult DisablePeer(CUcontext from, CUcontext owner);

  // --- Plain device memory (memory_plain.cc).
  CUresult AllocateDevice(CUcontext context, uint64_t bytes, BlockKind kind, CUdeviceptr* address);
  // The block based at `address` when it is of one of the kinds that `may_free` accepts; its context's work
  // must be drained between Lookup and Free. INVALID_VALUE: no such block (any more).
  std::optional<Block> FindBlock(uint64_t address) const;  // the block that contains the address
  CUresult Free(CUdeviceptr address, BlockKind kind);
  // Registers memory that another part made (pools, imports) and takes care of access rights: `access` by
  // ordinal.
  void AddBlock(Block block, const std::vector<CUmemAccess_flags>& access);
  // Forgets a block without touching rights or pages; the physical memory goes to the caller.
  std::optional<Block> TakeBlock(uint64_t base, BlockKind kind);
  // The memory behind the block is now known to other processes.
  void MarkShared(uint64_t base);
  // Rights of whole large pages.
  void SetDeviceAccess(uint64_t base, uint64_t size, int device, CUmemAccess_flags flags);

  // --- Virtual memory management (memory_vmm.cc).
  CUresult Reserve(CUdeviceptr* address, uint64_t size, uint64_t alignment, CUdeviceptr hint);
  CUresult Unreserve(CUdeviceptr address, uint64_t size);
  CUresult CreateHandle(CUmemGenericAllocationHandle* handle, uint64_t size, const CUmemAllocationProp& prop);
  CUresult ReleaseHandle(CUmemGenericAllocationHandle handle);
  CUresult Map(CUdeviceptr address, uint64_t size, uint64_t offset, CUmemGenericAllocationHandle handle);
  // The range's users must be drained.
  CUresult Unmap(CUdeviceptr address, uint64_t size);
  CUresult SetAccess(CUdeviceptr address, uint64_t size, const CUmemAccessDesc* desc, size_t count);
  CUresult GetAccess(unsigned long long* flags, const CUmemLocation& location, CUdeviceptr address) const;
  CUresult Export(CUmemGenericAllocationHandle handle, int* fd);
  CUresult Import(CUmemGenericAllocationHandle* handle, int fd);
  CUresult GetProperties(CUmemGenericAllocationHandle handle, CUmemAllocationProp* prop) const;
  CUresult RetainHandle(CUmemGenericAllocationHandle* handle, uint64_t address);

  // --- Host memory (memory_host.cc).
  CUresult AllocateHost(CUcontext context, int device, uint64_t bytes, unsigned flags, void** pointer);
  CUresult Register(CUcontext context, int device, void* pointer, uint64_t bytes, unsigned flags);

  // --- Managed memory (memory_managed.cc).
  // `of_module`: for variables of device code, which lie where modules do.
  CUresult AllocateManaged(CUcontext context, int device, uint64_t bytes, unsigned flags,
                           CUdeviceptr* address, bool of_module = false);
  // True when the whole range is managed memory.
  bool IsManaged(CUdeviceptr address, uint64_t size) const;
  CUresult Advise(CUdeviceptr address, uint64_t size, CUmem_advise advice, CUmemLocation location);
  CUresult NotePrefetch(CUdeviceptr address, uint64_t size, CUmemLocation location);
  // The advice of every part of the range, one entry a part.
  CUresult GetAdvice(CUdeviceptr address, uint64_t size, std::vector<RangeAdvice>* parts) const;

  // --- Queries (memory_query.cc).
  MemoryView View(uint64_t address) const;
  // True when [address, address+size) is memory the driver knows, in one block or in adjacent mappings.
  bool Covers(uint64_t address, uint64_t size) const;
  // True when some device may read all of [address, address+size). Takes no lock.
  bool Reachable(uint64_t address, uint64_t size) const;
  struct MappingInfo {
    VmmMapping mapping;
    uint64_t address = 0;
    uint64_t reservation = 0, reservation_size = 0;
  };
  std::optional<MappingInfo> FindMapping(uint64_t address) const;
  struct ReservationInfo {
    uint64_t base = 0, size = 0, id = 0;
  };
  std::optional<ReservationInfo> FindReservation(uint64_t address) const;
  CUresult SetSyncMemops(uint64_t address, bool on);

  // --- Checkpoint (memory_image.cc). Needs that no call is in the driver and that all work has ended.
  // The name of what forbids a checkpoint, or null.
  const char* CheckpointObstacle() const;
  // Copies device memory into private memory of the process and lets go of it; the addresses stay reserved.
  // On failure everything is as before.
  stasis::Status SaveAndDetach();
  // The reverse, after source() was connected again. On failure nothing is held and it may be called again.
  stasis::Status AttachAndLoad();

 private:
  struct ContextMemory {
    int device = 0;
    SubAllocator small{512};
    std::map<uint64_t, std::shared_ptr<Physical>> slabs;  // by home
    std::set<CUcontext> peers;                            // contexts that may touch this one's memory
  };
  using Blocks = std::map<uint64_t, Block>;
  using Reservations = std::map<uint64_t, Reservation>;

  MemoryManager(DeviceClient* client, int devices);

  // memory_context.cc
  std::vector<int> DevicesOfLocked(const ContextMemory& context) const;
  void GrantContextMemoryLocked(const ContextMemory& context, CUcontext key, int device, exec::Access access);
  // memory_plain.cc
  CUresult AllocateSmall(CUcontext context, uint64_t bytes, BlockKind kind, CUdeviceptr* address);
  CUresult AllocateLarge(CUcontext context, uint64_t bytes, BlockKind kind, CUdeviceptr* address);
  Block& InsertBlockLocked(Block block);
  void GrantLocked(const ContextMemory& context, uint64_t base, uint64_t size);
  void RevokeLocked(uint64_t base, uint64_t size);
  // Gives up what lies behind a block that was taken out of the table; what must die outside the lock is
  // returned.
  std::shared_ptr<Physical> DropMemoryLocked(const Block& block);
  // memory_vmm.cc
  Reservations::iterator ReservationOfLocked(uint64_t address, uint64_t size);
  Physical* HandleLocked(CUmemGenericAllocationHandle handle) const;
  bool FullyMappedLocked(const Reservation& reservation, uint64_t address, uint64_t size) const;
  void ApplyAccessLocked(uint64_t address, VmmMapping& mapping, const CUmemAccessDesc& desc);
  CUmemGenericAllocationHandle PublishHandleLocked(std::shared_ptr<Physical> memory);
  void UnmapOneLocked(uint64_t address, const VmmMapping& mapping);
  // memory_managed.cc
  std::map<uint64_t, std::pair<uint64_t, RangeAdvice>>::iterator SplitAdviceLocked(uint64_t address);
  CUresult ChangeAdvice(CUdeviceptr address, uint64_t size, const std::function<void(RangeAdvice&)>& change);
  // memory_query.cc
  const Block* BlockOfLocked(uint64_t address) const;
  // memory_image.cc
  void UnmapAliases();
  stasis::Status MapAliases();

  PhysicalSource source_;
  std::vector<std::unique_ptr<exec::AccessMap>> access_maps_;  // constant after construction

  mutable std::mutex mutex_;
  uint64_t next_id_ = 1;
  std::unordered_map<CUcontext, ContextMemory> contexts_;
  Blocks blocks_;
  Reservations reservations_;
  std::unordered_map<const Physical*, std::shared_ptr<Physical>>
      handles_;  // those with handle_references > 0
  // Managed memory: start -> {end, advice}; covers exactly the managed blocks.
  std::map<uint64_t, std::pair<uint64_t, RangeAdvice>> advice_;
  std::vector<SavedMemory> saved_;  // while checkpointed
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_MEMORY_MANAGER_H_
