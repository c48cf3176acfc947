#include "vmm/pools.h"

#include <algorithm>
#include <utility>

#include "vmm/device_map.h"
#include "vmm/events.h"
#include "vmm/real_driver.h"

namespace stasis::vmm {
namespace {

CUmemLocation PhysicalLocation(CUmemLocation location) {
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) location.id = ToPhysicalDevice(location.id);
  return location;
}

// A block freed in a stream is taken again by that stream when not more than half of it would lie idle.
bool FitsSnugly(uint64_t block, uint64_t size) { return size <= block && block / 2 <= size; }

}  // namespace

CUresult FindStream(CUstream stream, StreamPlace* place) {
  place->stream = stream;
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  CUresult result = Driver().cuStreamIsCapturing(stream, &capture);
  if (result != CUDA_SUCCESS) return result;
  place->capturing = capture != CU_STREAM_CAPTURE_STATUS_NONE;
  if (place->capturing) return CUDA_SUCCESS;
  result = Driver().cuStreamGetId(stream, &place->id);
  CUcontext context = nullptr;
  if (result == CUDA_SUCCESS) result = Driver().cuStreamGetCtx(stream, &context);
  if (result != CUDA_SUCCESS) return result;
  place->context = VisibleContext(context);
  const ScopedContext scope(place->context);
  CUdevice device = -1;
  result = scope.result() == CUDA_SUCCESS ? Driver().cuCtxGetDevice(&device) : scope.result();
  place->device = ToVirtualDevice(device);
  return result;
}

Pools& Pools::Get() {
  static Pools* const pools = new Pools;  // outlives every destructor
  return *pools;
}

Pools::PoolPtr Pools::FindLocked(CUmemoryPool pool) const {
  auto found = pools_.find(pool);
  return found == pools_.end() ? nullptr : found->second;
}

Pools::PoolPtr Pools::Find(CUmemoryPool pool) const {
  auto lock = Memory::Get().Lock();
  PoolPtr found = FindLocked(pool);
  return found == nullptr || found->destroyed ? nullptr : found;
}

std::vector<Pools::PoolPtr> Pools::All() const {
  auto lock = Memory::Get().Lock();
  std::vector<PoolPtr> all;
  for (const auto& [handle, pool] : pools_) all.push_back(pool);
  return all;
}

CUresult Pools::Create(CUmemoryPool* out, const CUmemPoolProps* props) {
  if (out == nullptr || props == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUmemPoolProps physical = *props;
  physical.location = PhysicalLocation(props->location);
  auto pool = std::make_shared<Pool>();
  const CUresult result = Driver().cuMemPoolCreate(&pool->real, &physical);
  if (result != CUDA_SUCCESS) return result;
  pool->props = *props;
  pool->device = props->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? props->location.id : -1;
  pool->forwarded = pool->device < 0 || props->handleTypes != CU_MEM_HANDLE_TYPE_NONE;
  if (!pool->forwarded) pool->arena = std::make_shared<Arena>(pool->device, true);
  auto lock = Memory::Get().Lock();
  // The driver may give a handle again that the program knows for a pool of an earlier driver.
  pool->visible = pools_.count(pool->real) == 0 ? pool->real : reinterpret_cast<CUmemoryPool>(pool.get());
  *out = pool->visible;
  pools_.emplace(pool->visible, std::move(pool));
  return CUDA_SUCCESS;
}

CUresult Pools::Destroy(CUmemoryPool handle) {
  PoolPtr pool = Find(handle);
  const CUresult result = Driver().cuMemPoolDestroy(pool == nullptr ? handle : pool->real);
  if (result != CUDA_SUCCESS || pool == nullptr) return result;
  {
    auto lock = Memory::Get().Lock();
    pool->destroyed = true;
    pool->real = nullptr;
    for (auto& [device, current] : current_)
      if (current == handle) current = defaults_.at(device);
  }
  Trim(pool, 0);
  return CUDA_SUCCESS;
}

CUresult Pools::DefaultOf(int device, PoolPtr* out) {
  {
    auto lock = Memory::Get().Lock();
    auto found = defaults_.find(device);
    if (found != defaults_.end()) {
      *out = pools_.at(found->second);
      return CUDA_SUCCESS;
    }
  }
  auto pool = std::make_shared<Pool>();
  const CUresult result = Driver().cuDeviceGetDefaultMemPool(&pool->real, ToPhysicalDevice(device));
  if (result != CUDA_SUCCESS) return result;
  pool->device = device;
  pool->is_default = true;
  pool->arena = std::make_shared<Arena>(device, true);
  auto lock = Memory::Get().Lock();
  pool->visible = pools_.count(pool->real) == 0 ? pool->real : reinterpret_cast<CUmemoryPool>(pool.get());
  auto [entry, is_new] = defaults_.emplace(device, pool->visible);
  if (is_new) {
    current_[device] = pool->visible;
    pools_.emplace(pool->visible, pool);
  }
  *out = pools_.at(entry->second);
  return CUDA_SUCCESS;
}

CUresult Pools::CurrentOf(int device, PoolPtr* out) {
  const CUresult result = DefaultOf(device, out);
  if (result != CUDA_SUCCESS) return result;
  auto lock = Memory::Get().Lock();
  *out = pools_.at(current_.at(device));
  return CUDA_SUCCESS;
}

CUresult Pools::GetDefault(CUmemoryPool* out, int device) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  PoolPtr pool;
  const CUresult result = DefaultOf(device, &pool);
  if (result == CUDA_SUCCESS) *out = pool->visible;
  return result;
}

