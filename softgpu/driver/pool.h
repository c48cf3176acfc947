// Memory pools and stream-ordered allocation.
//
// Addresses are handed out when a call is made, for use in stream order. A block that was freed in stream
// order goes first to later allocations of the same stream, and to everybody once the stream has carried the
// free out. The pool knows streams only by their ids; telling it that a free was carried out is the caller's
// part (FreeDone).
//
// Locks: PoolTable's, then a pool's, then the MemoryManager's. None is held across a call to the daemon or a
// wait.
#ifndef SOFTGPU_DRIVER_POOL_H_
#define SOFTGPU_DRIVER_POOL_H_

#include <cuda.h>

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "softgpu/driver/memory_manager.h"
#include "softgpu/driver/memory_suballoc.h"

namespace softgpu {

class MemPool {
 public:
  // A free that its stream has not yet carried out. Guarded by the pool's lock.
  struct PendingFree {
    uint64_t base = 0, size = 0;
    uint64_t stream = 0;
    bool done = false;    // carried out
    bool reused = false;  // given to a later allocation of the same stream
  };

  // `device` is kHostDevice for memory of the host.
  MemPool(MemoryManager& memory, int device, const CUmemPoolProps& props, bool is_default);
  ~MemPool();

  CUmemoryPool handle() const { return reinterpret_cast<CUmemoryPool>(const_cast<MemPool*>(this)); }
  int device() const { return device_; }
  bool is_default() const { return is_default_; }

  // `context` is where the allocation was made, for pointer queries and the context's end.
  CUresult Allocate(CUcontext context, uint64_t stream, uint64_t bytes, CUdeviceptr* address);
  // Takes a live block off the program's hands, in stream order. Null when `base` is no live block of this
  // pool.
  std::shared_ptr<PendingFree> BeginFree(uint64_t base, uint64_t stream);
  void FreeDone(const std::shared_ptr<PendingFree>& pending);
  // Frees what `context` allocated, at once.
  void RemoveContext(CUcontext context);

  // Gives free memory back until at most `keep` bytes are reserved.
  void TrimTo(uint64_t keep);
  // At synchronising calls: frees carried out are for everybody, and memory above the threshold is given
  // back.
  void OnSynchronize();

  CUresult SetAttribute(CUmemPool_attribute attribute, const void* value);
  CUresult GetAttribute(CUmemPool_attribute attribute, void* value) const;
  CUresult SetAccess(const CUmemAccessDesc* desc, size_t count);
  CUresult GetAccess(const CUmemLocation& location, CUmemAccess_flags* flags) const;
  // No block is live and no free is pending.
  bool idle() const;

 private:
  struct Counter {
    uint64_t current = 0, high = 0;
    void Add(uint64_t bytes) {
      current += bytes;
      if (current > high) high = current;
    }
  };

  uint64_t TakeLocked(uint64_t stream, uint64_t bytes);
  CUresult Grow(uint64_t bytes);
  void PublishLocked(CUcontext context, uint64_t base, uint64_t bytes);
  void ReturnLocked(const PendingFree& freed);
  std::vector<std::shared_ptr<Physical>> TrimLocked(uint64_t keep);

  MemoryManager& memory_;
  const int device_;
  const CUmemPoolProps props_;
  const bool is_default_;

  mutable std::mutex mutex_;
  SubAllocator space_{512};
  std::map<uint64_t, std::shared_ptr<Physical>> regions_;  // by home
  std::unordered_map<uint64_t, CUcontext> live_;           // blocks in the program's hands
  std::list<std::shared_ptr<PendingFree>> pending_;
  std::vector<CUmemAccess_flags> access_;  // by ordinal
  uint64_t growing_ = 0;                   // bytes asked of the daemon and not yet here
  uint64_t release_threshold_ = 0;
  int follow_events_ = 1, opportunistic_ = 1, internal_dependencies_ = 1;
  Counter reserved_, used_;
};

// The pools of the process, and which of them each device uses.
class PoolTable {
 public:
  explicit PoolTable(MemoryManager& memory);

  CUresult Create(const CUmemPoolProps& props, CUmemoryPool* out);
  // The memory of a pool in use lives until its last block has gone.
  CUresult Destroy(CUmemoryPool pool);
  std::shared_ptr<MemPool> Find(CUmemoryPool pool) const;  // null: no such pool
  // Also finds a destroyed pool that still has blocks.
  std::shared_ptr<MemPool> FindOwner(CUmemoryPool pool) const;
  std::shared_ptr<MemPool> Default(int device) const { return defaults_[device]; }
  std::shared_ptr<MemPool> Current(int device) const;
  CUresult SetCurrent(int device, CUmemoryPool pool);

  void RemoveContext(CUcontext context);
  void OnSynchronize();
  // For when a device is short of memory. True when something was given back.
  bool TrimDevice(int device);

 private:
  std::vector<std::shared_ptr<MemPool>> All() const;

  MemoryManager& memory_;
  std::vector<std::shared_ptr<MemPool>> defaults_;  // constant after construction
  mutable std::mutex mutex_;
  std::vector<CUmemoryPool> current_;
  std::unordered_map<CUmemoryPool, std::shared_ptr<MemPool>> pools_;
  std::unordered_map<CUmemoryPool, std::shared_ptr<MemPool>> destroyed_;
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_POOL_H_
