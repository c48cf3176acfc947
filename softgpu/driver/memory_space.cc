#include "softgpu/driver/memory_space.h"

#include <sys/mman.h>

#include <cerrno>

namespace softgpu {
namespace {

#if defined(__SANITIZE_THREAD__)
#define SOFTGPU_UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SOFTGPU_UNDER_TSAN 1
#endif
#endif

// Where modules' memory lies: far from what the kernel chooses for anything else. ThreadSanitizer lets a
// program have only some parts of the address space; above the executable is one of them (tsan_platform.h of
// LLVM).
#ifdef SOFTGPU_UNDER_TSAN
constexpr uint64_t kWindow = 0x567000000000;
#else
constexpr uint64_t kWindow = 0x2a0000000000;
#endif

constexpr int kReserveFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

void* Pointer(uint64_t address) { return reinterpret_cast<void*>(address); }
uint64_t Address(void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

// A reservation exactly at `hint`, or false.
bool ReserveAt(uint64_t hint, uint64_t size) {
  void* got = mmap(Pointer(hint), size, PROT_NONE, kReserveFlags | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == MAP_FAILED) return false;
  if (Address(got) == hint) return true;
  munmap(got, size);  // kernels before 4.17 take the address for a mere wish
  return false;
}

}  // namespace

stasis::Result<uint64_t> ReserveAddresses(uint64_t size, uint64_t alignment, uint64_t hint) {
  if (hint != 0 && hint % alignment == 0 && ReserveAt(hint, size)) return hint;
  uint64_t slack = alignment > kPageBytes ? alignment - kPageBytes : 0;
  if (size + slack < size)
    return stasis::Errorf(stasis::StatusCode::kInvalidArgument, "reservation too large");
  void* got = mmap(nullptr, size + slack, PROT_NONE, kReserveFlags, -1, 0);
  if (got == MAP_FAILED) return stasis::ErrnoStatus(errno, "reserve addresses");
  uint64_t begin = Address(got), base = RoundUp(begin, alignment);
  if (base != begin) munmap(got, base - begin);
  uint64_t tail = begin + size + slack - (base + size);
  if (tail != 0) munmap(Pointer(base + size), tail);
  return base;
}

// Far from where Linux puts programs, heaps, libraries and stacks.
stasis::Result<uint64_t> ReserveModuleAddresses(uint64_t size) {
  constexpr uint64_t kWindowEnd = kWindow + (64ull << 30);
  for (uint64_t base = kWindow; size <= kWindowEnd - base; base += kLargePage) {
    if (ReserveAt(base, size)) return base;
    if (errno != EEXIST) break;
  }
  return ReserveAddresses(size, kLargePage, 0);
}

void ReleaseAddresses(uint64_t base, uint64_t size) { STASIS_CHECK(munmap(Pointer(base), size) == 0); }

stasis::Status MapPages(uint64_t base, uint64_t size, int fd, uint64_t offset) {
  void* got = mmap(Pointer(base), size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
                   static_cast<off_t>(offset));
  if (got == MAP_FAILED) return stasis::ErrnoStatus(errno, "map device memory");
  if (madvise(got, size, MADV_DONTFORK) != 0)
    return stasis::ErrnoStatus(errno, "keep device memory from children");
  // A GPU's pages are of this size. Where the kernel gives such to shared memory (shmem_enabled, "advise"),
  // mapping and unmapping cost a device's small part of what small pages cost; elsewhere nothing changes.
  if (size >= kLargePage) (void)madvise(got, size, MADV_HUGEPAGE);
  return {};
}

stasis::Status AliasPages(uint64_t to, uint64_t from, uint64_t size) {
  // An old size of zero on a shared mapping asks for a second mapping of the same pages (mremap(2)).
  void* got = mremap(Pointer(from), 0, size, MREMAP_MAYMOVE | MREMAP_FIXED, Pointer(to));
  if (got == MAP_FAILED) return stasis::ErrnoStatus(errno, "map device memory again");
  if (madvise(got, size, MADV_DONTFORK) != 0)
    return stasis::ErrnoStatus(errno, "keep device memory from children");
  return {};
}

stasis::Status MapHostPages(uint64_t base, uint64_t size) {
  void* got = mmap(Pointer(base), size, PROT_READ | PROT_WRITE, kReserveFlags | MAP_FIXED, -1, 0);
  if (got == MAP_FAILED) return stasis::ErrnoStatus(errno, "map host memory");
  return {};
}

void UnmapPages(uint64_t base, uint64_t size) {
  // Out of map entries here would leave the old pages in place under a range that is free: nothing sane can
  // follow.
  STASIS_CHECK(mmap(Pointer(base), size, PROT_NONE, kReserveFlags | MAP_FIXED, -1, 0) != MAP_FAILED);
}

}  // namespace softgpu