CUresult Pools::GetCurrent(CUmemoryPool* out, int device) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  PoolPtr pool;
  const CUresult result = CurrentOf(device, &pool);
  if (result == CUDA_SUCCESS) *out = pool->visible;
  return result;
}

CUresult Pools::SetCurrent(int device, CUmemoryPool handle) {
  PoolPtr current;
  CUresult result = DefaultOf(device, &current);
  if (result != CUDA_SUCCESS) return result;
  result = Driver().cuDeviceSetMemPool(ToPhysicalDevice(device), ToReal(handle));
  if (result != CUDA_SUCCESS) return result;
  auto lock = Memory::Get().Lock();
  current_[device] = handle;
  return CUDA_SUCCESS;
}

CUmemoryPool Pools::ToReal(CUmemoryPool visible) const {
  const PoolPtr pool = Find(visible);
  return pool == nullptr ? visible : pool->real;
}

CUmemoryPool Pools::ToVisible(CUmemoryPool real) const {
  if (real == nullptr) return real;
  for (const PoolPtr& pool : All())
    if (pool->real == real) return pool->visible;
  return real;
}

CUresult Pools::Store(Pool& pool, CUmemPool_attribute attribute, const void* value) {
  const int flag = *static_cast<const int*>(value) != 0;
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      pool.follow_events = flag;
      break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      pool.opportunistic = flag;
      break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      pool.internal_dependencies = flag;
      break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      pool.release_threshold = *static_cast<const cuuint64_t*>(value);
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      pool.reserved.high = pool.reserved.current;
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      pool.used.high = pool.used.current;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult Pools::Load(const Pool& pool, CUmemPool_attribute attribute, void* value) {
  int* const flag = static_cast<int*>(value);
  cuuint64_t* const number = static_cast<cuuint64_t*>(value);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      *flag = pool.follow_events;
      break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      *flag = pool.opportunistic;
      break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      *flag = pool.internal_dependencies;
      break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      *number = pool.release_threshold;
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      *number = pool.reserved.current;
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      *number = pool.reserved.high;
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      *number = pool.used.current;
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      *number = pool.used.high;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

// The driver checks attribute and value, and its pool has the same settings as ours.
CUresult Pools::SetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  const PoolPtr pool = Find(handle);
  const CUresult result =
      Driver().cuMemPoolSetAttribute(pool == nullptr ? handle : pool->real, attribute, value);
  if (result != CUDA_SUCCESS || pool == nullptr || pool->forwarded) return result;
  auto lock = Memory::Get().Lock();
  return Store(*pool, attribute, value);
}

CUresult Pools::GetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  const PoolPtr pool = Find(handle);
  const CUresult result =
      Driver().cuMemPoolGetAttribute(pool == nullptr ? handle : pool->real, attribute, value);
  if (result != CUDA_SUCCESS || pool == nullptr || pool->forwarded) return result;
  Trim(pool, pool->release_threshold);
  auto lock = Memory::Get().Lock();
  // What the driver knows and we do not is its answer.
  Load(*pool, attribute, value);
  return CUDA_SUCCESS;
}

