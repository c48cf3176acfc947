// Memory pools and stream-ordered allocation of the program.
//
// Each pool of the driver that the program sees has an arena of ours behind its handle; the driver's own pool
// stays empty and checks what the program asks of it. A block freed in a stream goes at once to later
// allocations of that stream, and to others once the device has passed the free. What a pool keeps above its
// release threshold goes back when it is next asked about, when memory is short, and at a pause, while the
// driver does so at the next synchronisation: the program sees the same numbers.
//
// Pools with memory of the host or with exportable handles stay the driver's (Pool::forwarded).
//
// Thread-safe, under the lock and by the rules of Memory. Handles of pools are visible, streams are real.
#ifndef VMM_POOLS_H_
#define VMM_POOLS_H_

#include <cuda.h>

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include "base/status.h"
#include "vmm/memory.h"

namespace stasis::vmm {

// Where and when an allocation or a free takes effect.
struct StreamPlace {
  CUstream stream = nullptr;    // real, never null
  unsigned long long id = 0;    // unique among all streams of the process
  CUcontext context = nullptr;  // visible
  int device = -1;              // virtual ordinal
  bool capturing = false;
};
// The driver's error for a stream that may not be used here.
CUresult FindStream(CUstream stream, StreamPlace* place);

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
  // A free that its stream may not have reached.
  struct Pending {
    uint64_t base = 0, occupied = 0;
    unsigned long long stream_id = 0;
    CUcontext context = nullptr;
    CUevent event = nullptr;
  };
  struct Counter {
    uint64_t current = 0, high = 0;
    void Set(uint64_t value) {
      current = value;
      if (value > high) high = value;
    }
  };
  struct Pool {
    CUmemoryPool visible = nullptr, real = nullptr;
    int device = -1;
    CUmemPoolProps props{};  // of the program: virtual ordinal
    bool is_default = false, forwarded = false, destroyed = false;
    std::shared_ptr<Arena> arena;
    std::list<Pending> pending;
    Counter used, reserved;
    uint64_t release_threshold = 0;
    int follow_events = 1, opportunistic = 1, internal_dependencies = 1;
    uint64_t live = 0;  // blocks in the program's hands
  };
  using PoolPtr = std::shared_ptr<Pool>;

  Pools() = default;
  PoolPtr Find(CUmemoryPool pool) const;
  PoolPtr FindLocked(CUmemoryPool pool) const;
  CUresult DefaultOf(int device, PoolPtr* out);
  CUresult CurrentOf(int device, PoolPtr* out);
  std::vector<PoolPtr> All() const;

  static CUresult TakeLocked(Pool& pool, size_t bytes, const StreamPlace& place, uint64_t* base,
                             uint64_t* occupied, std::vector<Extent>* discarded);
  static bool ReuseOfStreamLocked(Pool& pool, uint64_t size, unsigned long long stream_id, uint64_t* base,
                                  uint64_t* occupied);
  static bool ReuseByWaitingLocked(Pool& pool, uint64_t size, const StreamPlace& place, uint64_t* base,
                                   uint64_t* occupied);
  static void FoldLocked(Pool& pool, bool all);
  static void GiveBackLocked(Pool& pool, const Pending& pending);
  CUresult AllocateOnce(const PoolPtr& pool, size_t bytes, const StreamPlace& place, CUdeviceptr* address);
  CUresult AllocateMakingRoom(const PoolPtr& pool, size_t bytes, const StreamPlace& place,
                              CUdeviceptr* address);
  void FreePoolBlock(const Block& block, const StreamPlace& place);
  void FreePlainBlock(Block block, const StreamPlace& place);
  void EndBlock(const Block& block);
  void Trim(const PoolPtr& pool, uint64_t keep, bool all_passed = false);
  static CUresult Store(Pool& pool, CUmemPool_attribute attribute, const void* value);
  static CUresult Load(const Pool& pool, CUmemPool_attribute attribute, void* value);
  static Status RebuildOne(Pool& pool);

  std::map<CUmemoryPool, PoolPtr> pools_;  // by visible handle; also destroyed ones that have blocks
  std::map<int, CUmemoryPool> defaults_, current_;
};

}  // namespace stasis::vmm

#endif  // VMM_POOLS_H_
