// Memory pools and stream-ordered allocation of the program.
//
// Each pool of the driver that the program sees has an arena of ours behind its handle (Pool); the driver's
// own pool stays empty and checks what the program asks of it. What a pool keeps above its release threshold
// goes back when it is next asked about, when memory is short, and at a pause, while the driver does so at
// the next synchronisation: the program sees the same numbers.
//
// Pools with memory of the host or with exportable handles stay the driver's (Pool::forwarded).
//
// Thread-safe, under the lock and by the rules of Memory. Handles of pools are visible, streams are real.
#ifndef VMM_POOLS_H_
#define VMM_POOLS_H_

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "base/status.h"
#include "vmm/memory.h"
#include "vmm/pool.h"
#include "vmm/stream_place.h"

namespace stasis::vmm {

class Pools {
 public:
  static Pools& Get();

  CUresult Create(CUmemoryPool* pool, const CUmemPoolProps* props);
  CUresult Destroy(CUmemoryPool pool);
  // Of a device (virtual ordinal).
  CUresult GetDefault(CUmemoryPool* pool, int device);
  CUresult GetCurrent(CUmemoryPool* pool, int device);
  CUresult SetCurrent(int device, CUmemoryPool pool);

  CUresult SetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value);
  CUresult GetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value);
  CUresult SetAccess(CUmemoryPool pool, const CUmemAccessDesc* descriptors, size_t count);
  CUresult GetAccess(CUmemAccess_flags* flags, CUmemoryPool pool, CUmemLocation* location);
  CUresult TrimTo(CUmemoryPool pool, size_t keep);

  // Whether allocations from the pool (null: the current one of the device) are the driver's business.
  bool IsForwarded(CUmemoryPool pool, int device);
  // `pool` null: the current one of the stream's device.
  CUresult Allocate(CUdeviceptr* address, size_t bytes, CUmemoryPool pool, const StreamPlace& place);
  // cuMemFreeAsync. False when the address is none of ours; else `result` is the answer.
  bool FreeAsync(CUdeviceptr address, const StreamPlace& place, CUresult* result);
  // cuMemFree: what is no block of a pool is answered with `otherwise`.
  CUresult Free(CUdeviceptr address, CUresult otherwise);

  // What the driver calls it now, and what the program does. A pool that is not known is passed on.
  CUmemoryPool ToReal(CUmemoryPool visible) const;
  CUmemoryPool ToVisible(CUmemoryPool real) const;

  bool CoversLocked(CUdeviceptr address) const;
  void Reclaim(int device);
  // Gives back what pools keep above their thresholds.
  void TrimToThresholds();
  void ContextGone(CUcontext context);

  // --- For the pause.
  std::vector<std::shared_ptr<Arena>> Arenas() const;
  // All device work is done: every pending free has been reached. Then trims.
  void Settle();
  // Destroys the driver's objects (kReconstruct).
  Status ReleaseObjects();
  // Makes them again on the devices of the device map.
  Status RebuildObjects();

 private:
  using PoolPtr = std::shared_ptr<Pool>;

  Pools() = default;
  PoolPtr Find(CUmemoryPool pool) const;
  PoolPtr FindLocked(CUmemoryPool pool) const;
  CUresult DefaultOf(int device, PoolPtr* out);
  CUresult CurrentOf(int device, PoolPtr* out);
  std::vector<PoolPtr> All() const;

  CUresult AllocateOnce(const PoolPtr& pool, size_t bytes, const StreamPlace& place, CUdeviceptr* address);
  CUresult AllocateMakingRoom(const PoolPtr& pool, size_t bytes, const StreamPlace& place,
                              CUdeviceptr* address);
  void FreePoolBlock(const Block& block, const StreamPlace& place);
  void FreePlainBlock(Block block, const StreamPlace& place);
  void EndBlock(const Block& block);
  void Trim(const PoolPtr& pool, uint64_t keep, bool all_passed = false);

  std::map<CUmemoryPool, PoolPtr> pools_;  // by visible handle; also destroyed ones that have blocks
  std::map<int, CUmemoryPool> defaults_, current_;
};

}  // namespace stasis::vmm

#endif  // VMM_POOLS_H_
