#include "softgpu/driver/pool.h"

#include <algorithm>
#include <utility>

namespace softgpu {
namespace {

// A block freed in a stream is taken again by the same stream when not more than half of it would lie idle.
bool FitsSnugly(uint64_t block, uint64_t bytes) { return bytes <= block && block / 2 <= bytes; }

bool OnHost(const CUmemLocation& location) {
  return location.type == CU_MEM_LOCATION_TYPE_HOST || location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

}  // namespace

MemPool::MemPool(MemoryManager& memory, int device, const CUmemPoolProps& props, bool is_default)
    : memory_(memory), device_(device), props_(props), is_default_(is_default) {
  access_.assign(static_cast<size_t>(memory.devices()), CU_MEM_ACCESS_FLAGS_PROT_NONE);
  if (device >= 0) access_[device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

MemPool::~MemPool() {
  for (const auto& [base, context] : live_) memory_.TakeBlock(base, BlockKind::kPool);
  for (const auto& [home, region] : regions_) {
    for (int device = 0; device < memory_.devices(); ++device) {
      memory_.SetDeviceAccess(home, region->size(), device, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    }
  }
}

CUresult MemPool::Allocate(CUcontext context, uint64_t stream, uint64_t bytes, CUdeviceptr* address) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes >> 47 != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      uint64_t base = TakeLocked(stream, bytes);
      if (base != 0) {
        PublishLocked(context, base, bytes);
        *address = base;
        return CUDA_SUCCESS;
      }
    }
    CUresult grown = Grow(bytes);
    if (grown != CUDA_SUCCESS) return grown;
  }
}

uint64_t MemPool::TakeLocked(uint64_t stream, uint64_t bytes) {
  auto best = pending_.end();
  for (auto it = pending_.begin(); it != pending_.end(); ++it) {
    const PendingFree& freed = **it;
    if (freed.stream != stream || !FitsSnugly(freed.size, bytes)) continue;
    if (best == pending_.end() || freed.size < (*best)->size) best = it;
  }
  if (best != pending_.end()) {
    uint64_t base = (*best)->base;
    (*best)->reused = true;
    pending_.erase(best);
    return base;
  }
  std::optional<uint64_t> base = space_.Allocate(bytes);
  if (!base) return 0;
  used_.Add(space_.BlockSize(*base));
  return *base;
}

void MemPool::PublishLocked(CUcontext context, uint64_t base, uint64_t bytes) {
  Block block{.kind = BlockKind::kPool, .base = base, .size = bytes, .context = context, .device = device_};
  block.pool = handle();
  block.physical = regions_.at(space_.RegionOf(base)->first);
  live_[base] = context;
  memory_.AddBlock(std::move(block), {});
}

CUresult MemPool::Grow(uint64_t bytes) {
  uint64_t size = RoundUp(bytes, kLargePage);
  {
    std::lock_guard lock(mutex_);
    uint64_t total = reserved_.current + growing_ + size;
    if (props_.maxSize != 0 && total > props_.maxSize) return CUDA_ERROR_OUT_OF_MEMORY;
    growing_ += size;
  }
  stasis::Result<std::shared_ptr<Physical>> region = Physical::Create(memory_.source(), device_, size);
  std::lock_guard lock(mutex_);
  growing_ -= size;
  if (!region.ok()) return MemoryError(region.status());
  uint64_t home = (*region)->home();
  for (size_t device = 0; device < access_.size(); ++device) {
    memory_.SetDeviceAccess(home, size, static_cast<int>(device), access_[device]);
  }
  space_.AddRegion(home, size);
  reserved_.Add(size);
  regions_.emplace(home, *std::move(region));
  return CUDA_SUCCESS;
}

std::shared_ptr<MemPool::PendingFree> MemPool::BeginFree(uint64_t base, uint64_t stream) {
  std::lock_guard lock(mutex_);
  if (live_.erase(base) == 0) return nullptr;
  memory_.TakeBlock(base, BlockKind::kPool);
  auto pending = std::make_shared<PendingFree>();
  pending->base = base;
  pending->size = space_.BlockSize(base);
  pending->stream = stream;
  pending_.push_back(pending);
  return pending;
}

void MemPool::FreeDone(const std::shared_ptr<PendingFree>& pending) {
  std::lock_guard lock(mutex_);
  pending->done = true;
  if (pending->reused || !opportunistic_) return;
  pending_.remove(pending);
  ReturnLocked(*pending);
}

void MemPool::ReturnLocked(const PendingFree& freed) {
  used_.current -= freed.size;
  space_.Free(freed.base);
}

void MemPool::RemoveContext(CUcontext context) {
  std::vector<uint64_t> bases;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [base, owner] : live_) {
      if (owner == context) bases.push_back(base);
    }
  }
  for (uint64_t base : bases) {
    std::shared_ptr<PendingFree> freed = BeginFree(base, 0);
    if (freed != nullptr) FreeDone(freed);
  }
  OnSynchronize();
}

