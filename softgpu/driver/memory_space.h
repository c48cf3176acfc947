// The process's address space as the device sees it: reservations, and pages mapped into them.
//
// Device memory is mapped shared and readable/writable at its device address, because the executor and the
// driver's own copies work on it directly. A program that dereferences a device pointer on the host therefore
// reads device memory here, where a real machine would raise SIGSEGV: this double does not catch that
// mistake. A child made by fork inherits none of it, as with the real driver. All functions are thread-safe
// (they are system calls).
#ifndef SOFTGPU_DRIVER_MEMORY_SPACE_H_
#define SOFTGPU_DRIVER_MEMORY_SPACE_H_

#include <cstdint>

#include "base/status.h"

namespace softgpu {

inline constexpr uint64_t kPageBytes = 4096;
inline constexpr uint64_t kLargePage = 2ull << 20;  // granularity of physical device memory

constexpr uint64_t RoundUp(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Reserves `size` bytes (a multiple of kPageBytes) at a multiple of `alignment` (a power of two), without
// memory behind them. A non-zero `hint` that is free and aligned is honoured, else another place is chosen.
stasis::Result<uint64_t> ReserveAddresses(uint64_t size, uint64_t alignment, uint64_t hint);
// The same at the lowest free address of the window for the memory of modules, so that a program which loads
// the same code again finds its variables where they were, as on a real device. `size` is a multiple of
// kLargePage. Elsewhere when the window is full.
stasis::Result<uint64_t> ReserveModuleAddresses(uint64_t size);
// Gives a reservation, or part of one, back to the process with whatever is mapped in it.
void ReleaseAddresses(uint64_t base, uint64_t size);
// Maps `size` bytes of `fd` from `offset` at `base`, inside a reservation. Not inherited by fork.
stasis::Status MapPages(uint64_t base, uint64_t size, int fd, uint64_t offset);
// Maps the shared pages that lie at `from` a second time at `to`, inside a reservation.
stasis::Status AliasPages(uint64_t to, uint64_t from, uint64_t size);
// Maps private zeroed memory at `base`, inside a reservation. Inherited by fork, like any memory of the
// program.
stasis::Status MapHostPages(uint64_t base, uint64_t size);
// Takes the pages away and keeps the addresses reserved.
void UnmapPages(uint64_t base, uint64_t size);

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_MEMORY_SPACE_H_
