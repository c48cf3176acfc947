// Filling device memory from an image, as a FanPlan says.
#ifndef GHOST_MEMORY_LOAD_H_
#define GHOST_MEMORY_LOAD_H_

#include <functional>
#include <string>
#include <vector>

#include "dedup/image.h"
#include "ghost/fan_plan.h"
#include "ghost/gpu.h"
#include "ghost/memory_copy.h"

namespace stasis {

// What of one rank is filled. All outlives it.
struct LoadTarget {
  Gpu& gpu;
  const ImageReader& image;
  std::vector<std::string> streams;  // their names, by member
  const RankMemory& own;
  DeviceMemory& memory;  // by member and extent
};

// The chunks that the plan reads from the store, and zeros.
Status LoadFromStore(const LoadTarget& target, const FanPlan& plan, const CopyContext& context);

// Where copies come from.
struct CopySource {
  std::function<const StreamMap&(const MemoryPlace&)> map;
  // The memory of that member's extent, as it is mapped for copies to `device`.
  std::function<const GpuMemory&(const MemoryPlace&, size_t extent, int device)> memory;
};
// From device to device; done when it returns.
Status CopyOnDevices(const LoadTarget& target, const std::vector<MemoryCopy>& copies,
                     const CopySource& source, const CopyContext& context);
// The same bytes from the store instead.
Status LoadCopies(const LoadTarget& target, const std::vector<MemoryCopy>& copies,
                  const CopyContext& context);

}  // namespace stasis

#endif  // GHOST_MEMORY_LOAD_H_
