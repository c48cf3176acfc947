#include <stasis/memory.h>

#include <algorithm>

#include "cuda_check.h"
#include "device_pool.h"

namespace sample {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kSmallest = 512;
constexpr size_t kLargeGranularity = 2 * kMiB;

size_t RoundUp(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace

size_t DevicePool::BlockSize(size_t bytes) {
  if (bytes > kMiB) return RoundUp(bytes, kLargeGranularity);
  size_t size = kSmallest;
  while (size < bytes) size *= 2;
  return size;
}

DevicePool::DevicePool(size_t bytes)
    : segment_size_(RoundUp(bytes, kSegments * kLargeGranularity) / kSegments) {
  for (int i = 0; i < kSegments; ++i) {
    void* base = nullptr;
    CUDA_CHECK(cudaMalloc(&base, segment_size_));
    segments_.push_back({static_cast<char*>(base), 0});
    // Nothing in it is in use.
    stasis_memory_alloc(base, segment_size_);
    stasis_memory_free(base);
  }
}

DevicePool::~DevicePool() {
  for (const Segment& segment : segments_) cudaFree(segment.base);
}

void* DevicePool::Allocate(size_t bytes) {
  const size_t size = BlockSize(bytes);
  std::vector<void*>& cached = free_[size];
  void* block = nullptr;
  if (cached.empty()) {
    block = Carve(size);
  } else {
    block = cached.back();
    cached.pop_back();
  }
  live_ += size;
  peak_ = std::max(peak_, live_);
  stasis_memory_alloc(block, bytes);
  return block;
}

void DevicePool::Free(void* block, size_t bytes) {
  const size_t size = BlockSize(bytes);
  stasis_memory_free(block);
  free_[size].push_back(block);
  live_ -= size;
}

void* DevicePool::Carve(size_t size) {
  for (Segment& segment : segments_) {
    if (segment.used + size > segment_size_) continue;
    void* block = segment.base + segment.used;
    segment.used += size;
    return block;
  }
  Fail(kExitFailure, "the memory pool of %zu MiB is too small for a block of %zu bytes; raise --pool",
       reserved() / kMiB, size);
}

}  // namespace sample
