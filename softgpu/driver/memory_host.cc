// Host memory that devices may touch: allocated by the driver, or the program's own and registered.
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "softgpu/driver/memory_manager.h"

namespace softgpu {
namespace {

// Linux 5.14; Debian 12's headers have them, older ones may not.
constexpr int kPopulateRead = 22, kPopulateWrite = 23;

// Faults the pages in, as pinning does, and so finds out whether they are there and may be written.
bool Populate(uint64_t base, uint64_t size, bool write) {
  int advice = write ? kPopulateWrite : kPopulateRead;
  return madvise(reinterpret_cast<void*>(base), size, advice) == 0;
}

// Whether every page is mapped at all, for kernels that cannot populate.
bool IsMapped(uint64_t base, uint64_t size) {
  constexpr uint64_t kStep = 16384 * kPageBytes;
  unsigned char resident[16384];
  for (uint64_t done = 0; done < size; done += kStep) {
    uint64_t bytes = std::min(kStep, size - done);
    if (mincore(reinterpret_cast<void*>(base + done), bytes, resident) != 0) return false;
  }
  return true;
}

bool KernelCanPopulate() {
  alignas(kPageBytes) static char page[kPageBytes];
  return Populate(reinterpret_cast<uint64_t>(page), kPageBytes, false);
}

bool PinPages(uint64_t base, uint64_t size, bool write) {
  if (Populate(base, size, write)) return true;
  return !KernelCanPopulate() && IsMapped(base, size);
}

}  // namespace

CUresult MemoryManager::AllocateHost(CUcontext context, int device, uint64_t bytes, unsigned flags,
                                     void** pointer) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t size = RoundUp(bytes, kLargePage);
  if (size < bytes || size >> 47 != 0) return CUDA_ERROR_OUT_OF_MEMORY;
  // Whole large pages, so that the executor's check stays one load; untouched pages cost nothing.
  stasis::Result<uint64_t> base = ReserveAddresses(size, kLargePage, 0);
  if (!base.ok()) return CUDA_ERROR_OUT_OF_MEMORY;
  if (!MapHostPages(*base, size).ok()) {
    ReleaseAddresses(*base, size);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  AddBlock({.kind = BlockKind::kHost,
            .base = *base,
            .size = bytes,
            .context = context,
            .device = device,
            .flags = flags},
           std::vector<CUmemAccess_flags>(access_maps_.size(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  *pointer = reinterpret_cast<void*>(*base);
  return CUDA_SUCCESS;
}

CUresult MemoryManager::Register(CUcontext context, int device, void* pointer, uint64_t bytes,
                                 unsigned flags) {
  uint64_t base = reinterpret_cast<uint64_t>(pointer);
  if (base == 0 || bytes == 0 || base + bytes < base || (base + bytes) >> 47 != 0)
    return CUDA_ERROR_INVALID_VALUE;
  bool read_only = (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
  uint64_t first = base / kPageBytes * kPageBytes, pages = RoundUp(base + bytes, kPageBytes) - first;
  if (!PinPages(first, pages, !read_only)) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(mutex_);
  auto next = blocks_.lower_bound(base + bytes);
  if (next != blocks_.begin()) {
    const Block& before = std::prev(next)->second;
    if (before.end() > base) {
      bool host = before.kind == BlockKind::kRegistered || before.kind == BlockKind::kHost;
      return host ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED : CUDA_ERROR_INVALID_VALUE;
    }
  }
  exec::Access access = read_only ? exec::Access::kRead : exec::Access::kReadWrite;
  for (const auto& map : access_maps_) map->Set(first, pages, access);
  InsertBlockLocked({.kind = BlockKind::kRegistered,
                     .base = base,
                     .size = bytes,
                     .context = context,
                     .device = device,
                     .flags = flags});
  return CUDA_SUCCESS;
}

}  // namespace softgpu
