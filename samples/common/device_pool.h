// A caching allocator for device memory, as frameworks have: it reserves a few large segments at start and
// serves every allocation from them. Freed blocks are kept by size and handed out again; nothing returns to
// the driver before the pool ends. So what the program uses is much less than what it holds; it tells Stasis,
// if that runs it, which part that is.
#pragma once

#include <stddef.h>

#include <map>
#include <utility>
#include <vector>

namespace sample {

// Not thread-safe. A freed block may be handed out at once: all work on pool memory must be ordered by one
// stream.
class DevicePool {
 public:
  // Reserves at least `bytes` in kSegments pieces; ends the program when the device has not so much.
  explicit DevicePool(size_t bytes);
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;
  ~DevicePool();

  // A block aligned to 512 bytes; its content is whatever was there. Ends the program when the pool is too
  // small.
  void* Allocate(size_t bytes);
  void Free(void* block, size_t bytes);

  size_t reserved() const { return segment_size_ * kSegments; }
  size_t live() const { return live_; }
  size_t peak() const { return peak_; }

  // The size of the block that serves a request: a power of two up to 1 MiB, a multiple of 2 MiB above.
  static size_t BlockSize(size_t bytes);

  static constexpr int kSegments = 4;

 private:
  struct Segment {
    char* base;
    size_t used;
  };

  void* Carve(size_t size);

  size_t segment_size_;
  size_t live_ = 0;
  size_t peak_ = 0;
  std::vector<Segment> segments_;
  std::map<size_t, std::vector<void*>> free_;
};

// An array in a pool, freed with its owner.
template <typename T>
class PoolArray {
 public:
  PoolArray() = default;
  PoolArray(DevicePool* pool, size_t count)
      : pool_(pool), count_(count), data_(static_cast<T*>(pool->Allocate(count * sizeof(T)))) {}
  PoolArray(PoolArray&& other) noexcept { Swap(&other); }
  PoolArray& operator=(PoolArray&& other) noexcept {
    PoolArray(std::move(other)).Swap(this);
    return *this;
  }
  ~PoolArray() {
    if (pool_ != nullptr) pool_->Free(data_, bytes());
  }

  T* data() const { return data_; }
  size_t count() const { return count_; }
  size_t bytes() const { return count_ * sizeof(T); }

 private:
  void Swap(PoolArray* other) {
    std::swap(pool_, other->pool_);
    std::swap(count_, other->count_);
    std::swap(data_, other->data_);
  }

  DevicePool* pool_ = nullptr;
  size_t count_ = 0;
  T* data_ = nullptr;
};

}  // namespace sample
