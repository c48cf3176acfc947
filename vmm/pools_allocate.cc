// Stream-ordered allocation: blocks that come from pools and go back to them.
#include <utility>

#include "vmm/events.h"
#include "vmm/pools.h"
#include "vmm/real_driver.h"

namespace stasis::vmm {

CUresult Pools::AllocateOnce(const PoolPtr& pool, size_t bytes, const StreamPlace& place,
                             CUdeviceptr* address) {
  std::vector<Discarded> discarded(1);
  discarded[0].arena = pool->arena;
  CUresult result;
  {
    auto lock = Memory::Get().Lock();
    Block block;
    result = pool->Take(bytes, place, &block.base, &block.occupied, &discarded[0].extents);
    if (result == CUDA_SUCCESS) {
      *address = block.base;
      block.kind = BlockKind::kPool;
      block.size = bytes;
      block.context = place.context;
      block.device = pool->device;
      block.buffer_id = Memory::Get().NextBufferIdLocked();
      block.pool = pool->visible;
      block.arena = pool->arena;
      ++pool->live;
      Memory::Get().InsertLocked(std::move(block));
    }
  }
  Memory::Get().Discard(std::move(discarded));
  return result;
}

// What waits to be freed and what others keep counts as free memory: the driver waits for it, too.
CUresult Pools::AllocateMakingRoom(const PoolPtr& pool, size_t bytes, const StreamPlace& place,
                                   CUdeviceptr* address) {
  CUresult result = AllocateOnce(pool, bytes, place, address);
  if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
  if (!CapturesInProgress()) {
    const ScopedContext scope(place.context);
    Driver().cuCtxSynchronize();
  }
  Memory::Get().Reclaim(pool->device);
  result = AllocateOnce(pool, bytes, place, address);
  if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
  return Memory::WithHeldMemory(pool->device, [&] { return AllocateOnce(pool, bytes, place, address); });
}

bool Pools::IsForwarded(CUmemoryPool handle, int device) {
  PoolPtr pool;
  if (handle != nullptr)
    pool = Find(handle);
  else if (CurrentOf(device, &pool) != CUDA_SUCCESS)
    return true;
  return pool == nullptr || pool->forwarded;
}

CUresult Pools::Allocate(CUdeviceptr* address, size_t bytes, CUmemoryPool handle, const StreamPlace& place) {
  const RelaxedCapture relaxed;
  const CUresult allowed = CheckCaller();
  if (allowed != CUDA_SUCCESS) return allowed;
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes >> 47 != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  PoolPtr pool = Find(handle);
  if (handle == nullptr) {
    const CUresult found = CurrentOf(place.device, &pool);
    if (found != CUDA_SUCCESS) return found;
  }
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return AllocateMakingRoom(pool, bytes, place, address);
}

// The block is gone from the program's hands, and nothing uses it.
void Pools::EndBlock(const Block& block) {
  PoolPtr pool;
  {
    auto lock = Memory::Get().Lock();
    pool = FindLocked(block.pool);
    if (pool == nullptr) return;
    --pool->live;
    pool->GiveBack({block.base, block.occupied, 0, nullptr, nullptr});
  }
  if (pool->destroyed) Trim(pool, 0);
}

void Pools::FreePoolBlock(const Block& block, const StreamPlace& place) {
  CUevent event = Events::Get().Record(place.context, place.stream);
  if (event == nullptr) {
    Driver().cuStreamSynchronize(place.stream);
    EndBlock(block);
    return;
  }
  PoolPtr pool;
  {
    auto lock = Memory::Get().Lock();
    pool = FindLocked(block.pool);
    if (pool == nullptr) return;
    --pool->live;
    pool->pending.push_back({block.base, block.occupied, place.id, place.context, event});
  }
  if (pool->destroyed) Trim(pool, 0);
}

// Memory of cuMemAlloc may be freed in stream order as well.
void Pools::FreePlainBlock(Block block, const StreamPlace& place) {
  CUevent event = Events::Get().Record(place.context, place.stream);
  if (event == nullptr) {
    Driver().cuStreamSynchronize(place.stream);
    Memory::Get().Finish(block);
    return;
  }
  block.context = place.context;  // whose event it is
  Memory::Get().FreeAfter(std::move(block), event);
}

bool Pools::FreeAsync(CUdeviceptr address, const StreamPlace& place, CUresult* result) {
  const RelaxedCapture relaxed;
  std::optional<Block> pooled, plain;
  *result = CheckCaller();
  {
    auto lock = Memory::Get().Lock();
    const bool ours = Memory::Get().HasBlockLocked(address);
    if (!ours || *result != CUDA_SUCCESS) return ours;
    pooled = Memory::Get().TakeLocked(address, BlockKind::kPool);
    if (!pooled) plain = Memory::Get().TakeLocked(address, BlockKind::kPlain);
  }
  if (pooled)
    FreePoolBlock(*pooled, place);
  else
    FreePlainBlock(*std::move(plain), place);
  Memory::Get().SettleDeferredFrees();
  return true;
}

CUresult Pools::Free(CUdeviceptr address, CUresult otherwise) {
  std::optional<Block> block;
  {
    auto lock = Memory::Get().Lock();
    block = Memory::Get().TakeLocked(address, BlockKind::kPool);
  }
  if (!block) return otherwise;
  const CUresult synchronized = Memory::Get().Synchronize(*block);
  if (synchronized == CUDA_SUCCESS) {
    EndBlock(*block);
    return CUDA_SUCCESS;
  }
  auto lock = Memory::Get().Lock();
  Memory::Get().InsertLocked(*std::move(block), false);
  return synchronized;
}

void Pools::Trim(const PoolPtr& pool, uint64_t keep, bool all_passed) {
  std::vector<Discarded> discarded(1);
  PoolPtr dead;
  {
    auto lock = Memory::Get().Lock();
    if (pool->arena == nullptr) {
      if (pool->destroyed) pools_.erase(pool->visible);
      return;
    }
    pool->Fold(all_passed);
    discarded[0].arena = pool->arena;
    pool->arena->TakeFree(&discarded[0].extents, keep);
    pool->reserved.Set(pool->arena->mapped_bytes());
    if (pool->destroyed && pool->live == 0 && pool->pending.empty()) {
      dead = pool;
      pools_.erase(pool->visible);
    }
  }
  Memory::Get().Discard(std::move(discarded));
}

void Pools::Reclaim(int device) {
  for (const PoolPtr& pool : All())
    if (pool->device == device) Trim(pool, 0);
}

void Pools::TrimToThresholds() {
  for (const PoolPtr& pool : All()) Trim(pool, pool->destroyed ? 0 : pool->release_threshold);
}

void Pools::ContextGone(CUcontext context) {
  std::vector<Block> blocks;
  {
    auto lock = Memory::Get().Lock();
    blocks = Memory::Get().TakeAllLocked(
        [context](const Block& block) { return block.kind == BlockKind::kPool && block.context == context; });
    for (const auto& [handle, pool] : pools_)
      for (PendingFree& pending : pool->pending)
        if (pending.context == context) pending.event = nullptr;  // gone with its context, and so passed
  }
  for (const Block& block : blocks) EndBlock(block);
  TrimToThresholds();
}

}  // namespace stasis::vmm
