// Mapping: sole owner of a range of mapped memory. Move-only; unmaps at most once. Not thread-safe, like any
// value.
#ifndef BASE_MAPPING_H_
#define BASE_MAPPING_H_

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/status.h"

namespace stasis {

class Mapping {
 public:
  // Who sees a write: the file and everybody who maps it, or this mapping alone.
  enum class Sharing { kShared, kPrivate };

  Mapping() = default;  // owns nothing
  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    if (this != &other) {
      Reset();
      data_ = std::exchange(other.data_, nullptr);
      size_ = std::exchange(other.size_, 0);
    }
    return *this;
  }
  ~Mapping() { Reset(); }

  // Private zeroed memory. `size` in bytes, more than zero; `protection` as for mmap(2).
  static Result<Mapping> Anonymous(size_t size, int protection = PROT_READ | PROT_WRITE);
  // Address space only: inaccessible, and charged to nobody until protected otherwise.
  static Result<Mapping> Reserve(size_t size);
  // `size` bytes of the file behind `fd` from `offset` (a multiple of the page size). The descriptor may be
  // closed afterwards. Touching a page beyond the end of the file raises SIGBUS, as ever.
  static Result<Mapping> OfFd(int fd, uint64_t offset, size_t size, int protection,
                              Sharing sharing = Sharing::kShared);
  // Takes over a range that was mapped elsewhere.
  static Mapping Adopt(void* data, size_t size) { return Mapping(data, size); }

  bool valid() const { return data_ != nullptr; }
  void* data() const { return data_; }
  std::byte* bytes() const { return static_cast<std::byte*>(data_); }
  size_t size() const { return size_; }

  // For memory that will be filled as a whole: the kernel gives it out in large pages where it may
  // (transparent huge pages), which costs a fraction of small ones.
  void PreferLargePages();
  // Changes the protection of the whole range.
  Status Protect(int protection);
  // Gives the range up without unmapping it; the size is lost with it.
  void* Release() {
    size_ = 0;
    return std::exchange(data_, nullptr);
  }
  // Unmaps what is held. errno is kept.
  void Reset();

 private:
  Mapping(void* data, size_t size) : data_(data), size_(size) {}
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace stasis

#endif  // BASE_MAPPING_H_
