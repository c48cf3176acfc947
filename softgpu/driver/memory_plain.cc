// Plain device memory: slabs for small allocations, whole pieces of physical memory for large ones.
#include <utility>

#include "softgpu/driver/memory_manager.h"

namespace softgpu {
namespace {

// Allocations below this share slabs of one large page.
constexpr uint64_t kSmallBytes = 1ull << 20;

exec::Access ToAccess(CUmemAccess_flags flags) {
  switch (flags) {
    case CU_MEM_ACCESS_FLAGS_PROT_READWRITE:
      return exec::Access::kReadWrite;
    case CU_MEM_ACCESS_FLAGS_PROT_READ:
      return exec::Access::kRead;
    default:
      return exec::Access::kNone;
  }
}

}  // namespace

CUresult MemoryManager::AllocateDevice(CUcontext context, uint64_t bytes, BlockKind kind,
                                       CUdeviceptr* address) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  // A module's memory is placed by itself, so that its addresses depend on modules only.
  return bytes < kSmallBytes && kind != BlockKind::kModule ? AllocateSmall(context, bytes, kind, address)
                                                           : AllocateLarge(context, bytes, kind, address);
}

CUresult MemoryManager::AllocateSmall(CUcontext context, uint64_t bytes, BlockKind kind,
                                      CUdeviceptr* address) {
  std::shared_ptr<Physical> fresh;  // declared before the lock: an unused slab dies outside it
  for (;;) {
    int device = 0;
    {
      std::lock_guard lock(mutex_);
      auto owner = contexts_.find(context);
      if (owner == contexts_.end()) return CUDA_ERROR_INVALID_CONTEXT;
      ContextMemory& memory = owner->second;
      device = memory.device;
      std::optional<uint64_t> base = memory.small.Allocate(bytes);
      if (!base && fresh) {
        memory.small.AddRegion(fresh->home(), fresh->size());
        GrantLocked(memory, fresh->home(), fresh->size());
        uint64_t home = fresh->home();
        memory.slabs.emplace(home, std::move(fresh));
        base = memory.small.Allocate(bytes);
      }
      if (base) {
        Block block{.kind = kind,
                    .base = *base,
                    .size = bytes,
                    .context = context,
                    .device = device,
                    .shared_slab = true};
        block.physical = memory.slabs.at(memory.small.RegionOf(*base)->first);
        *address = InsertBlockLocked(std::move(block)).base;
        return CUDA_SUCCESS;
      }
    }
    stasis::Result<std::shared_ptr<Physical>> slab = Physical::Create(source_, device, kLargePage);
    if (!slab.ok()) return MemoryError(slab.status());
    fresh = *std::move(slab);
  }
}

