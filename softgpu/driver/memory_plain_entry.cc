// Entry points: plain device memory, host memory, peers.
#include <cuda.h>

#include <optional>

#include "softgpu/driver/capture.h"
#include "softgpu/driver/context.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/errors.h"
#include "softgpu/driver/memory_actions.h"
#include "softgpu/driver/memory_parts.h"
#include "softgpu/driver/state.h"

namespace softgpu {
namespace {

// Rows of pitched allocations begin at multiples of this, which suits textures too.
constexpr uint64_t kRowAlignment = 512;

CUresult Allocate(Entry& entry, uint64_t bytes, CUdeviceptr* address) {
  CUresult forbidden = ForbidDuringCapture(entry.thread());
  if (forbidden != CUDA_SUCCESS) return forbidden;
  MemoryParts& parts = entry.state().memory();
  CUcontext context = entry.context().handle();
  CUresult result = parts.manager().AllocateDevice(context, bytes, BlockKind::kDevice, address);
  // Memory that pools merely keep is given up before an allocation fails.
  if (result == CUDA_ERROR_OUT_OF_MEMORY && parts.pools().TrimDevice(entry.context().ordinal())) {
    result = parts.manager().AllocateDevice(context, bytes, BlockKind::kDevice, address);
  }
  return result;
}

CUresult FreePoolBlock(Entry& entry, const Block& block) {
  std::shared_ptr<MemPool> pool = entry.state().memory().pools().FindOwner(block.pool);
  std::shared_ptr<MemPool::PendingFree> freed = pool == nullptr ? nullptr : pool->BeginFree(block.base, 0);
  if (freed == nullptr) return CUDA_ERROR_INVALID_VALUE;
  pool->FreeDone(freed);
  return CUDA_SUCCESS;
}

CUresult Free(Entry& entry, CUdeviceptr address) {
  CUresult forbidden = ForbidDuringCapture(entry.thread());
  if (forbidden != CUDA_SUCCESS) return forbidden;
  MemoryManager& memory = entry.state().memory().manager();
  std::optional<Block> block = memory.FindBlock(address);
  if (!block || block->base != address) return CUDA_ERROR_INVALID_VALUE;
  DrainUsers(entry, block->context);
  if (block->kind == BlockKind::kPool) return FreePoolBlock(entry, *block);
  bool freeable = block->kind == BlockKind::kDevice || block->kind == BlockKind::kManaged;
  if (!freeable) return CUDA_ERROR_INVALID_VALUE;
  entry.state().memory().ipc().Freed(address);
  return memory.Free(address, block->kind);
}

// The block of a host pointer that the driver allocated or registered; `inside`: the pointer may lie anywhere
// in it.
std::optional<Block> HostBlock(Entry& entry, const void* pointer, bool inside) {
  uint64_t address = reinterpret_cast<uint64_t>(pointer);
  std::optional<Block> block = entry.state().memory().manager().FindBlock(address);
  bool host = block && (block->kind == BlockKind::kHost || block->kind == BlockKind::kRegistered);
  return host && (inside || block->base == address) ? block : std::nullopt;
}

CUresult AllocateHost(void** pointer, size_t bytes, unsigned flags) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  constexpr unsigned kKnown =
      CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
  if (pointer == nullptr || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  CUresult forbidden = ForbidDuringCapture(entry.thread());
  if (forbidden != CUDA_SUCCESS) return forbidden;
  Context& context = entry.context();
  return entry.state().memory().manager().AllocateHost(context.handle(), context.ordinal(), bytes, flags,
                                                       pointer);
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

extern "C" {

CUresult CUDAAPI cuMemGetInfo_v2(size_t* free, size_t* total) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (entry.state().client() == nullptr) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  stasis::Result<MemoryInfo> info =
      entry.state().client()->MemInfo(entry.context().device().daemon_ordinal());
  if (!info.ok()) return FromStatus(info.status());
  if (free != nullptr) *free = info->free_bytes;
  if (total != nullptr) *total = info->total_bytes;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (dptr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Allocate(entry, bytesize, dptr);
}

CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes, size_t Height,
                                    unsigned int ElementSizeBytes) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  bool element = ElementSizeBytes == 4 || ElementSizeBytes == 8 || ElementSizeBytes == 16;
  if (dptr == nullptr || pPitch == nullptr || !element) return CUDA_ERROR_INVALID_VALUE;
  if (WidthInBytes == 0 || Height == 0 || WidthInBytes >> 47 != 0) return CUDA_ERROR_INVALID_VALUE;
  uint64_t pitch = RoundUp(WidthInBytes, kRowAlignment), bytes = 0;
  if (__builtin_mul_overflow(pitch, Height, &bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult result = Allocate(entry, bytes, dptr);
  if (result == CUDA_SUCCESS) *pPitch = pitch;
  return result;
}

CUresult CUDAAPI cuMemFree_v2(CUdeviceptr dptr) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  return Free(entry, dptr);
}

CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  MemoryManager& memory = entry.state().memory().manager();
  uint64_t base = 0, size = 0;
  std::optional<Block> block = memory.FindBlock(dptr);
  if (block) {
    base = block->base;
    size = block->size;
  } else {
    std::optional<MemoryManager::ReservationInfo> reservation = memory.FindReservation(dptr);
    if (!reservation || !memory.FindMapping(dptr)) return CUDA_ERROR_NOT_FOUND;
    base = reservation->base;
    size = reservation->size;
  }
  if (pbase != nullptr) *pbase = base;
  if (psize != nullptr) *psize = size;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAllocHost_v2(void** pp, size_t bytesize) { return AllocateHost(pp, bytesize, 0); }

CUresult CUDAAPI cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
  return AllocateHost(pp, bytesize, Flags);
}

CUresult CUDAAPI cuMemFreeHost(void* p) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  std::optional<Block> block = HostBlock(entry, p, false);
  if (!block || block->kind != BlockKind::kHost) return CUDA_ERROR_INVALID_VALUE;
  CUresult forbidden = ForbidDuringCapture(entry.thread());
  if (forbidden != CUDA_SUCCESS) return forbidden;
  // Any context may be at work on it: all host memory is portable under unified addressing.
  DrainUsers(entry, nullptr);
  return entry.state().memory().manager().Free(block->base, BlockKind::kHost);
}

CUresult CUDAAPI cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int Flags) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (pdptr == nullptr || Flags != 0 || !HostBlock(entry, p, true)) return CUDA_ERROR_INVALID_VALUE;
  *pdptr = reinterpret_cast<CUdeviceptr>(p);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostGetFlags(unsigned int* pFlags, void* p) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  std::optional<Block> block = HostBlock(entry, p, true);
  if (pFlags == nullptr || !block) return CUDA_ERROR_INVALID_VALUE;
  *pFlags = block->flags;
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  constexpr unsigned kKnown = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                              CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
  if ((Flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((Flags & CU_MEMHOSTREGISTER_IOMEMORY) != 0) return CUDA_ERROR_NOT_PERMITTED;
  Context& context = entry.context();
  return entry.state().memory().manager().Register(context.handle(), context.ordinal(), p, bytesize, Flags);
}

CUresult CUDAAPI cuMemHostUnregister(void* p) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  std::optional<Block> block = HostBlock(entry, p, false);
  if (!block) return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  if (block->kind != BlockKind::kRegistered) return CUDA_ERROR_INVALID_VALUE;
  DrainUsers(entry, nullptr);
  return entry.state().memory().manager().Free(block->base, BlockKind::kRegistered);
}

CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (Flags != 0) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Context> peer = entry.state().FindContext(peerContext);
  if (peer == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const Device &mine = entry.context().device(), &other = peer->device();
  if (&mine == &other) return CUDA_ERROR_INVALID_DEVICE;
  const std::vector<uint8_t>& reach = mine.info().peer_access;
  if (other.daemon_ordinal() >= reach.size() || reach[other.daemon_ordinal()] == 0) {
    return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  }
  return entry.state().memory().manager().EnablePeer(entry.context().handle(), peerContext);
}

CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peerContext) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (entry.state().FindContext(peerContext) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  // Kernels that still use the peer's memory are let end first.
  entry.context().Drain();
  return entry.state().memory().manager().DisablePeer(entry.context().handle(), peerContext);
}

}  // extern "C"
