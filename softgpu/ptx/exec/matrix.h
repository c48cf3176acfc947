// Warp-wide matrix instructions: wmma, mma.sync and ldmatrix.
#ifndef SOFTGPU_PTX_EXEC_MATRIX_H_
#define SOFTGPU_PTX_EXEC_MATRIX_H_

#include <cstdint>

#include "softgpu/ptx/exec/code.h"
#include "softgpu/ptx/exec/warp.h"
#include "softgpu/ptx/module.h"

namespace softgpu::exec {

// One matrix spread over the registers of a warp.
struct Fragment {
  // kManual: the layouts that the manual gives for mma with .m16n8k*. kOpaque: wmma's, which programs may not
  // rely on; here lane l holds consecutive elements in row-major order, repeated when there are more
  // registers than elements.
  enum class Layout : uint8_t { kOpaque, kManualA, kManualB, kManualC } layout = Layout::kOpaque;
  ptx::Type type = ptx::Type::kNone;  // f16 bf16 tf32 f32 s32 s8 u8
  unsigned rows = 0, columns = 0;
  unsigned registers = 0;  // 32-bit registers a lane
};

struct MmaOp {
  Fragment a, b, c, d;
  bool saturate = false;  // .satfinite on integers
  // wmma.load and wmma.store use d only:
  MemSpace space = MemSpace::kGeneric;
  bool row_major = true;
  // ldmatrix: number of 8x8 matrices, and .trans
  unsigned count = 0;
  bool transpose = false;
};

// refs: registers of d, a, b, c
const Inst* OpMatrixMultiply(Warp& w, const Inst* i);
// address as loads, c = stride in elements; refs: registers of d
const Inst* OpMatrixLoad(Warp& w, const Inst* i);
const Inst* OpMatrixStore(Warp& w, const Inst* i);
// address as loads (shared memory), refs: count registers
const Inst* OpLoadMatrix8x8(Warp& w, const Inst* i);

}  // namespace softgpu::exec

#endif  // SOFTGPU_PTX_EXEC_MATRIX_H_
