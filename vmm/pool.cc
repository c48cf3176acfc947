#include "vmm/pool.h"

#include <algorithm>

#include "vmm/events.h"
#include "vmm/real_driver.h"

namespace stasis::vmm {
namespace {

// A block freed in a stream is taken again by that stream when not more than half of it would lie idle.
bool FitsSnugly(uint64_t block, uint64_t size) { return size <= block && block / 2 <= size; }

}  // namespace

CUresult Pool::Store(CUmemPool_attribute attribute, const void* value) {
  const int flag = *static_cast<const int*>(value) != 0;
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      follow_events = flag;
      break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      opportunistic = flag;
      break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      internal_dependencies = flag;
      break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      release_threshold = *static_cast<const cuuint64_t*>(value);
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      reserved.high = reserved.current;
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      used.high = used.current;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

CUresult Pool::Load(CUmemPool_attribute attribute, void* value) const {
  int* const flag = static_cast<int*>(value);
  cuuint64_t* const number = static_cast<cuuint64_t*>(value);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
      *flag = follow_events;
      break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
      *flag = opportunistic;
      break;
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      *flag = internal_dependencies;
      break;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      *number = release_threshold;
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      *number = reserved.current;
      break;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      *number = reserved.high;
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      *number = used.current;
      break;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      *number = used.high;
      break;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

void Pool::GiveBack(const PendingFree& free) {
  if (free.event != nullptr) Events::Get().Return(free.context, free.event);
  std::vector<Extent> none;  // a pool's arena keeps what is free
  arena->Free(free.base, free.occupied, &none);
  used.Set(used.current - free.occupied);
}

void Pool::Fold(bool all) {
  for (auto it = pending.begin(); it != pending.end();) {
    auto current = it++;
    if (!all && current->event != nullptr && !Events::Get().Passed(current->event)) continue;
    GiveBack(*current);
    pending.erase(current);
  }
}

bool Pool::ReuseOfStream(uint64_t size, unsigned long long stream_id, uint64_t* base, uint64_t* occupied) {
  auto best = pending.end();
  for (auto it = pending.begin(); it != pending.end(); ++it) {
    if (it->stream_id != stream_id || !FitsSnugly(it->occupied, size)) continue;
    if (best == pending.end() || it->occupied < best->occupied) best = it;
  }
  if (best == pending.end()) return false;
  if (best->event != nullptr) Events::Get().Return(best->context, best->event);
  *base = best->base;
  *occupied = best->occupied;
  pending.erase(best);
  return true;
}

// The stream is made to wait for the stream that frees the block (REUSE_ALLOW_INTERNAL_DEPENDENCIES).
bool Pool::ReuseByWaiting(uint64_t size, const StreamPlace& place, uint64_t* base, uint64_t* occupied) {
  if (!internal_dependencies) return false;
  auto fit = std::find_if(pending.begin(), pending.end(), [size](const PendingFree& free) {
    return free.occupied >= size && free.event != nullptr;
  });
  if (fit == pending.end()) return false;
  if (Driver().cuStreamWaitEvent(place.stream, fit->event, 0) != CUDA_SUCCESS) return false;
  Events::Get().Return(fit->context, fit->event);
  *base = fit->base;
  *occupied = fit->occupied;
  pending.erase(fit);
  return true;
}

CUresult Pool::Take(size_t bytes, const StreamPlace& place, uint64_t* base, uint64_t* occupied,
                    std::vector<Extent>* discarded) {
  const uint64_t size = Arena::Capacity(bytes);
  if (ReuseOfStream(size, place.id, base, occupied)) return CUDA_SUCCESS;
  bool found = arena->AllocateMapped(bytes, base);
  if (!found && opportunistic) {
    Fold(false);
    found = arena->AllocateMapped(bytes, base);
  }
  CUresult result = CUDA_SUCCESS;
  if (!found) {
    const uint64_t limit = props.maxSize;
    const bool over = limit != 0 && arena->mapped_bytes() + RoundUp(size, kPage) > limit;
    result = over ? CUDA_ERROR_OUT_OF_MEMORY : arena->Allocate(bytes, base, discarded);
    reserved.Set(arena->mapped_bytes());
  }
  if (result == CUDA_ERROR_OUT_OF_MEMORY && ReuseByWaiting(size, place, base, occupied)) return CUDA_SUCCESS;
  if (result != CUDA_SUCCESS) return result;
  *occupied = size;
  used.Set(used.current + size);
  return CUDA_SUCCESS;
}

}  // namespace stasis::vmm
