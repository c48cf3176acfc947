// The program's plain device memory: what cuMemAlloc and its kin answer, and what is known of each
// allocation.
//
// One per process. Every function may be called by any thread inside the gate. One lock guards all tables. It
// is held across cuMemAddressReserve, cuMemCreate, cuMemMap and cuMemSetAccess that gives rights: these ask
// the driver for memory and wait for no device work, no callback and no other call, and the driver serialises
// them anyway. It is never held across what waits for work: cuMemUnmap, synchronisation, taking rights away.
//
// The driver is always asked first (a call that can only fail, CheckCaller), so that all its own errors --
// not initialised, child of a fork, no context, broken context, forbidden during a capture -- are its own.
#ifndef VMM_MEMORY_H_
#define VMM_MEMORY_H_

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "vmm/arena.h"
#include "vmm/environment.h"
#include "vmm/shared_memory.h"

namespace stasis::vmm {

// kOpened: of another process, see OpenedMemory.
enum class BlockKind : uint8_t { kPlain, kPool, kOpened };

// A live allocation of the program.
struct Block {
  BlockKind kind = BlockKind::kPlain;
  uint64_t base = 0, size = 0;  // as the program asked
  uint64_t occupied = 0;        // bytes of the arena that go back with it; at least Arena::Capacity(size)
  CUcontext context = nullptr;  // visible
  int device = 0;               // virtual ordinal
  uint64_t buffer_id = 0;       // CU_POINTER_ATTRIBUTE_BUFFER_ID
  CUmemoryPool pool = nullptr;  // visible; null for plain memory
  bool sync_memops = false;
  uint64_t share_key = 0;  // by which other processes open it; 0: none can
  std::shared_ptr<Arena> arena;
  uint64_t end() const { return base + size; }
};

// Extents that were taken out of an arena and wait to be discarded outside the lock.
struct Discarded {
  std::shared_ptr<Arena> arena;
  std::vector<Extent> extents;
};

class Memory {
 public:
  static Memory& Get();

  // cuMemAlloc_v2, cuMemAllocPitch_v2 and cuMemFree_v2 of the caller's current context.
  CUresult Allocate(CUdeviceptr* address, size_t bytes);
  CUresult AllocatePitch(CUdeviceptr* address, size_t* pitch, size_t width, size_t height, unsigned element);
  CUresult Free(CUdeviceptr address);

  // The allocation that contains `address`.
  std::optional<Block> Find(CUdeviceptr address) const;
  // Sets CU_POINTER_ATTRIBUTE_SYNC_MEMOPS of what contains `address`, which the driver has been told.
  void NoteSyncMemops(CUdeviceptr address, bool on);
  // Tells the driver of all that have it: an allocation may lie across several mappings, and share them.
  Status RestoreSyncMemops() const;
  // Whether `address` may only be memory of ours: what the driver says of it is not the program's business.
  bool Covers(CUdeviceptr address) const;
  // Bytes that a plain allocator would call free on `device` although they are ours.
  uint64_t FreeBytes(int device) const;

  // cuIpcGetMemHandle: the key of the plain allocation that contains `address`; nothing when there is none.
  std::optional<uint64_t> ShareKeyOf(CUdeviceptr address);
  // kNotFound: no allocation has this key.
  Result<SharedMemory> Give(uint64_t share_key);

  // The context (visible handle) has gone, and its memory with it. After the driver has said so.
  void ContextGone(CUcontext context);

  // Lets the device of context `user` at what `owner` has and will have; the driver has agreed. Both visible.
  // On failure nothing is changed.
  CUresult EnablePeer(CUcontext user, int user_device, CUcontext owner);
  void DisablePeer(CUcontext user, CUcontext owner);
  struct PeerPair {
    CUcontext user = nullptr, owner = nullptr;
    int user_device = -1;
  };
  std::vector<PeerPair> PeerPairs() const;

  // --- For pools, which share the lock and the table of blocks.
  std::unique_lock<std::mutex> Lock() const { return std::unique_lock(mutex_); }
  // With `trusts_notes` false it has been taken out and comes back, without the blocks that were noted in it.
  void InsertLocked(Block block, bool trusts_notes = true);
  bool HasBlockLocked(CUdeviceptr base) const { return blocks_.count(base) != 0; }
  // Takes the block based at `address` out when it is of that kind.
  std::optional<Block> TakeLocked(CUdeviceptr address, BlockKind kind);
  uint64_t NextBufferIdLocked() { return next_buffer_id_++; }
  uint64_t NextBufferId() {
    auto lock = Lock();
    return NextBufferIdLocked();
  }
  // Blocks of a pool or a context.
  std::vector<Block> TakeAllLocked(const std::function<bool(const Block&)>& which);
  // Without the lock.
  void Discard(std::vector<Discarded> discarded);
  // Gives everything back that is only kept: spare pages, and what pools keep.
  void Reclaim(int device);
  // The last resort when memory is short: `allocate` again once the ghost has given back what it kept on
  // `device`, or has ended. CUDA_ERROR_OUT_OF_MEMORY when it kept nothing. Without the lock.
  static CUresult WithHeldMemory(int device, const std::function<CUresult()>& allocate);
  // Sets what `device` may do with memory that SetRights() of an arena named. Without the lock.
  CUresult ApplyRights(const std::shared_ptr<Arena>& arena, const std::vector<Extent>& extents, int device,
                       CUmemAccess_flags flags);
  // Ends the allocation `block` (plain, taken out before) once the device has passed `event`, an event of
  // ours in the block's context.
  void FreeAfter(Block block, CUevent event);
  // Carries out what frees had to wait for: the end of a capture, or an event.
  void SettleDeferredFrees();
  // The block is nobody's any more, and the device does not use it.
  void Finish(const Block& block);
  // Waits for the context of the block.
  CUresult Synchronize(const Block& block) const;

  // --- For the pause: the gate is closed, so nobody else is here; or with the lock.
  std::vector<std::shared_ptr<Arena>> ContextArenas() const;  // takes the lock
  const std::map<uint64_t, Block>& blocks() const { return blocks_; }

 private:
  struct Deferred {
    Block block;
    CUevent event = nullptr;  // null: freed during a capture
  };

  Memory() = default;
  Status RestoreSyncMemopsLocked() const;
  static Status TellSyncMemopsLocked(const Block& block);
  std::shared_ptr<Arena> ArenaOfLocked(const Caller& caller);
  CUresult AllocateOnce(const Caller& caller, size_t bytes, CUdeviceptr* address);
  CUresult AllocateMakingRoom(const Caller& caller, size_t bytes, CUdeviceptr* address);

  mutable std::mutex mutex_;
  std::map<CUcontext, std::shared_ptr<Arena>> arenas_;
  std::map<uint64_t, Block> blocks_;  // by base
  std::vector<Deferred> deferred_;
  std::vector<PeerPair> peers_;
  // Far above what any driver has counted to, so that an id of ours is never one of its own.
  uint64_t next_buffer_id_ = 1ull << 40;
};

// The error the driver gives to an allocating call of this thread now, CUDA_SUCCESS when there is none.
CUresult CheckCaller();

}  // namespace stasis::vmm

#endif  // VMM_MEMORY_H_
