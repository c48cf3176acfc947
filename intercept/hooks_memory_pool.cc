// Memory pools and stream-ordered allocation.
#include "intercept/memory_environment.h"
#include "vmm/pools.h"

namespace stasis::hooks {
namespace {

using vmm::Pools;
using vmm::StreamPlace;

// The driver's handle of a stream of the program, which is never null.
CUstream RealStream(const Call& call, CUstream stream) {
  if (stream == nullptr) return call.per_thread() ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
  return replay::ToReal(stream);
}

// `forward` is the call as the driver gets it where the memory is its own business.
template <typename Forward>
CUresult Allocate(const Call& call, CUdeviceptr* address, size_t bytes, CUmemoryPool pool, CUstream stream,
                  Forward forward) {
  JoinMemory();
  StreamPlace place;
  const CUresult found = vmm::FindStream(RealStream(call, stream), &place);
  if (found != CUDA_SUCCESS) return found;
  if (!place.capturing && !Pools::Get().IsForwarded(pool, place.device))
    return Pools::Get().Allocate(address, bytes, pool, place);
  const CUresult result = forward();
  // In a capture it is a node of the graph, which a pause refuses for as long as there is one.
  if (result == CUDA_SUCCESS && !place.capturing) TaintOnce(call.fn, false);
  return result;
}

bool OnDevice(const CUmemLocation* location, CUmemAllocationType type) {
  return location != nullptr && location->type == CU_MEM_LOCATION_TYPE_DEVICE &&
         type == CU_MEM_ALLOCATION_TYPE_PINNED;
}

}  // namespace

CUresult cuMemAllocAsync(const Call& call, CUdeviceptr* dptr, size_t bytesize, CUstream hStream) {
  return Allocate(call, dptr, bytesize, nullptr, hStream, [&] {
    return call.Real<decltype(&::cuMemAllocAsync)>()(dptr, bytesize, replay::ToReal(hStream));
  });
}

CUresult cuMemAllocFromPoolAsync(const Call& call, CUdeviceptr* dptr, size_t bytesize, CUmemoryPool pool,
                                 CUstream hStream) {
  const auto forward = [&] {
    return call.Real<decltype(&::cuMemAllocFromPoolAsync)>()(dptr, bytesize, Pools::Get().ToReal(pool),
                                                             replay::ToReal(hStream));
  };
  // Null would mean the current pool to us; to the driver it is no pool.
  return pool == nullptr ? forward() : Allocate(call, dptr, bytesize, pool, hStream, forward);
}

CUresult cuMemFreeAsync(const Call& call, CUdeviceptr dptr, CUstream hStream) {
  JoinMemory();
  StreamPlace place;
  CUresult result = vmm::FindStream(RealStream(call, hStream), &place);
  if (result != CUDA_SUCCESS) return result;
  if (!place.capturing && Pools::Get().FreeAsync(dptr, place, &result)) return result;
  return call.Real<decltype(&::cuMemFreeAsync)>()(dptr, replay::ToReal(hStream));
}

CUresult cuMemPoolCreate(const Call& call, CUmemoryPool* pool, const CUmemPoolProps* poolProps) {
  JoinMemory();
  const CUresult result = Pools::Get().Create(pool, poolProps);
  if (result == CUDA_SUCCESS && Pools::Get().IsForwarded(*pool, 0)) TaintOnce(call.fn, false);
  return result;
}

CUresult cuMemPoolDestroy(const Call&, CUmemoryPool pool) {
  JoinMemory();
  return Pools::Get().Destroy(pool);
}

CUresult cuMemPoolTrimTo(const Call&, CUmemoryPool pool, size_t minBytesToKeep) {
  JoinMemory();
  return Pools::Get().TrimTo(pool, minBytesToKeep);
}

CUresult cuMemPoolSetAttribute(const Call&, CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  return Pools::Get().SetAttribute(pool, attr, value);
}

CUresult cuMemPoolGetAttribute(const Call&, CUmemoryPool pool, CUmemPool_attribute attr, void* value) {
  JoinMemory();
  return Pools::Get().GetAttribute(pool, attr, value);
}

CUresult cuMemPoolSetAccess(const Call&, CUmemoryPool pool, const CUmemAccessDesc* map, size_t count) {
  return Pools::Get().SetAccess(pool, map, count);
}

CUresult cuMemPoolGetAccess(const Call&, CUmemAccess_flags* flags, CUmemoryPool memPool,
                            CUmemLocation* location) {
  return Pools::Get().GetAccess(flags, memPool, location);
}

CUresult cuDeviceGetDefaultMemPool(const Call&, CUmemoryPool* pool_out, CUdevice dev) {
  return Pools::Get().GetDefault(pool_out, dev);
}

CUresult cuDeviceGetMemPool(const Call&, CUmemoryPool* pool, CUdevice dev) {
  return Pools::Get().GetCurrent(pool, dev);
}

CUresult cuDeviceSetMemPool(const Call&, CUdevice dev, CUmemoryPool pool) {
  return Pools::Get().SetCurrent(dev, pool);
}

CUresult cuMemGetDefaultMemPool(const Call& call, CUmemoryPool* pool_out, CUmemLocation* location,
                                CUmemAllocationType type) {
  if (OnDevice(location, type)) return Pools::Get().GetDefault(pool_out, location->id);
  const CUresult result = call.Real<decltype(&::cuMemGetDefaultMemPool)>()(pool_out, location, type);
  if (result == CUDA_SUCCESS) TaintOnce(call.fn, false);
  return result;
}

CUresult cuMemGetMemPool(const Call& call, CUmemoryPool* pool, CUmemLocation* location,
                         CUmemAllocationType type) {
  if (OnDevice(location, type)) return Pools::Get().GetCurrent(pool, location->id);
  const CUresult result = call.Real<decltype(&::cuMemGetMemPool)>()(pool, location, type);
  if (result == CUDA_SUCCESS) TaintOnce(call.fn, false);
  return result;
}

CUresult cuMemSetMemPool(const Call& call, CUmemLocation* location, CUmemAllocationType type,
                         CUmemoryPool pool) {
  if (OnDevice(location, type)) return Pools::Get().SetCurrent(location->id, pool);
  const CUresult result =
      call.Real<decltype(&::cuMemSetMemPool)>()(location, type, Pools::Get().ToReal(pool));
  if (result == CUDA_SUCCESS) TaintOnce(call.fn, false);
  return result;
}

}  // namespace stasis::hooks
