#include "vmm/memory.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/task_protocol.h"
#include "vmm/active_memory.h"
#include "vmm/events.h"
#include "vmm/held_memory.h"
#include "vmm/host_memory.h"
#include "vmm/opened_memory.h"
#include "vmm/pools.h"
#include "vmm/real_driver.h"
#include "vmm/sync_memops.h"

namespace stasis::vmm {
namespace {

// Rows of pitched allocations begin at multiples of this, which suits textures too.
constexpr uint64_t kRowAlignment = 512;

}  // namespace

// An allocation of no bytes fails in the driver after every check of the caller.
CUresult CheckCaller() {
  CUdeviceptr none = 0;
  const CUresult result = Driver().cuMemAlloc_v2(&none, 0);
  return result == CUDA_ERROR_INVALID_VALUE ? CUDA_SUCCESS : result;
}

Memory& Memory::Get() {
  static Memory* const memory = new Memory;  // outlives every destructor
  return *memory;
}

std::shared_ptr<Arena> Memory::ArenaOfLocked(const Caller& caller) {
  std::shared_ptr<Arena>& arena = arenas_[caller.context];
  if (arena != nullptr) return arena;
  arena = std::make_shared<Arena>(caller.device);
  for (const PeerPair& pair : peers_)
    if (pair.owner == caller.context) arena->SetRights(pair.user_device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  return arena;
}

CUresult Memory::AllocateOnce(const Caller& caller, size_t bytes, CUdeviceptr* address) {
  std::vector<Discarded> discarded(1);
  CUresult result;
  {
    auto lock = Lock();
    const std::shared_ptr<Arena> arena = ArenaOfLocked(caller);
    uint64_t base = 0;
    result = arena->Allocate(bytes, &base, &discarded[0].extents);
    discarded[0].arena = arena;
    if (result == CUDA_SUCCESS) {
      Block block;
      block.base = base;
      block.size = bytes;
      block.occupied = Arena::Capacity(bytes);
      block.context = caller.context;
      block.device = caller.device;
      block.buffer_id = next_buffer_id_++;
      block.arena = arena;
      InsertLocked(std::move(block));
      *address = base;
    }
  }
  Discard(std::move(discarded));
  return result;
}

CUresult Memory::Allocate(CUdeviceptr* address, size_t bytes) {
  const CUresult allowed = CheckCaller();
  if (allowed != CUDA_SUCCESS) return allowed;
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  Caller caller;
  const CUresult found = CurrentCaller(&caller);
  if (found != CUDA_SUCCESS) return found;
  SettleDeferredFrees();
  return AllocateMakingRoom(caller, bytes, address);
}

CUresult Memory::AllocateMakingRoom(const Caller& caller, size_t bytes, CUdeviceptr* address) {
  CUresult result = AllocateOnce(caller, bytes, address);
  if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
  Reclaim(caller.device);
  result = AllocateOnce(caller, bytes, address);
  if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
  return WithHeldMemory(caller.device, [&] { return AllocateOnce(caller, bytes, address); });
}

CUresult Memory::WithHeldMemory(int device, const std::function<CUresult()>& allocate) {
  HeldMemory& held = HeldMemory::Get();
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  if (held.TakeBack(device, Deadline::After(kTaskPressureWait))) result = allocate();
  while (result == CUDA_ERROR_OUT_OF_MEMORY && held.AwaitAbandoned(device)) result = allocate();
  return result;
}

CUresult Memory::AllocatePitch(CUdeviceptr* address, size_t* pitch, size_t width, size_t height,
                               unsigned element) {
  const CUresult allowed = CheckCaller();
  if (allowed != CUDA_SUCCESS) return allowed;
  const bool known = element == 4 || element == 8 || element == 16;
  if (address == nullptr || pitch == nullptr || !known) return CUDA_ERROR_INVALID_VALUE;
  if (width == 0 || height == 0 || width >> 47 != 0) return CUDA_ERROR_INVALID_VALUE;
  const uint64_t row = RoundUp(width, kRowAlignment);
  size_t bytes = 0;
  if (__builtin_mul_overflow(row, height, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const CUresult result = Allocate(address, bytes);
  if (result == CUDA_SUCCESS) *pitch = row;
  return result;
}

// What the owner's context does may still use the memory: cuMemFree waits for it.
CUresult Memory::Synchronize(const Block& block) const {
  const ScopedContext context(block.context);
  if (context.result() != CUDA_SUCCESS) return context.result();
  return Driver().cuCtxSynchronize();
}

void Memory::Finish(const Block& block) {
  std::vector<Discarded> discarded(1);
  {
    auto lock = Lock();
    block.arena->Free(block.base, block.occupied, &discarded[0].extents);
    discarded[0].arena = block.arena;
  }
  Discard(std::move(discarded));
}

// The driver knows no plain memory at an address of ours; what it answers for another address is its answer.
CUresult Memory::Free(CUdeviceptr address) {
  const CUresult refused = Driver().cuMemFree_v2(address);
  if (refused != CUDA_ERROR_INVALID_VALUE) return refused;
  SettleDeferredFrees();
  std::optional<Block> block;
  {
    auto lock = Lock();
    block = TakeLocked(address, BlockKind::kPlain);
    if (block && CapturesInProgress()) {
      // Waiting for the context would spoil the capture: the memory stays until that is over.
      deferred_.push_back({*std::move(block), nullptr});
      return CUDA_SUCCESS;
    }
  }
  if (!block) return HostMemory::Get().FreeManaged(address, Pools::Get().Free(address, refused));
  const CUresult synchronized = Synchronize(*block);
  if (synchronized == CUDA_SUCCESS) {
    Finish(*block);
    return CUDA_SUCCESS;
  }
  auto lock = Lock();
  InsertLocked(*std::move(block), false);
  return synchronized;
}

void Memory::FreeAfter(Block block, CUevent event) {
  auto lock = Lock();
  deferred_.push_back({std::move(block), event});
}

void Memory::SettleDeferredFrees() {
  std::vector<Deferred> waiting;
  {
    auto lock = Lock();
    if (deferred_.empty()) return;
    waiting.swap(deferred_);
  }
  for (Deferred& one : waiting) {
    const bool captures = one.event == nullptr && CapturesInProgress();
    const bool done = one.event != nullptr ? Events::Get().Passed(one.event)
                                           : !captures && Synchronize(one.block) == CUDA_SUCCESS;
    if (done) {
      if (one.event != nullptr) Events::Get().Return(one.block.context, one.event);
      Finish(one.block);
      continue;
    }
    auto lock = Lock();
    deferred_.push_back(std::move(one));
  }
}

void Memory::InsertLocked(Block block, bool trusts_notes) {
  const uint64_t base = block.base;
  ActiveMemory::Get().AllocationMade(base, block.size, trusts_notes);
  const bool inserted = blocks_.emplace(base, std::move(block)).second;
  STASIS_CHECK(inserted);
}

std::optional<Block> Memory::TakeLocked(CUdeviceptr address, BlockKind kind) {
  auto found = blocks_.find(address);
  if (found == blocks_.end() || found->second.kind != kind) return std::nullopt;
  std::optional<Block> block(std::move(found->second));
  blocks_.erase(found);
  ActiveMemory::Get().AllocationGone(block->base);
  return block;
}

std::vector<Block> Memory::TakeAllLocked(const std::function<bool(const Block&)>& which) {
  std::vector<Block> taken;
  for (auto it = blocks_.begin(); it != blocks_.end();) {
    auto current = it++;
    if (!which(current->second)) continue;
    taken.push_back(std::move(current->second));
    blocks_.erase(current);
    ActiveMemory::Get().AllocationGone(taken.back().base);
  }
  return taken;
}

std::optional<Block> Memory::Find(CUdeviceptr address) const {
  auto lock = Lock();
  auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return std::nullopt;
  const Block& block = std::prev(next)->second;
  return address < block.end() ? std::optional<Block>(block) : std::nullopt;
}

void Memory::NoteSyncMemops(CUdeviceptr address, bool on) {
  auto lock = Lock();
  auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return;
  Block& block = std::prev(next)->second;
  if (address >= block.end()) return;
  block.sync_memops = on;
  (void)TellSyncMemopsLocked(block);
  // Neighbours that have it share a mapping with the block.
  if (!on) (void)RestoreSyncMemopsLocked();
}

Status Memory::RestoreSyncMemops() const {
  auto lock = Lock();
  return RestoreSyncMemopsLocked();
}

Status Memory::RestoreSyncMemopsLocked() const {
  for (const auto& [base, block] : blocks_)
    if (block.sync_memops) RETURN_IF_ERROR(TellSyncMemopsLocked(block));
  return {};
}

Status Memory::TellSyncMemopsLocked(const Block& block) {
  const ScopedContext scope(block.context);
  RETURN_IF_ERROR(DriverStatus(scope.result(), "cuCtxPushCurrent"));
  for (const Extent* extent : block.arena->ExtentsOf(block.base, block.size))
    RETURN_IF_ERROR(TellSyncMemops(std::max(extent->address, block.base), block.sync_memops));
  return {};
}

bool Memory::Covers(CUdeviceptr address) const {
  auto lock = Lock();
  return std::any_of(arenas_.begin(), arenas_.end(),
                     [address](const auto& entry) { return entry.second->Covers(address); }) ||
         Pools::Get().CoversLocked(address);
}

std::optional<uint64_t> Memory::ShareKeyOf(CUdeviceptr address) {
  auto lock = Lock();
  auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return std::nullopt;
  Block& block = std::prev(next)->second;
  if (address >= block.end() || block.kind != BlockKind::kPlain) return std::nullopt;
  if (block.share_key == 0) block.share_key = NewShareKey();
  return block.share_key;
}

Result<SharedMemory> Memory::Give(uint64_t share_key) {
  auto lock = Lock();
  auto found = std::find_if(blocks_.begin(), blocks_.end(),
                            [share_key](const auto& entry) { return entry.second.share_key == share_key; });
  if (found == blocks_.end()) return Status(StatusCode::kNotFound, "the allocation has been freed");
  const Block& block = found->second;
  SharedMemory memory;
  memory.size = block.size;
  const std::vector<Extent*> extents = block.arena->ExtentsOf(block.base, block.size);
  memory.offset = block.base - extents.front()->address;
  for (Extent* extent : extents) {
    if (extent->share == 0) extent->share = NewShareKey();
    memory.pieces.push_back({extent->share, extent->size});
    ASSIGN_OR_RETURN(Fd fd, ExportHandle(extent->handle));
    memory.fds.push_back(std::move(fd));
  }
  return memory;
}

uint64_t Memory::FreeBytes(int device) const {
  auto lock = Lock();
  uint64_t bytes = 0;
  for (const auto& [context, arena] : arenas_)
    if (arena->device() == device) bytes += arena->FreePageBytes();
  return bytes;
}

void Memory::Discard(std::vector<Discarded> discarded) {
  for (Discarded& one : discarded) {
    for (Extent& extent : one.extents) {
      DiscardExtent(extent);
      auto lock = Lock();
      one.arena->Discarded(extent);
    }
  }
}

void Memory::Reclaim(int device) {
  Pools::Get().Reclaim(device);
  std::vector<Discarded> discarded;
  {
    auto lock = Lock();
    for (const auto& [context, arena] : arenas_) {
      if (arena->device() != device) continue;
      discarded.push_back({arena, {}});
      arena->TakeFree(&discarded.back().extents);
    }
  }
  Discard(std::move(discarded));
}

void Memory::ContextGone(CUcontext context) {
  Pools::Get().ContextGone(context);
  Events::Get().ContextGone(context);
  OpenedMemory::Get().ContextGone(context);
  HostMemory::Get().ContextGone(context);
  std::vector<Discarded> discarded;
  std::vector<Block> blocks;  // their arenas must not die under the lock
  {
    auto lock = Lock();
    blocks = TakeAllLocked([context](const Block& block) {
      return block.kind == BlockKind::kPlain && block.context == context;
    });
    // Their context has passed them. A block of another context is freed all the same.
    auto first = std::stable_partition(deferred_.begin(), deferred_.end(), [context](const Deferred& one) {
      return one.block.context != context;
    });
    for (auto it = first; it != deferred_.end(); ++it) blocks.push_back(std::move(it->block));
    deferred_.erase(first, deferred_.end());
    std::erase_if(peers_,
                  [context](const PeerPair& pair) { return pair.user == context || pair.owner == context; });
    auto found = arenas_.find(context);
    if (found != arenas_.end()) {
      discarded.push_back({found->second, {}});
      found->second->TakeAll(&discarded.back().extents);
      arenas_.erase(found);
    }
  }
  Discard(std::move(discarded));
  for (const Block& block : blocks) Finish(block);  // nothing to do for those of the arena that has gone
}

CUresult Memory::ApplyRights(const std::shared_ptr<Arena>& arena, const std::vector<Extent>& extents,
                             int device, CUmemAccess_flags flags) {
  CUresult result = CUDA_SUCCESS;
  for (const Extent& extent : extents) {
    const CUresult one = GrantAccess(extent, {{device, flags}});
    if (one == CUDA_SUCCESS) continue;
    auto lock = Lock();
    // An extent that went away in between needs no rights.
    if (arena->HasExtent(extent.id, extent.address)) result = one;
  }
  return result;
}

CUresult Memory::EnablePeer(CUcontext user, int user_device, CUcontext owner) {
  std::shared_ptr<Arena> arena;
  std::vector<Extent> extents;
  {
    auto lock = Lock();
    peers_.push_back({user, owner, user_device});
    auto found = arenas_.find(owner);
    if (found == arenas_.end()) return CUDA_SUCCESS;
    arena = found->second;
    extents = arena->SetRights(user_device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  }
  const CUresult result = ApplyRights(arena, extents, user_device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  if (result != CUDA_SUCCESS) DisablePeer(user, owner);
  return result;
}

void Memory::DisablePeer(CUcontext user, CUcontext owner) {
  std::shared_ptr<Arena> arena;
  std::vector<Extent> extents;
  int device = -1;
  {
    auto lock = Lock();
    auto pair = std::find_if(peers_.begin(), peers_.end(),
                             [&](const PeerPair& one) { return one.user == user && one.owner == owner; });
    if (pair == peers_.end()) return;
    device = pair->user_device;
    peers_.erase(pair);
    // Another context on the same device may have the same right.
    const bool still = std::any_of(peers_.begin(), peers_.end(), [&](const PeerPair& one) {
      return one.owner == owner && one.user_device == device;
    });
    auto found = arenas_.find(owner);
    if (still || found == arenas_.end() || found->second->device() == device) return;
    arena = found->second;
    extents = arena->SetRights(device, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  }
  ApplyRights(arena, extents, device, CU_MEM_ACCESS_FLAGS_PROT_NONE);
}

std::vector<Memory::PeerPair> Memory::PeerPairs() const {
  auto lock = Lock();
  return peers_;
}

std::vector<std::shared_ptr<Arena>> Memory::ContextArenas() const {
  auto lock = Lock();
  std::vector<std::shared_ptr<Arena>> out;
  for (const auto& [context, arena] : arenas_) out.push_back(arena);
  return out;
}

}  // namespace stasis::vmm
