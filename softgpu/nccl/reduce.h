// The arithmetic of reductions. The ranks' values are combined in the order of the ranks, so that a result
// depends on the inputs alone, never on time.
//   integers          wrap around; an average is the sum divided by the number of ranks, rounded to zero
//   float, double     in their own precision; an average is the sum divided by the number of ranks
//   half, bfloat16,   in float, rounded once at the end (to nearest even; an fp8 value out of range becomes
//   fp8               the largest finite one)
//   minimum, maximum  the number where the other is a NaN; of equal values the lower rank's
#ifndef SOFTGPU_NCCL_REDUCE_H_
#define SOFTGPU_NCCL_REDUCE_H_

#include <nccl.h>

#include <cstddef>
#include <cstdint>

namespace softgpu::nccl {

enum class Reduction : uint8_t { kSum, kProd, kMax, kMin, kAvg, kPreMulSum, kNone };

// Bytes of an element; 0 for a number that is no type.
size_t ElementBytes(int type);
// "float32"; "?" for a number that is no type.
const char* TypeName(int type);

// One rank's part of a reduction.
struct Part {
  const void* data = nullptr;
  // The factor of kPreMulSum: an element's bytes at the low end.
  uint64_t scalar = 0;
};

// out[i] = parts[0][i] op parts[1][i] ... for `count` elements. `out` may be the data of one of the parts.
void Reduce(ncclDataType_t type, Reduction op, const Part* parts, int ranks, void* out, size_t count);

}  // namespace softgpu::nccl

#endif  // SOFTGPU_NCCL_REDUCE_H_
