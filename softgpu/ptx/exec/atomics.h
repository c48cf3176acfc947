// Read-modify-write operations on memory.
#ifndef SOFTGPU_PTX_EXEC_ATOMICS_H_
#define SOFTGPU_PTX_EXEC_ATOMICS_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "softgpu/ptx/exec/code.h"
#include "softgpu/ptx/module.h"

namespace softgpu::exec {

struct AtomicOp {
  // Applies the operation of one lane at p (aligned): sources in rows b and c, the old value to row d unless
  // null.
  using Apply = void (*)(const AtomicOp& op, uint8_t* p, const std::byte* b, const std::byte* c, std::byte* d,
                         unsigned lane);
  MemSpace space = MemSpace::kGeneric;
  unsigned bytes = 0;
  Apply apply = nullptr;
  Apply apply_shared = nullptr;  // differs for f32 add: only shared memory keeps subnormal numbers
  LaneFn combine = nullptr;  // 16-bit floating types: new = combine(old, b)
};

// The operation named by `operation` ("add", "cas" ...) on `type`; .space is left to the caller.
// kUnsupported when PTX has none such.
stasis::Result<AtomicOp> FindAtomic(std::string_view operation, ptx::Type type);

// atomic; address as loads; d (or kNoPredicate), b, c rows.
const Inst* OpAtomic(Warp& w, const Inst* i);

}  // namespace softgpu::exec

#endif  // SOFTGPU_PTX_EXEC_ATOMICS_H_
