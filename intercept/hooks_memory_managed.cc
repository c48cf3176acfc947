// Managed memory: hints about it, and which stream it is attached to. Ordinals inside of structures are the
// program's, the driver has its own.
#include <algorithm>
#include <vector>

#include "intercept/memory_environment.h"
#include "vmm/device_map.h"
#include "vmm/host_memory.h"
#include "vmm/managed_advice.h"
#include "vmm/pools.h"

namespace stasis::hooks {
namespace {

using vmm::ManagedAdvice;

// Managed memory of ours, which lies on the host for good; nothing for all else.
std::optional<vmm::HostBlock> ManagedBlock(CUdeviceptr address) {
  auto block = vmm::HostMemory::Get().Find(address);
  return block && block->kind == vmm::HostKind::kManaged ? block : std::nullopt;
}

bool IsManagedOnHost(CUdeviceptr address) { return ManagedBlock(address).has_value(); }

// OK for a range within one block.
CUresult CheckRange(CUdeviceptr address, size_t bytes) {
  const auto block = ManagedBlock(address);
  const bool inside = block && bytes != 0 && bytes <= block->end() - address;
  return inside ? vmm::CheckCaller() : CUDA_ERROR_INVALID_VALUE;
}

CUresult CheckStream(const Call& call, CUstream stream) {
  if (stream == nullptr) stream = call.per_thread() ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
  vmm::StreamPlace place;
  return vmm::FindStream(replay::ToReal(stream), &place);
}

CUresult Advise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location) {
  const CUresult checked = CheckRange(address, bytes);
  return checked == CUDA_SUCCESS ? ManagedAdvice::Get().Advise(address, bytes, advice, location) : checked;
}

CUresult Prefetch(const Call& call, CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned flags,
                  CUstream stream) {
  CUresult checked = CheckRange(address, bytes);
  if (checked == CUDA_SUCCESS && flags != 0) checked = CUDA_ERROR_INVALID_VALUE;
  if (checked == CUDA_SUCCESS && !ManagedAdvice::IsPlace(location)) checked = CUDA_ERROR_INVALID_DEVICE;
  if (checked == CUDA_SUCCESS) checked = CheckStream(call, stream);
  if (checked == CUDA_SUCCESS) ManagedAdvice::Get().NotePrefetch(address, bytes, location);
  return checked;
}

std::vector<CUmemLocation> PhysicalLocations(const CUmemLocation* locations, size_t count) {
  std::vector<CUmemLocation> physical;
  for (size_t i = 0; locations != nullptr && i < count; ++i)
    physical.push_back(ToPhysicalLocation(locations[i]));
  return physical;
}

bool AnyOnHost(const CUdeviceptr* addresses, size_t count) {
  return addresses != nullptr && std::any_of(addresses, addresses + count, IsManagedOnHost);
}

// All ranges of a batch that begins with memory of ours, before anything is noted.
CUresult CheckBatch(const Call& call, const CUdeviceptr* addresses, const size_t* sizes, size_t count,
                    unsigned long long flags, CUstream stream) {
  if (sizes == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    const CUresult checked = CheckRange(addresses[i], sizes[i]);
    if (checked != CUDA_SUCCESS) return checked;
  }
  return CheckStream(call, stream);
}

CUresult PrefetchBatch(const Call& call, CUdeviceptr* addresses, size_t* sizes, size_t count,
                       CUmemLocation* locations, size_t* indices, size_t location_count,
                       unsigned long long flags, CUstream stream) {
  const CUresult checked = CheckBatch(call, addresses, sizes, count, flags, stream);
  if (checked != CUDA_SUCCESS) return checked;
  if (locations == nullptr || indices == nullptr || location_count == 0 || indices[0] != 0)
    return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < location_count; ++i) {
    if (!ManagedAdvice::IsPlace(locations[i])) return CUDA_ERROR_INVALID_DEVICE;
    if (indices[i] >= count || (i > 0 && indices[i] <= indices[i - 1])) return CUDA_ERROR_INVALID_VALUE;
  }
  size_t place = 0;
  for (size_t i = 0; i < count; ++i) {
    while (place + 1 < location_count && indices[place + 1] <= i) ++place;
    ManagedAdvice::Get().NotePrefetch(addresses[i], sizes[i], locations[place]);
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuMemAdvise(const Call& call, CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                     CUdevice device) {
  if (IsManagedOnHost(devPtr)) return Advise(devPtr, count, advice, ManagedAdvice::OfDevice(device));
  const CUresult result =
      call.Real<decltype(&::cuMemAdvise)>()(devPtr, count, advice, PhysicalDevice(device));
  if (result == CUDA_SUCCESS) TaintOnce(call.fn, false);
  return result;
}

CUresult cuMemAdvise_v2(const Call& call, CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                        CUmemLocation location) {
  if (IsManagedOnHost(devPtr)) return Advise(devPtr, count, advice, location);
  const CUresult result =
      call.Real<decltype(&::cuMemAdvise_v2)>()(devPtr, count, advice, ToPhysicalLocation(location));
  if (result == CUDA_SUCCESS) TaintOnce(call.fn, false);
  return result;
}

CUresult cuMemPrefetchAsync(const Call& call, CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
                            CUstream hStream) {
  if (IsManagedOnHost(devPtr))
    return Prefetch(call, devPtr, count, ManagedAdvice::OfDevice(dstDevice), 0, hStream);
  return call.Real<decltype(&::cuMemPrefetchAsync)>()(devPtr, count, PhysicalDevice(dstDevice),
                                                      replay::ToReal(hStream));
}

CUresult cuMemPrefetchAsync_v2(const Call& call, CUdeviceptr devPtr, size_t count, CUmemLocation location,
                               unsigned int flags, CUstream hStream) {
  if (IsManagedOnHost(devPtr)) return Prefetch(call, devPtr, count, location, flags, hStream);
  return call.Real<decltype(&::cuMemPrefetchAsync_v2)>()(devPtr, count, ToPhysicalLocation(location), flags,
                                                         replay::ToReal(hStream));
}

CUresult cuMemPrefetchBatchAsync(const Call& call, CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                 CUmemLocation* prefetchLocs, size_t* prefetchLocIdxs, size_t numPrefetchLocs,
                                 unsigned long long flags, CUstream hStream) {
  if (AnyOnHost(dptrs, count))
    return PrefetchBatch(call, dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags,
                         hStream);
  std::vector<CUmemLocation> physical = PhysicalLocations(prefetchLocs, numPrefetchLocs);
  return call.Real<decltype(&::cuMemPrefetchBatchAsync)>()(
      dptrs, sizes, count, prefetchLocs == nullptr ? nullptr : physical.data(), prefetchLocIdxs,
      numPrefetchLocs, flags, replay::ToReal(hStream));
}

// What is discarded may have any content, that which it has included.
CUresult cuMemDiscardBatchAsync(const Call& call, CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                unsigned long long flags, CUstream hStream) {
  if (AnyOnHost(dptrs, count)) return CheckBatch(call, dptrs, sizes, count, flags, hStream);
  return call.Real<decltype(&::cuMemDiscardBatchAsync)>()(dptrs, sizes, count, flags,
                                                          replay::ToReal(hStream));
}

CUresult cuMemDiscardAndPrefetchBatchAsync(const Call& call, CUdeviceptr* dptrs, size_t* sizes, size_t count,
                                           CUmemLocation* prefetchLocs, size_t* prefetchLocIdxs,
                                           size_t numPrefetchLocs, unsigned long long flags,
                                           CUstream hStream) {
  if (AnyOnHost(dptrs, count))
    return PrefetchBatch(call, dptrs, sizes, count, prefetchLocs, prefetchLocIdxs, numPrefetchLocs, flags,
                         hStream);
  std::vector<CUmemLocation> physical = PhysicalLocations(prefetchLocs, numPrefetchLocs);
  return call.Real<decltype(&::cuMemDiscardAndPrefetchBatchAsync)>()(
      dptrs, sizes, count, prefetchLocs == nullptr ? nullptr : physical.data(), prefetchLocIdxs,
      numPrefetchLocs, flags, replay::ToReal(hStream));
}

CUresult cuMemRangeGetAttribute(const Call& call, void* data, size_t dataSize,
                                CUmem_range_attribute attribute, CUdeviceptr devPtr, size_t count) {
  if (!IsManagedOnHost(devPtr))
    return call.Real<decltype(&::cuMemRangeGetAttribute)>()(data, dataSize, attribute, devPtr, count);
  const CUresult checked = CheckRange(devPtr, count);
  if (checked != CUDA_SUCCESS) return checked;
  return ManagedAdvice::Get().Answer(devPtr, count, attribute, data, dataSize);
}

CUresult cuMemRangeGetAttributes(const Call& call, void** data, size_t* dataSizes,
                                 CUmem_range_attribute* attributes, size_t numAttributes, CUdeviceptr devPtr,
                                 size_t count) {
  if (!IsManagedOnHost(devPtr))
    return call.Real<decltype(&::cuMemRangeGetAttributes)>()(data, dataSizes, attributes, numAttributes,
                                                             devPtr, count);
  if (data == nullptr || dataSizes == nullptr || attributes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CheckRange(devPtr, count);
  for (size_t i = 0; i < numAttributes && result == CUDA_SUCCESS; ++i)
    result = ManagedAdvice::Get().Answer(devPtr, count, attributes[i], data[i], dataSizes[i]);
  return result;
}

// Memory on the host needs no stream of its own: everybody may touch it at any time.
CUresult cuStreamAttachMemAsync(const Call& call, CUstream hStream, CUdeviceptr dptr, size_t length,
                                unsigned int flags) {
  const auto block = ManagedBlock(dptr);
  if (!block) {
    const CUresult result =
        call.Real<decltype(&::cuStreamAttachMemAsync)>()(replay::ToReal(hStream), dptr, length, flags);
    if (result == CUDA_SUCCESS) TaintOnce(call.fn, false);
    return result;
  }
  const bool known =
      flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST || flags == CU_MEM_ATTACH_SINGLE;
  const bool whole = dptr == block->base && (length == 0 || length == block->size);
  if (!known || !whole) return CUDA_ERROR_INVALID_VALUE;
  return CheckStream(call, hStream);
}

}  // namespace stasis::hooks
