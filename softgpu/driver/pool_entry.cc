// Entry points: memory pools and stream-ordered allocation.
#include <cuda.h>

#include <optional>
#include <utility>

#include "softgpu/driver/context.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/graph_memory.h"
#include "softgpu/driver/memory_parts.h"
#include "softgpu/driver/state.h"
#include "softgpu/driver/stream.h"

namespace softgpu {
namespace {

PoolTable& Pools(const Entry& entry) { return entry.state().memory().pools(); }

// When the device is full: memory whose free is still on its way counts, and so does what other pools keep.
CUresult AllocateOrMakeRoom(Entry& entry, MemPool& pool, const Stream& stream, size_t bytes,
                            CUdeviceptr* address) {
  CUcontext context = stream.context().handle();
  CUresult result = pool.Allocate(context, stream.id(), bytes, address);
  if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
  stream.context().Drain();
  Pools(entry).OnSynchronize();
  if (pool.device() >= 0) Pools(entry).TrimDevice(pool.device());
  return pool.Allocate(context, stream.id(), bytes, address);
}

CUresult AllocateAsync(CUdeviceptr* address, size_t bytes, bool current, CUmemoryPool handle,
                       CUstream stream_handle) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  CUresult error = CUDA_SUCCESS;
  std::shared_ptr<Stream> stream = ResolveStream(entry.context(), stream_handle, &error);
  if (stream == nullptr) return error;
  if (address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<MemPool> pool =
      current ? Pools(entry).Current(stream->context().ordinal()) : Pools(entry).Find(handle);
  if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (stream->capture() != nullptr) return CaptureAllocation(*stream, bytes, address);
  return AllocateOrMakeRoom(entry, *pool, *stream, bytes, address);
}

// Hands the block back when the stream gets there, also when the context is broken by then.
class FreeAction final : public Action {
 public:
  FreeAction(std::shared_ptr<MemPool> pool, std::shared_ptr<MemPool::PendingFree> freed)
      : Action(CU_GRAPH_NODE_TYPE_MEM_FREE, Runs::kInline),
        pool_(std::move(pool)),
        freed_(std::move(freed)) {}
  CUresult Run(Context&) const override {
    pool_->FreeDone(freed_);
    return CUDA_SUCCESS;
  }
  void Skip(Context&, CUresult) const override { pool_->FreeDone(freed_); }

 private:
  const std::shared_ptr<MemPool> pool_;
  const std::shared_ptr<MemPool::PendingFree> freed_;
};

// Memory of cuMemAlloc may be freed in stream order too; "the driver assumes that all accesses are complete"
// then.
CUresult FreePlainAsync(Entry& entry, Stream& stream, const Block& block) {
  MemoryParts* parts = &entry.state().memory();
  uint64_t base = block.base;
  return stream.Submit(MakeAction(Action::Runs::kWorker, [parts, base](Context&) {
    parts->ipc().Freed(base);
    // Fails only when it was freed in between, which the free that came first has answered for.
    (void)parts->manager().Free(base, BlockKind::kDevice);
    return CUDA_SUCCESS;
  }));
}

CUresult LocationDevice(const Entry& entry, const CUmemLocation* location, CUmemAllocationType type,
                        int* device) {
  if (location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_ALLOCATION_TYPE_PINNED || location->type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  *device = location->id;
  return entry.state().FindDevice(location->id) == nullptr ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

CUresult GetPool(CUmemoryPool* out, int device, bool current, const Entry& entry) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (entry.state().FindDevice(device) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  *out = (current ? Pools(entry).Current(device) : Pools(entry).Default(device))->handle();
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

extern "C" {

CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return AllocateAsync(dptr, bytesize, true, nullptr, hStream);
}

CUresult CUDAAPI cuMemAllocFromPoolAsync(CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                         CUstream hStream) {
  return AllocateAsync(dptr, bytesize, false, pool, hStream);
}

CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr dptr, CUstream hStream) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  CUresult error = CUDA_SUCCESS;
  std::shared_ptr<Stream> stream = ResolveStream(entry.context(), hStream, &error);
  if (stream == nullptr) return error;
  if (stream->capture() != nullptr) return CaptureFree(*stream, dptr);
  std::optional<Block> block = entry.state().memory().manager().FindBlock(dptr);
  if (!block || block->base != dptr) return CUDA_ERROR_INVALID_VALUE;
  if (block->kind == BlockKind::kDevice) return FreePlainAsync(entry, *stream, *block);
  if (block->kind != BlockKind::kPool) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<MemPool> pool = Pools(entry).FindOwner(block->pool);
  std::shared_ptr<MemPool::PendingFree> freed =
      pool == nullptr ? nullptr : pool->BeginFree(dptr, stream->id());
  if (freed == nullptr) return CUDA_ERROR_INVALID_VALUE;
  stream->Enqueue(std::make_shared<FreeAction>(std::move(pool), std::move(freed)));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (pool == nullptr || poolProps == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return Pools(entry).Create(*poolProps, pool);
}

CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool pool) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  return Pools(entry).Destroy(pool);
}

CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  std::shared_ptr<MemPool> found = Pools(entry).Find(pool);
  if (found == nullptr) return CUDA_ERROR_INVALID_VALUE;
  found->TrimTo(minBytesToKeep);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  std::shared_ptr<MemPool> found = Pools(entry).Find(pool);
  if (found == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return found->SetAttribute(attr, value);
}

CUresult CUDAAPI cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  std::shared_ptr<MemPool> found = Pools(entry).Find(pool);
  if (found == nullptr || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return found->GetAttribute(attr, value);
}

CUresult CUDAAPI cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* map, size_t count) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  std::shared_ptr<MemPool> found = Pools(entry).Find(pool);
  if (found == nullptr || map == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  return found->SetAccess(map, count);
}

CUresult CUDAAPI cuMemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool memPool, CUmemLocation* location) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  std::shared_ptr<MemPool> found = Pools(entry).Find(memPool);
  if (found == nullptr || flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return found->GetAccess(*location, flags);
}

CUresult CUDAAPI cuDeviceGetDefaultMemPool(CUmemoryPool* pool_out, CUdevice dev) {
  Entry entry(Need::kInit);
  return entry.ok() ? GetPool(pool_out, dev, false, entry) : entry.result();
}

CUresult CUDAAPI cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice dev) {
  Entry entry(Need::kInit);
  return entry.ok() ? GetPool(pool, dev, true, entry) : entry.result();
}

CUresult CUDAAPI cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (entry.state().FindDevice(dev) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return Pools(entry).SetCurrent(dev, pool);
}

CUresult CUDAAPI cuMemGetDefaultMemPool(CUmemoryPool* pool_out, CUmemLocation* location,
                                        CUmemAllocationType type) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  int device = 0;
  CUresult found = LocationDevice(entry, location, type, &device);
  return found == CUDA_SUCCESS ? GetPool(pool_out, device, false, entry) : found;
}

CUresult CUDAAPI cuMemGetMemPool(CUmemoryPool* pool, CUmemLocation* location, CUmemAllocationType type) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  int device = 0;
  CUresult found = LocationDevice(entry, location, type, &device);
  return found == CUDA_SUCCESS ? GetPool(pool, device, true, entry) : found;
}

CUresult CUDAAPI cuMemSetMemPool(CUmemLocation* location, CUmemAllocationType type, CUmemoryPool pool) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  int device = 0;
  CUresult found = LocationDevice(entry, location, type, &device);
  return found == CUDA_SUCCESS ? Pools(entry).SetCurrent(device, pool) : found;
}

}  // extern "C"