CUresult MemoryManager::AllocateLarge(CUcontext context, uint64_t bytes, BlockKind kind,
                                      CUdeviceptr* address) {
  int device = 0;
  {
    std::lock_guard lock(mutex_);
    auto owner = contexts_.find(context);
    if (owner == contexts_.end()) return CUDA_ERROR_INVALID_CONTEXT;
    device = owner->second.device;
  }
  uint64_t size = RoundUp(bytes, kLargePage);
  if (size < bytes || size >> 47 != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  const Physical::Home home =
      kind == BlockKind::kModule ? Physical::Home::kModules : Physical::Home::kAnywhere;
  stasis::Result<std::shared_ptr<Physical>> created = Physical::Create(source_, device, size, home);
  if (!created.ok()) return MemoryError(created.status());
  std::shared_ptr<Physical> memory = *std::move(created);
  std::lock_guard lock(mutex_);
  auto owner = contexts_.find(context);
  if (owner == contexts_.end()) return CUDA_ERROR_INVALID_CONTEXT;
  GrantLocked(owner->second, memory->home(), size);
  Block block{.kind = kind, .base = memory->home(), .size = bytes, .context = context, .device = device};
  block.physical = std::move(memory);
  *address = InsertBlockLocked(std::move(block)).base;
  return CUDA_SUCCESS;
}

Block& MemoryManager::InsertBlockLocked(Block block) {
  if (block.id == 0) block.id = next_id_++;
  uint64_t base = block.base;
  auto [it, inserted] = blocks_.emplace(base, std::move(block));
  STASIS_CHECK(inserted);
  return it->second;
}

void MemoryManager::GrantLocked(const ContextMemory& context, uint64_t base, uint64_t size) {
  for (int device : DevicesOfLocked(context)) access_maps_[device]->Set(base, size, exec::Access::kReadWrite);
}

void MemoryManager::RevokeLocked(uint64_t base, uint64_t size) {
  for (const auto& map : access_maps_) map->Set(base, size, exec::Access::kNone);
}

CUresult MemoryManager::Free(CUdeviceptr address, BlockKind kind) {
  std::shared_ptr<Physical> dying;
  std::lock_guard lock(mutex_);
  auto found = blocks_.find(address);
  if (found == blocks_.end() || found->second.kind != kind) return CUDA_ERROR_INVALID_VALUE;
  Block block = std::move(found->second);
  blocks_.erase(found);
  dying = DropMemoryLocked(block);
  block.physical.reset();  // `dying` is now the one that may be the last
  return CUDA_SUCCESS;
}

std::shared_ptr<Physical> MemoryManager::DropMemoryLocked(const Block& block) {
  switch (block.kind) {
    case BlockKind::kHost:
      RevokeLocked(block.base, RoundUp(block.size, kLargePage));
      ReleaseAddresses(block.base, RoundUp(block.size, kLargePage));
      return nullptr;
    case BlockKind::kManaged: {
      RevokeLocked(block.base, RoundUp(block.size, kLargePage));
      ReleaseAddresses(block.base, RoundUp(block.size, kLargePage));
      advice_.erase(SplitAdviceLocked(block.base),
                    SplitAdviceLocked(block.base + RoundUp(block.size, kLargePage)));
      return nullptr;
    }
    case BlockKind::kRegistered: {
      uint64_t first = block.base / kPageBytes * kPageBytes;
      RevokeLocked(first, RoundUp(block.end(), kPageBytes) - first);
      return nullptr;
    }
    default:
      break;
  }
  if (!block.shared_slab) {
    RevokeLocked(block.physical->home(), block.physical->size());
    return block.physical;
  }
  ContextMemory& memory = contexts_.at(block.context);
  std::optional<uint64_t> emptied = memory.small.Free(block.base);
  if (!emptied) return nullptr;
  auto slab = memory.slabs.find(*emptied);
  std::shared_ptr<Physical> dying = std::move(slab->second);
  memory.slabs.erase(slab);
  memory.small.RemoveRegion(*emptied);
  RevokeLocked(dying->home(), dying->size());
  return dying;
}

void MemoryManager::AddBlock(Block block, const std::vector<CUmemAccess_flags>& access) {
  std::lock_guard lock(mutex_);
  for (size_t device = 0; device < access.size(); ++device) {
    access_maps_[device]->Set(block.base, RoundUp(block.size, kLargePage), ToAccess(access[device]));
  }
  InsertBlockLocked(std::move(block));
}

std::optional<Block> MemoryManager::TakeBlock(uint64_t base, BlockKind kind) {
  std::lock_guard lock(mutex_);
  auto found = blocks_.find(base);
  if (found == blocks_.end() || found->second.kind != kind) return std::nullopt;
  Block block = std::move(found->second);
  blocks_.erase(found);
  return block;
}

void MemoryManager::SetDeviceAccess(uint64_t base, uint64_t size, int device, CUmemAccess_flags flags) {
  access_maps_[device]->Set(base, size, ToAccess(flags));
}

void MemoryManager::MarkShared(uint64_t base) {
  std::lock_guard lock(mutex_);
  auto found = blocks_.find(base);
  if (found != blocks_.end() && found->second.physical != nullptr) found->second.physical->shared = true;
}

}  // namespace softgpu
