// Entry points: managed memory, advice and prefetching.
#include <cuda.h>

#include <algorithm>
#include <vector>

#include "softgpu/driver/context.h"
#include "softgpu/driver/entry.h"
#include "softgpu/driver/memory_parts.h"
#include "softgpu/driver/state.h"
#include "softgpu/driver/stream.h"

namespace softgpu {
namespace {

MemoryManager& Manager(const Entry& entry) { return entry.state().memory().manager(); }

bool ValidLocation(const Entry& entry, const CUmemLocation& location) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return entry.state().FindDevice(location.id) != nullptr;
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      return true;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return location.id == 0;
    default:
      return false;
  }
}

bool Same(const CUmemLocation& a, const CUmemLocation& b) { return a.type == b.type && a.id == b.id; }

// A location in the words of the attributes that know only device ordinals, CPU and "none".
int Ordinal(const CUmemLocation& location) {
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE) return location.id;
  return location.type == CU_MEM_LOCATION_TYPE_INVALID ? CU_DEVICE_INVALID : CU_DEVICE_CPU;
}

// The location that all parts share, else none.
CUmemLocation Common(const std::vector<RangeAdvice>& parts, CUmemLocation RangeAdvice::*field) {
  CUmemLocation first = parts.front().*field;
  bool all =
      std::all_of(parts.begin(), parts.end(), [&](const auto& part) { return Same(part.*field, first); });
  return all ? first : CUmemLocation{CU_MEM_LOCATION_TYPE_INVALID, CU_DEVICE_INVALID};
}

// Ordinals that access all parts directly; the rest of `out` says "none".
void FillAccessedBy(const std::vector<RangeAdvice>& parts, int* out, size_t count) {
  size_t used = 0;
  for (const CUmemLocation& location : parts.front().accessed_by) {
    bool everywhere = std::all_of(parts.begin(), parts.end(), [&](const RangeAdvice& part) {
      return std::any_of(part.accessed_by.begin(), part.accessed_by.end(),
                         [&](const CUmemLocation& other) { return Same(location, other); });
    });
    if (everywhere && used < count) out[used++] = Ordinal(location);
  }
  std::fill(out + used, out + count, CU_DEVICE_INVALID);
}

CUresult Answer(const std::vector<RangeAdvice>& parts, CUmem_range_attribute attribute, void* data,
                size_t size) {
  bool list = attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
  if (data == nullptr || (list ? size == 0 || size % sizeof(int) != 0 : size != sizeof(int))) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  int* out = static_cast<int*>(data);
  CUmemLocation preferred = Common(parts, &RangeAdvice::preferred);
  CUmemLocation prefetched = Common(parts, &RangeAdvice::last_prefetch);
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      *out = std::all_of(parts.begin(), parts.end(), [](const auto& part) { return part.read_mostly; });
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
      *out = Ordinal(preferred);
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
      FillAccessedBy(parts, out, size / sizeof(int));
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
      *out = Ordinal(prefetched);
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      *out = preferred.type;
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      *out = preferred.id;
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      *out = prefetched.type;
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      *out = prefetched.id;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace
}  // namespace softgpu

using namespace softgpu;

extern "C" {

CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (dptr == nullptr || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Context& context = entry.context();
  return Manager(entry).AllocateManaged(context.handle(), context.ordinal(), bytesize, flags, dptr);
}

CUresult CUDAAPI cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                                CUmemLocation location) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  bool known = advice >= CU_MEM_ADVISE_SET_READ_MOSTLY && advice <= CU_MEM_ADVISE_UNSET_ACCESSED_BY;
  bool by_location = advice != CU_MEM_ADVISE_SET_READ_MOSTLY && advice != CU_MEM_ADVISE_UNSET_READ_MOSTLY &&
                     advice != CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION;
  if (!known) return CUDA_ERROR_INVALID_VALUE;
  if (by_location && !ValidLocation(entry, location)) return CUDA_ERROR_INVALID_DEVICE;
  return Manager(entry).Advise(devPtr, count, advice, location);
}

CUresult CUDAAPI cuMemPrefetchAsync_v2(CUdeviceptr devPtr, size_t count, CUmemLocation location,
                                       unsigned int flags, CUstream hStream) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (!ValidLocation(entry, location)) return CUDA_ERROR_INVALID_DEVICE;
  CUresult error = CUDA_SUCCESS;
  if (ResolveStream(entry.context(), hStream, &error) == nullptr) return error;
  // Managed memory is in one place for everybody: there is nothing to move.
  return Manager(entry).NotePrefetch(devPtr, count, location);
}

CUresult CUDAAPI cuMemRangeGetAttribute(void* data, size_t dataSize, CUmem_range_attribute attribute,
                                        CUdeviceptr devPtr, size_t count) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  std::vector<RangeAdvice> parts;
  CUresult found = Manager(entry).GetAdvice(devPtr, count, &parts);
  return found == CUDA_SUCCESS ? Answer(parts, attribute, data, dataSize) : found;
}

CUresult CUDAAPI cuMemRangeGetAttributes(void** data, size_t* dataSizes, CUmem_range_attribute* attributes,
                                         size_t numAttributes, CUdeviceptr devPtr, size_t count) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (data == nullptr || dataSizes == nullptr || attributes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<RangeAdvice> parts;
  CUresult result = Manager(entry).GetAdvice(devPtr, count, &parts);
  for (size_t i = 0; i < numAttributes && result == CUDA_SUCCESS; ++i) {
    result = Answer(parts, attributes[i], data[i], dataSizes[i]);
  }
  return result;
}

}  // extern "C"
