#include "vmm/host_memory.h"

#include <sys/mman.h>

#include <cinttypes>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

#include "base/raw_log.h"
#include "vmm/device_map.h"
#include "vmm/hold.h"
#include "vmm/managed_advice.h"
#include "vmm/memory.h"
#include "vmm/real_driver.h"
#include "vmm/sync_memops.h"

namespace stasis::vmm {
namespace {

constexpr uint64_t kHostPage = 4096;
// PORTABLE and DEVICEMAP have the same values for cuMemHostAlloc as for cuMemHostRegister. Write-combining is
// about the speed of the bus alone.
constexpr unsigned kCommonFlags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
static_assert(CU_MEMHOSTALLOC_PORTABLE == CU_MEMHOSTREGISTER_PORTABLE);
static_assert(CU_MEMHOSTALLOC_DEVICEMAP == CU_MEMHOSTREGISTER_DEVICEMAP);

// Zeroed pages that begin at a multiple of a large page, as the driver's do; 0 when there is no memory.
uint64_t MapPages(uint64_t size) {
  const uint64_t padded = size + kPage;
  if (padded < size) return 0;
  void* const got = mmap(nullptr, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (got == MAP_FAILED) return 0;
  const uint64_t begin = reinterpret_cast<uint64_t>(got), base = RoundUp(begin, kPage);
  if (base != begin) munmap(got, base - begin);
  const uint64_t tail = begin + padded - (base + size);
  if (tail != 0) munmap(reinterpret_cast<void*>(base + size), tail);
  return base;
}

uint64_t PagesOf(uint64_t bytes) { return RoundUp(bytes, kHostPage); }
void UnmapPages(uint64_t base, uint64_t bytes) { munmap(reinterpret_cast<void*>(base), PagesOf(bytes)); }
void* Pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

bool DeviceSays(int device, CUdevice_attribute attribute) {
  int value = 0;
  return Driver().cuDeviceGetAttribute(&value, attribute, ToPhysicalDevice(device)) == CUDA_SUCCESS &&
         value != 0;
}

const char* MakerOf(const HostBlock& block) {
  return block.kind == HostKind::kRegistered  ? "cuMemHostRegister"
         : block.kind == HostKind::kAllocated ? "cuMemHostAlloc"
                                              : "cuMemAllocManaged";
}

}  // namespace

HostMemory& HostMemory::Get() {
  static HostMemory* const memory = new HostMemory;  // outlives every destructor
  return *memory;
}

void HostMemory::Insert(HostBlock block) {
  if (block.buffer_id == 0) {
    auto lock = Memory::Get().Lock();
    block.buffer_id = Memory::Get().NextBufferIdLocked();
  }
  const std::lock_guard lock(mutex_);
  blocks_[block.base] = block;
}

std::optional<HostBlock> HostMemory::Take(uint64_t base, HostKind kind) {
  const std::lock_guard lock(mutex_);
  auto found = blocks_.find(base);
  if (found == blocks_.end() || found->second.kind != kind) return std::nullopt;
  HostBlock block = found->second;
  blocks_.erase(found);
  return block;
}

std::optional<HostBlock> HostMemory::Find(uint64_t address) const {
  const std::lock_guard lock(mutex_);
  auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return std::nullopt;
  const HostBlock& block = std::prev(next)->second;
  return address < block.end() ? std::optional<HostBlock>(block) : std::nullopt;
}

void HostMemory::NoteSyncMemops(uint64_t address, bool on) {
  const std::lock_guard lock(mutex_);
  auto next = blocks_.upper_bound(address);
  if (next == blocks_.begin()) return;
  HostBlock& block = std::prev(next)->second;
  if (address < block.end()) block.sync_memops = on;
}

uint64_t HostMemory::bytes() const {
  const std::lock_guard lock(mutex_);
  uint64_t bytes = 0;
  for (const auto& [base, block] : blocks_) bytes += block.size;
  return bytes;
}

// Fills in where the memory is. CUDA_ERROR_NOT_SUPPORTED: devices see it at another address than the host.
CUresult HostMemory::AllocatePages(size_t bytes, HostBlock* block) {
  Caller caller;
  const CUresult found = CurrentCaller(&caller);
  if (found != CUDA_SUCCESS) return found;
  const uint64_t base = bytes >> 47 != 0 ? 0 : MapPages(PagesOf(bytes));
  if (base == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = Driver().cuMemHostRegister_v2(Pointer(base), bytes, block->registration);
  if (result == CUDA_SUCCESS) {
    CUdeviceptr seen = 0;
    const CUresult asked = Driver().cuMemHostGetDevicePointer_v2(&seen, Pointer(base), 0);
    if (asked != CUDA_SUCCESS || seen != base) result = CUDA_ERROR_NOT_SUPPORTED;
    if (result != CUDA_SUCCESS) Driver().cuMemHostUnregister(Pointer(base));
  }
  if (result != CUDA_SUCCESS) {
    UnmapPages(base, bytes);
    return result;
  }
  block->base = base;
  block->size = bytes;
  block->registered = true;
  block->context = caller.context;
  block->device = caller.device;
  return CUDA_SUCCESS;
}

CUresult HostMemory::Allocate(void** pointer, size_t bytes, unsigned flags, bool* carried) {
  *carried = true;
  const CUresult allowed = CheckCaller();
  if (allowed != CUDA_SUCCESS) return allowed;
  const bool known = (flags & ~(kCommonFlags | CU_MEMHOSTALLOC_WRITECOMBINED)) == 0;
  if (pointer == nullptr || bytes == 0 || !known) return CUDA_ERROR_INVALID_VALUE;
  HostBlock block;
  block.flags = flags;
  block.registration = flags & kCommonFlags;
  const CUresult result = AllocatePages(bytes, &block);
  if (result == CUDA_ERROR_NOT_SUPPORTED) {
    *carried = false;
    return Driver().cuMemHostAlloc(pointer, bytes, flags);
  }
  if (result != CUDA_SUCCESS) return result;
  Insert(block);
  *pointer = Pointer(block.base);
  return CUDA_SUCCESS;
}

CUresult HostMemory::FreePages(HostBlock block) {
  const CUresult result = block.registered ? Driver().cuMemHostUnregister(Pointer(block.base)) : CUDA_SUCCESS;
  if (result != CUDA_SUCCESS) {
    Insert(block);
    return result;
  }
  UnmapPages(block.base, block.size);
  return CUDA_SUCCESS;
}

// The driver, which knows our own as memory that is registered, is not asked to free it: nothing says what it
// would do.
CUresult HostMemory::Free(void* pointer) {
  const uint64_t base = reinterpret_cast<uint64_t>(pointer);
  const std::optional<HostBlock> known = Find(base);
  if (!known || known->kind != HostKind::kAllocated || known->base != base)
    return Driver().cuMemFreeHost(pointer);
  const CUresult allowed = CheckCaller();
  if (allowed != CUDA_SUCCESS) return allowed;
  const std::optional<HostBlock> block = Take(base, HostKind::kAllocated);
  return block ? FreePages(*block) : CUDA_ERROR_INVALID_VALUE;
}

CUresult HostMemory::GetFlags(unsigned* flags, void* pointer) {
  const std::optional<HostBlock> block = Find(reinterpret_cast<uint64_t>(pointer));
  if (block && block->kind == HostKind::kManaged) return Driver().cuMemHostGetFlags(flags, nullptr);
  const CUresult result = Driver().cuMemHostGetFlags(flags, pointer);
  if (result == CUDA_SUCCESS && block) *flags |= block->flags & CU_MEMHOSTALLOC_WRITECOMBINED;
  return result;
}

CUresult HostMemory::Register(void* pointer, size_t bytes, unsigned flags,
                              decltype(&cuMemHostRegister_v2) register_memory) {
  const CUresult result = register_memory(pointer, bytes, flags);
  if (result != CUDA_SUCCESS) return result;
  HostBlock block;
  block.kind = HostKind::kRegistered;
  block.base = reinterpret_cast<uint64_t>(pointer);
  block.size = bytes;
  block.flags = block.registration = flags;
  block.registered = true;
  Caller caller;
  if (CurrentCaller(&caller) == CUDA_SUCCESS) {
    block.context = caller.context;
    block.device = caller.device;
  }
  Insert(block);
  return result;
}

CUresult HostMemory::Unregister(void* pointer) {
  const uint64_t base = reinterpret_cast<uint64_t>(pointer);
  const std::optional<HostBlock> block = Find(base);
  // To the program this memory is not registered but the driver's own.
  if (block && block->kind != HostKind::kRegistered) {
    const bool pinned = block->kind == HostKind::kAllocated && block->base == base;
    return pinned ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  }
  const CUresult result = Driver().cuMemHostUnregister(pointer);
  if (result == CUDA_SUCCESS) Take(base, HostKind::kRegistered);
  return result;
}

bool HostMemory::ManagedOnHost(int device) {
  const char* const wish = getenv(kTaskManagedVariable);
  if (wish != nullptr && *wish != '\0') return std::strcmp(wish, "host") == 0;
  return DeviceSays(device, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES) ||
         DeviceSays(device, CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST);
}

CUresult HostMemory::AllocateManaged(CUdeviceptr* address, size_t bytes, unsigned flags) {
  const CUresult allowed = CheckCaller();
  if (allowed != CUDA_SUCCESS) return allowed;
  const bool known = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST;
  if (address == nullptr || bytes == 0 || !known) return CUDA_ERROR_INVALID_VALUE;
  HostBlock block;
  block.kind = HostKind::kManaged;
  block.flags = flags;
  block.registration = kCommonFlags;
  const CUresult result = AllocatePages(bytes, &block);
  if (result != CUDA_SUCCESS) return result;
  Insert(block);
  *address = block.base;
  return CUDA_SUCCESS;
}

CUresult HostMemory::FreeManaged(CUdeviceptr address, CUresult otherwise) {
  const std::optional<HostBlock> block = Take(address, HostKind::kManaged);
  if (block) ManagedAdvice::Get().Forget(block->base, block->size);
  return block ? FreePages(*block) : otherwise;
}

// The driver has forgotten them with the context.
void HostMemory::ContextGone(CUcontext context) {
  std::vector<HostBlock> gone;
  {
    const std::lock_guard lock(mutex_);
    for (auto it = blocks_.begin(); it != blocks_.end();) {
      auto current = it++;
      if (current->second.context != context) continue;
      gone.push_back(current->second);
      blocks_.erase(current);
    }
  }
  for (const HostBlock& block : gone) {
    if (block.kind == HostKind::kManaged) ManagedAdvice::Get().Forget(block.base, block.size);
    if (block.kind != HostKind::kRegistered) UnmapPages(block.base, block.size);
  }
}

Status HostMemory::CheckReleasable(TaskStrategy strategy) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [base, block] : blocks_) {
    if (strategy == TaskStrategy::kReconstruct && (block.registration & CU_MEMHOSTREGISTER_IOMEMORY) != 0)
      return Errorf(StatusCode::kUnsupported,
                    "cuMemHostRegister: the memory at 0x%" PRIx64 " belongs to another device", base);
  }
  return {};
}

bool HostMemory::IsUnmapped(const HostBlock& block, const RangeSet& mapped) {
  if (mapped.Contains({RoundDown(block.base, kHostPage), RoundUp(block.end(), kHostPage)})) return false;
  RawLog(LogLevel::kWarning,
         "%s: the program has unmapped 0x%llx (%llu bytes) without telling the driver; forgotten",
         MakerOf(block), static_cast<unsigned long long>(block.base),
         static_cast<unsigned long long>(block.size));
  return true;
}

Status HostMemory::Release() {
  Status first;
  const RangeSet mapped = MappedAddresses();
  const std::lock_guard lock(mutex_);  // the gate is closed: nobody waits for it
  for (auto it = blocks_.begin(); it != blocks_.end();) {
    auto current = it++;
    HostBlock& block = current->second;
    if (!block.registered) continue;
    const ScopedContext scope(block.context);
    CUresult result = scope.result();
    if (result == CUDA_SUCCESS) result = Driver().cuMemHostUnregister(Pointer(block.base));
    if (IsUnmapped(block, mapped)) {
      blocks_.erase(current);
      continue;
    }
    block.registered = result != CUDA_SUCCESS;
    if (first.ok()) first = DriverStatus(result, "cuMemHostUnregister");
  }
  return first;
}

Status HostMemory::Reattach() {
  const RangeSet mapped = MappedAddresses();
  const std::lock_guard lock(mutex_);
  for (auto it = blocks_.begin(); it != blocks_.end();) {
    auto current = it++;
    HostBlock& block = current->second;
    if (block.registered) continue;
    if (IsUnmapped(block, mapped)) {
      blocks_.erase(current);
      continue;
    }
    const ScopedContext scope(block.context);
    RETURN_IF_ERROR(DriverStatus(scope.result(), "cuCtxPushCurrent"));
    RETURN_IF_ERROR(
        DriverStatus(Driver().cuMemHostRegister_v2(Pointer(block.base), block.size, block.registration),
                     "cuMemHostRegister"));
    block.registered = true;
    if (block.sync_memops) RETURN_IF_ERROR(TellSyncMemops(block.base, true));
  }
  return {};
}

}  // namespace stasis::vmm