CUresult Pools::SetAccess(CUmemoryPool handle, const CUmemAccessDesc* descriptors, size_t count) {
  const PoolPtr pool = Find(handle);
  if (descriptors == nullptr || count == 0)
    return Driver().cuMemPoolSetAccess(pool == nullptr ? handle : pool->real, descriptors, count);
  std::vector<CUmemAccessDesc> physical(descriptors, descriptors + count);
  for (CUmemAccessDesc& one : physical) one.location = PhysicalLocation(one.location);
  CUresult result =
      Driver().cuMemPoolSetAccess(pool == nullptr ? handle : pool->real, physical.data(), count);
  if (result != CUDA_SUCCESS || pool == nullptr || pool->forwarded) return result;
  for (size_t i = 0; i < count && result == CUDA_SUCCESS; ++i) {
    std::vector<Extent> extents;
    {
      auto lock = Memory::Get().Lock();
      extents = pool->arena->SetRights(descriptors[i].location.id, descriptors[i].flags);
    }
    result =
        Memory::Get().ApplyRights(pool->arena, extents, descriptors[i].location.id, descriptors[i].flags);
  }
  return result;
}

CUresult Pools::GetAccess(CUmemAccess_flags* flags, CUmemoryPool handle, CUmemLocation* location) {
  if (location == nullptr) return Driver().cuMemPoolGetAccess(flags, ToReal(handle), location);
  CUmemLocation physical = PhysicalLocation(*location);
  return Driver().cuMemPoolGetAccess(flags, ToReal(handle), &physical);
}

CUresult Pools::TrimTo(CUmemoryPool handle, size_t keep) {
  const PoolPtr pool = Find(handle);
  const CUresult result = Driver().cuMemPoolTrimTo(pool == nullptr ? handle : pool->real, keep);
  if (result == CUDA_SUCCESS && pool != nullptr) Trim(pool, keep);
  return result;
}

bool Pools::CoversLocked(CUdeviceptr address) const {
  return std::any_of(pools_.begin(), pools_.end(), [address](const auto& entry) {
    return entry.second->arena != nullptr && entry.second->arena->Covers(address);
  });
}

// --- Pending frees.

void Pools::GiveBackLocked(Pool& pool, const Pending& pending) {
  if (pending.event != nullptr) Events::Get().Return(pending.context, pending.event);
  std::vector<Extent> none;  // a pool's arena keeps what is free
  pool.arena->Free(pending.base, pending.occupied, &none);
  pool.used.Set(pool.used.current - pending.occupied);
}

void Pools::FoldLocked(Pool& pool, bool all) {
  for (auto it = pool.pending.begin(); it != pool.pending.end();) {
    auto current = it++;
    if (!all && current->event != nullptr && !Events::Get().Passed(current->event)) continue;
    GiveBackLocked(pool, *current);
    pool.pending.erase(current);
  }
}

bool Pools::ReuseOfStreamLocked(Pool& pool, uint64_t size, unsigned long long stream_id, uint64_t* base,
                                uint64_t* occupied) {
  auto best = pool.pending.end();
  for (auto it = pool.pending.begin(); it != pool.pending.end(); ++it) {
    if (it->stream_id != stream_id || !FitsSnugly(it->occupied, size)) continue;
    if (best == pool.pending.end() || it->occupied < best->occupied) best = it;
  }
  if (best == pool.pending.end()) return false;
  if (best->event != nullptr) Events::Get().Return(best->context, best->event);
  *base = best->base;
  *occupied = best->occupied;
  pool.pending.erase(best);
  return true;
}

// The stream is made to wait for the stream that frees the block (REUSE_ALLOW_INTERNAL_DEPENDENCIES).
bool Pools::ReuseByWaitingLocked(Pool& pool, uint64_t size, const StreamPlace& place, uint64_t* base,
                                 uint64_t* occupied) {
  if (!pool.internal_dependencies) return false;
  auto fit = std::find_if(pool.pending.begin(), pool.pending.end(), [&](const Pending& pending) {
    return pending.occupied >= size && pending.event != nullptr;
  });
  if (fit == pool.pending.end()) return false;
  if (Driver().cuStreamWaitEvent(place.stream, fit->event, 0) != CUDA_SUCCESS) return false;
  Events::Get().Return(fit->context, fit->event);
  *base = fit->base;
  *occupied = fit->occupied;
  pool.pending.erase(fit);
  return true;
}