std::vector<std::shared_ptr<Physical>> MemPool::TrimLocked(uint64_t keep) {
  std::vector<std::shared_ptr<Physical>> dying;
  for (auto it = regions_.begin(); it != regions_.end() && reserved_.current > keep;) {
    uint64_t home = it->first, size = it->second->size();
    auto block = space_.blocks().lower_bound(home);
    if (block != space_.blocks().end() && block->first < home + size) {
      ++it;
      continue;
    }
    for (int device = 0; device < memory_.devices(); ++device) {
      memory_.SetDeviceAccess(home, size, device, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    }
    space_.RemoveRegion(home);
    reserved_.current -= size;
    dying.push_back(std::move(it->second));
    it = regions_.erase(it);
  }
  return dying;
}

void MemPool::TrimTo(uint64_t keep) {
  std::vector<std::shared_ptr<Physical>> dying;
  std::lock_guard lock(mutex_);
  dying = TrimLocked(keep);
}

void MemPool::OnSynchronize() {
  std::vector<std::shared_ptr<Physical>> dying;
  std::lock_guard lock(mutex_);
  for (auto it = pending_.begin(); it != pending_.end();) {
    if (!(*it)->done) {
      ++it;
      continue;
    }
    ReturnLocked(**it);
    it = pending_.erase(it);
  }
  dying = TrimLocked(release_threshold_);
}

bool MemPool::idle() const {
  std::lock_guard lock(mutex_);
  return live_.empty() && pending_.empty();
}

CUresult MemPool::SetAttribute(CUmemPool_attribute attribute, const void* value) {
  std::lock_guard lock(mutex_);
  int flag = *static_cast<const int*>(value);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      follow_events_ = flag != 0;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      opportunistic_ = flag != 0;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      internal_dependencies_ = flag != 0;
      return CUDA_SUCCESS;
    default:
      break;
  }
  uint64_t number = *static_cast<const cuuint64_t*>(value);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      release_threshold_ = number;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: {
      if (number != 0) return CUDA_ERROR_INVALID_VALUE;
      Counter& counter = attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH ? used_ : reserved_;
      counter.high = counter.current;
      return CUDA_SUCCESS;
    }
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult MemPool::GetAttribute(CUmemPool_attribute attribute, void* value) const {
  std::lock_guard lock(mutex_);
  int* flag = static_cast<int*>(value);
  cuuint64_t* number = static_cast<cuuint64_t*>(value);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      *flag = follow_events_;
      break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      *flag = opportunistic_;
      break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      *flag = internal_dependencies_;
      break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      *number = release_threshold_;
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      *number = reserved_.current;
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      *number = reserved_.high;
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      *number = used_.current;
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      *number = used_.high;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult MemPool::SetAccess(const CUmemAccessDesc* desc, size_t count) {
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < count; ++i) {
    if (desc[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    int device = desc[i].location.id;
    if (device < 0 || device >= memory_.devices()) return CUDA_ERROR_INVALID_DEVICE;
    // The device that has the memory keeps its access (cuMemPoolSetAccess).
    if (device == device_ && desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; ++i) {
    int device = desc[i].location.id;
    access_[device] = desc[i].flags;
    for (const auto& [home, region] : regions_) {
      memory_.SetDeviceAccess(home, region->size(), device, desc[i].flags);
    }
  }
  return CUDA_SUCCESS;
}

CUresult MemPool::GetAccess(const CUmemLocation& location, CUmemAccess_flags* flags) const {
  std::lock_guard lock(mutex_);
  if (location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (location.id < 0 || location.id >= memory_.devices()) return CUDA_ERROR_INVALID_DEVICE;
  *flags = access_[location.id];
  return CUDA_SUCCESS;
}

PoolTable::PoolTable(MemoryManager& memory) : memory_(memory) {
  for (int device = 0; device < memory.devices(); ++device) {
    CUmemPoolProps props{};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
    defaults_.push_back(std::make_shared<MemPool>(memory, device, props, true));
    current_.push_back(defaults_.back()->handle());
    pools_.emplace(current_.back(), defaults_.back());
  }
}

CUresult PoolTable::Create(const CUmemPoolProps& props, CUmemoryPool* out) {
  CUmemAllocationProp prop{};
  prop.type = props.allocType;
  prop.location = props.location;
  prop.requestedHandleTypes = props.handleTypes;
  CUresult valid = CheckAllocationProp(prop, memory_.devices());
  if (valid != CUDA_SUCCESS) return valid;
  if (props.win32SecurityAttributes != nullptr || props.usage != 0) return CUDA_ERROR_INVALID_VALUE;
  int device = OnHost(props.location) ? kHostDevice : props.location.id;
  auto pool = std::make_shared<MemPool>(memory_, device, props, false);
  std::lock_guard lock(mutex_);
  *out = pool->handle();
  pools_.emplace(*out, std::move(pool));
  return CUDA_SUCCESS;
}

CUresult PoolTable::Destroy(CUmemoryPool pool) {
  std::shared_ptr<MemPool> found;
  std::lock_guard lock(mutex_);
  auto it = pools_.find(pool);
  if (it == pools_.end() || it->second->is_default()) return CUDA_ERROR_INVALID_VALUE;
  found = std::move(it->second);
  pools_.erase(it);
  for (size_t device = 0; device < current_.size(); ++device) {
    if (current_[device] == pool) current_[device] = defaults_[device]->handle();
  }
  if (!found->idle()) destroyed_.emplace(pool, found);
  return CUDA_SUCCESS;
}

std::shared_ptr<MemPool> PoolTable::Find(CUmemoryPool pool) const {
  std::lock_guard lock(mutex_);
  auto found = pools_.find(pool);
  return found == pools_.end() ? nullptr : found->second;
}

std::shared_ptr<MemPool> PoolTable::FindOwner(CUmemoryPool pool) const {
  std::shared_ptr<MemPool> live = Find(pool);
  if (live != nullptr) return live;
  std::lock_guard lock(mutex_);
  auto found = destroyed_.find(pool);
  return found == destroyed_.end() ? nullptr : found->second;
}

std::shared_ptr<MemPool> PoolTable::Current(int device) const {
  std::lock_guard lock(mutex_);
  return pools_.at(current_[device]);
}

CUresult PoolTable::SetCurrent(int device, CUmemoryPool pool) {
  std::lock_guard lock(mutex_);
  auto found = pools_.find(pool);
  // "The memory pool must be local to the specified device" (cuDeviceSetMemPool).
  if (found == pools_.end() || found->second->device() != device) return CUDA_ERROR_INVALID_VALUE;
  current_[device] = pool;
  return CUDA_SUCCESS;
}

std::vector<std::shared_ptr<MemPool>> PoolTable::All() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<MemPool>> all;
  for (const auto& [handle, pool] : pools_) all.push_back(pool);
  for (const auto& [handle, pool] : destroyed_) all.push_back(pool);
  return all;
}

void PoolTable::RemoveContext(CUcontext context) {
  for (const std::shared_ptr<MemPool>& pool : All()) pool->RemoveContext(context);
}

void PoolTable::OnSynchronize() {
  for (const std::shared_ptr<MemPool>& pool : All()) pool->OnSynchronize();
  std::vector<std::shared_ptr<MemPool>> dying;
  std::lock_guard lock(mutex_);
  for (auto it = destroyed_.begin(); it != destroyed_.end();) {
    if (!it->second->idle()) {
      ++it;
      continue;
    }
    dying.push_back(std::move(it->second));
    it = destroyed_.erase(it);
  }
}

bool PoolTable::TrimDevice(int device) {
  bool trimmed = false;
  for (const std::shared_ptr<MemPool>& pool : All()) {
    if (pool->device() != device) continue;
    cuuint64_t before = 0, after = 0;
    (void)pool->GetAttribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &before);
    pool->TrimTo(0);
    (void)pool->GetAttribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &after);
    trimmed |= after < before;
  }
  return trimmed;
}

}  // namespace softgpu
