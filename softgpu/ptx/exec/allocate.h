// Rows for virtual registers.
#ifndef SOFTGPU_PTX_EXEC_ALLOCATE_H_
#define SOFTGPU_PTX_EXEC_ALLOCATE_H_

#include <vector>

#include "softgpu/ptx/exec/lower.h"

namespace softgpu::exec {

// Gives every virtual register of `lowered` (bytes a lane by number, 0 = predicate) a place in the frame,
// sharing rows between registers that are never alive at the same time, and rewrites the references. Lanes of
// a warp may be at different instructions; since rows are written lane by lane, the analysis of one thread
// holds for all. Returns each register's byte offset, kNoPlace for those that no instruction touches.
inline constexpr uint32_t kNoPlace = 0xffffffff;
std::vector<uint32_t> AllocateRows(const std::vector<uint8_t>& vreg_bytes, LoweredFunction* lowered);

}  // namespace softgpu::exec

#endif  // SOFTGPU_PTX_EXEC_ALLOCATE_H_