CUresult Pools::TakeLocked(Pool& pool, size_t bytes, const StreamPlace& place, uint64_t* base,
                           uint64_t* occupied, std::vector<Extent>* discarded) {
  const uint64_t size = Arena::Capacity(bytes);
  if (ReuseOfStreamLocked(pool, size, place.id, base, occupied)) return CUDA_SUCCESS;
  bool found = pool.arena->AllocateMapped(bytes, base);
  if (!found && pool.opportunistic) {
    FoldLocked(pool, false);
    found = pool.arena->AllocateMapped(bytes, base);
  }
  CUresult result = CUDA_SUCCESS;
  if (!found) {
    const uint64_t limit = pool.props.maxSize;
    const bool over = limit != 0 && pool.arena->mapped_bytes() + RoundUp(size, kPage) > limit;
    result = over ? CUDA_ERROR_OUT_OF_MEMORY : pool.arena->Allocate(bytes, base, discarded);
    pool.reserved.Set(pool.arena->mapped_bytes());
  }
  if (result == CUDA_ERROR_OUT_OF_MEMORY && ReuseByWaitingLocked(pool, size, place, base, occupied))
    return CUDA_SUCCESS;
  if (result != CUDA_SUCCESS) return result;
  *occupied = size;
  pool.used.Set(pool.used.current + size);
  return CUDA_SUCCESS;
}

CUresult Pools::AllocateOnce(const PoolPtr& pool, size_t bytes, const StreamPlace& place,
                             CUdeviceptr* address) {
  std::vector<Discarded> discarded(1);
  discarded[0].arena = pool->arena;
  CUresult result;
  {
    auto lock = Memory::Get().Lock();
    Block block;
    result = TakeLocked(*pool, bytes, place, &block.base, &block.occupied, &discarded[0].extents);
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
    GiveBackLocked(*pool, {block.base, block.occupied, 0, nullptr, nullptr});
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

// --- Giving memory back.

void Pools::Trim(const PoolPtr& pool, uint64_t keep, bool all_passed) {
  std::vector<Discarded> discarded(1);
  PoolPtr dead;
  {
    auto lock = Memory::Get().Lock();
    if (pool->arena == nullptr) {
      if (pool->destroyed) pools_.erase(pool->visible);
      return;
    }
    FoldLocked(*pool, all_passed);
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
      for (Pending& pending : pool->pending)
        if (pending.context == context) pending.event = nullptr;  // gone with its context, and so passed
  }
  for (const Block& block : blocks) EndBlock(block);
  TrimToThresholds();
}

// --- The pause.

std::vector<std::shared_ptr<Arena>> Pools::Arenas() const {
  std::vector<std::shared_ptr<Arena>> arenas;
  for (const PoolPtr& pool : All())
    if (pool->arena != nullptr) arenas.push_back(pool->arena);
  return arenas;
}

void Pools::Settle() {
  for (const PoolPtr& pool : All()) Trim(pool, pool->destroyed ? 0 : pool->release_threshold, true);
}

Status Pools::ReleaseObjects() {
  Status first;
  for (const PoolPtr& pool : All()) {
    if (pool->real == nullptr) continue;
    const CUresult result = pool->is_default ? CUDA_SUCCESS : Driver().cuMemPoolDestroy(pool->real);
    pool->real = nullptr;
    if (first.ok()) first = DriverStatus(result, "cuMemPoolDestroy");
  }
  return first;
}

Status Pools::RebuildOne(Pool& pool) {
  if (pool.is_default)
    return DriverStatus(Driver().cuDeviceGetDefaultMemPool(&pool.real, ToPhysicalDevice(pool.device)),
                        "cuDeviceGetDefaultMemPool");
  CUmemPoolProps props = pool.props;
  props.location = PhysicalLocation(props.location);
  RETURN_IF_ERROR(DriverStatus(Driver().cuMemPoolCreate(&pool.real, &props), "cuMemPoolCreate"));
  return {};
}

Status Pools::RebuildObjects() {
  for (const PoolPtr& pool : All()) {
    if (pool->destroyed || pool->forwarded || pool->real != nullptr) continue;
    RETURN_IF_ERROR(RebuildOne(*pool));
    std::vector<CUmemAccessDesc> rights;
    for (const auto& [device, flags] : pool->arena->rights()) {
      CUmemAccessDesc one{};
      one.location = {CU_MEM_LOCATION_TYPE_DEVICE, ToPhysicalDevice(device)};
      one.flags = flags;
      if (device != pool->device) rights.push_back(one);
    }
    if (!rights.empty())
      RETURN_IF_ERROR(DriverStatus(Driver().cuMemPoolSetAccess(pool->real, rights.data(), rights.size()),
                                   "cuMemPoolSetAccess"));
  }
  for (const auto& [device, handle] : current_) {
    RETURN_IF_ERROR(
        DriverStatus(Driver().cuDeviceSetMemPool(ToPhysicalDevice(device), pools_.at(handle)->real),
                     "cuDeviceSetMemPool"));
  }
  return {};
}

}  // namespace stasis::vmm
