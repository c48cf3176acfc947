#include "vmm/managed_advice.h"

#include <algorithm>
#include <iterator>

#include "vmm/device_map.h"
#include "vmm/extent.h"

namespace stasis::vmm {
namespace {

// Hints go by whole pages: those that a range touches.
constexpr uint64_t kHintPage = 4096;
constexpr int kMostNodes = 1024;

int Ordinal(std::pair<int, int> location) {
  if (location.first == CU_MEM_LOCATION_TYPE_DEVICE) return location.second;
  return location.first == CU_MEM_LOCATION_TYPE_INVALID ? CU_DEVICE_INVALID : CU_DEVICE_CPU;
}

bool Has(const std::vector<std::pair<int, int>>& list, std::pair<int, int> location) {
  return std::find(list.begin(), list.end(), location) != list.end();
}

}  // namespace

ManagedAdvice& ManagedAdvice::Get() {
  static ManagedAdvice* const advice = new ManagedAdvice;  // outlives every destructor
  return *advice;
}

CUmemLocation ManagedAdvice::OfDevice(CUdevice device) {
  CUmemLocation location{};
  location.type = device == CU_DEVICE_CPU ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device == CU_DEVICE_CPU ? 0 : device;
  return location;
}

bool ManagedAdvice::IsPlace(const CUmemLocation& location) {
  switch (location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return location.id >= 0 && static_cast<size_t>(location.id) < VisibleDevices().size();
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
      return location.id >= 0 && location.id < kMostNodes;
    default:
      return location.type == CU_MEM_LOCATION_TYPE_HOST ||
             location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
  }
}

// Afterwards no part reaches across `at`.
void ManagedAdvice::CutLocked(uint64_t at) {
  auto next = parts_.lower_bound(at);
  if (next == parts_.begin()) return;
  auto part = std::prev(next);
  const uint64_t end = part->second.first;
  if (end <= at) return;
  part->second.first = at;
  parts_.emplace(at, std::make_pair(end, part->second.second));
}

void ManagedAdvice::ChangeLocked(uint64_t first, uint64_t end, const std::function<void(Hints&)>& change) {
  CutLocked(first);
  CutLocked(end);
  for (uint64_t at = first; at < end;) {
    auto part = parts_.lower_bound(at);
    if (part == parts_.end() || part->first != at) {
      const uint64_t gap_end = part == parts_.end() ? end : std::min(end, part->first);
      part = parts_.emplace(at, std::make_pair(gap_end, Hints{})).first;
    }
    change(part->second.second);
    at = part->second.first;
  }
}

CUresult ManagedAdvice::Advise(uint64_t address, uint64_t size, CUmem_advise advice, CUmemLocation location) {
  const Location place{location.type, location.id};
  const auto change = [&](Hints& hints) {
    switch (advice) {
      case CU_MEM_ADVISE_SET_READ_MOSTLY:
      case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        hints.read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
        break;
      case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        hints.preferred = place;
        break;
      case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        hints.preferred = Hints{}.preferred;
        break;
      case CU_MEM_ADVISE_SET_ACCESSED_BY:
        if (!Has(hints.accessed_by, place)) hints.accessed_by.push_back(place);
        break;
      case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        std::erase(hints.accessed_by, place);
        break;
    }
  };
  if (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
    return CUDA_ERROR_INVALID_VALUE;
  const bool placed = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
                      advice == CU_MEM_ADVISE_SET_ACCESSED_BY || advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
  if (placed && !IsPlace(location)) return CUDA_ERROR_INVALID_DEVICE;
  const std::lock_guard lock(mutex_);
  ChangeLocked(RoundDown(address, kHintPage), RoundUp(address + size, kHintPage), change);
  return CUDA_SUCCESS;
}

void ManagedAdvice::NotePrefetch(uint64_t address, uint64_t size, CUmemLocation location) {
  const std::lock_guard lock(mutex_);
  ChangeLocked(RoundDown(address, kHintPage), RoundUp(address + size, kHintPage), [&](Hints& hints) {
    hints.prefetched = {location.type, location.id};
  });
}

void ManagedAdvice::Forget(uint64_t address, uint64_t size) {
  const std::lock_guard lock(mutex_);
  CutLocked(address);
  CutLocked(RoundUp(address + size, kHintPage));
  parts_.erase(parts_.lower_bound(address), parts_.lower_bound(RoundUp(address + size, kHintPage)));
}

// Of every part of the range, gaps included.
std::vector<ManagedAdvice::Hints> ManagedAdvice::PartsOf(uint64_t address, uint64_t size) const {
  const std::lock_guard lock(mutex_);
  std::vector<Hints> parts;
  uint64_t at = address;
  auto part = parts_.upper_bound(address);
  if (part != parts_.begin()) --part;
  for (; part != parts_.end() && part->first < address + size; ++part) {
    if (part->second.first <= at) continue;
    if (part->first > at) parts.emplace_back();
    parts.push_back(part->second.second);
    at = part->second.first;
  }
  if (at < address + size) parts.emplace_back();
  return parts;
}

ManagedAdvice::Location ManagedAdvice::Common(const std::vector<Hints>& parts, Location Hints::*field) {
  const Location first = parts.front().*field;
  const bool all =
      std::all_of(parts.begin(), parts.end(), [&](const Hints& hints) { return hints.*field == first; });
  return all ? first : Location{CU_MEM_LOCATION_TYPE_INVALID, CU_DEVICE_INVALID};
}

void ManagedAdvice::FillAccessedBy(const std::vector<Hints>& parts, int* out, size_t count) {
  std::fill(out, out + count, CU_DEVICE_INVALID);
  size_t used = 0;
  for (const Location& location : parts.front().accessed_by) {
    const bool everywhere = std::all_of(parts.begin(), parts.end(),
                                        [&](const Hints& hints) { return Has(hints.accessed_by, location); });
    if (everywhere && used < count) out[used++] = Ordinal(location);
  }
}

CUresult ManagedAdvice::Answer(uint64_t address, uint64_t size, CUmem_range_attribute attribute, void* data,
                               size_t data_size) const {
  const bool list = attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
  const bool fits = list ? data_size != 0 && data_size % sizeof(int) == 0 : data_size == sizeof(int);
  if (data == nullptr || !fits) return CUDA_ERROR_INVALID_VALUE;
  const std::vector<Hints> parts = PartsOf(address, size);
  const Location preferred = Common(parts, &Hints::preferred);
  const Location prefetched = Common(parts, &Hints::prefetched);
  int* const out = static_cast<int*>(data);
  switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
      *out = std::all_of(parts.begin(), parts.end(), [](const Hints& hints) { return hints.read_mostly; });
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
      FillAccessedBy(parts, out, data_size / sizeof(int));
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
      *out = Ordinal(preferred);
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
      *out = Ordinal(prefetched);
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
      *out = preferred.first;
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
      *out = preferred.second;
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
      *out = prefetched.first;
      return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
      *out = prefetched.second;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace stasis::vmm
