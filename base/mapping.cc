#include "base/mapping.h"

#include <cerrno>

namespace stasis {

static Result<Mapping> Map(size_t size, int protection, int flags, int fd, uint64_t offset) {
  if (size == 0) return Status(StatusCode::kInvalidArgument, "map: size is zero");
  void* data = mmap(nullptr, size, protection, flags, fd, static_cast<off_t>(offset));
  if (data == MAP_FAILED) return ErrnoStatus(errno, "mmap");
  return Mapping::Adopt(data, size);
}

Result<Mapping> Mapping::Anonymous(size_t size, int protection) {
  return Map(size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

Result<Mapping> Mapping::Reserve(size_t size) {
  return Map(size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
}

Result<Mapping> Mapping::OfFd(int fd, uint64_t offset, size_t size, int protection, Sharing sharing) {
  return Map(size, protection, sharing == Sharing::kShared ? MAP_SHARED : MAP_PRIVATE, fd, offset);
}

void Mapping::PreferLargePages() {
  // A kernel without them is no reason to fail.
  (void)madvise(data_, size_, MADV_HUGEPAGE);
}

Status Mapping::Protect(int protection) {
  if (mprotect(data_, size_, protection) != 0) return ErrnoStatus(errno, "mprotect");
  return Status();
}

void Mapping::Reset() {
  if (data_ != nullptr) {
    int saved = errno;
    // Fails only for arguments that no mapping has.
    (void)munmap(data_, size_);
    errno = saved;
  }
  data_ = nullptr;
  size_ = 0;
}

}  // namespace stasis
