// Extent: one piece of physical device memory of ours, mapped at one address. Plain data and the driver calls
// on it; whoever owns it serialises.
#ifndef VMM_EXTENT_H_
#define VMM_EXTENT_H_

#include <cuda.h>

#include <cstdint>
#include <map>

#include "base/fd.h"
#include "base/status.h"

namespace stasis::vmm {

// Granularity of physical memory and of mappings. Every device so far has this one; a device with another is
// refused when its first arena is made.
inline constexpr uint64_t kPage = 2ull << 20;

inline constexpr uint64_t RoundDown(uint64_t value, uint64_t unit) { return value / unit * unit; }
inline constexpr uint64_t RoundUp(uint64_t value, uint64_t unit) { return RoundDown(value + unit - 1, unit); }

// What each device (virtual ordinal) may do with memory.
using AccessRights = std::map<int, CUmemAccess_flags>;

struct Extent {
  uint64_t id = 0;  // unique in the process, never used again
  uint64_t address = 0, size = 0;
  CUmemGenericAllocationHandle handle = 0;
  bool created = false;  // `handle` is good
  bool mapped = false;
  bool stayed = false;  // it was to be given up, and could not
  bool shared = false;  // parts of it may belong to different allocations
  uint64_t share = 0;   // TaskExtent::share
};

uint64_t NextExtentId();

// CUDA_ERROR_NOT_SUPPORTED when memory of the device (virtual ordinal) does not come in pages of kPage.
CUresult CheckGranularity(int device);
// Physical memory on `device` (virtual ordinal) that can be exported. The driver's error.
CUresult CreatePhysical(int device, uint64_t size, CUmemGenericAllocationHandle* handle);
// Maps a created extent into reserved addresses and grants `rights`. On failure it is not mapped.
CUresult MapExtent(Extent& extent, const AccessRights& rights);
// Grants rights on a mapped extent.
CUresult GrantAccess(const Extent& extent, const AccessRights& rights);
// Unmaps and releases, as far as there is something. Waits for device work. The first error; what failed is
// still marked as held.
CUresult DiscardExtent(Extent& extent);
Result<Fd> ExportHandle(CUmemGenericAllocationHandle handle);
// The handle behind `fd`, which stays the caller's.
Status ImportHandle(const Fd& fd, CUmemGenericAllocationHandle* handle);

}  // namespace stasis::vmm

#endif  // VMM_EXTENT_H_
