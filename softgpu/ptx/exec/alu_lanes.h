// How a scalar rule becomes a function over 32 lanes. Included only by the files that are compiled once per
// instruction set variant; everything has internal linkage, and no library header with inline functions is
// used.
//
// A rule is a type with D, A, B, C (lane types as stored) and static D Do(A, B, C). Do() must be total: it is
// computed for inactive lanes too, whose values are arbitrary.
#ifndef SOFTGPU_PTX_EXEC_ALU_LANES_H_
#define SOFTGPU_PTX_EXEC_ALU_LANES_H_

#include <immintrin.h>

#include "softgpu/ptx/exec/alu_key.h"

namespace softgpu::exec::SOFTGPU_ISA {
namespace {

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s8 = int8_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;

template <typename To, typename From>
inline To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

template <typename T>
struct Same3 {
  using D = T;
  using A = T;
  using B = T;
  using C = T;
};

// Writes the lanes of mask; the full warp is the common case and vectorises to plain stores. All results are
// computed before the first is written, since the destination may overlap a source of another width.
template <typename D, typename Compute>
inline __attribute__((always_inline)) void Store(void* d, uint32_t mask, Compute compute) {
  D* to = static_cast<D*>(d);
  D result[kWarpSize];
  if (__builtin_expect(mask == kAllLanes, 1)) {
    for (unsigned l = 0; l < kWarpSize; ++l) result[l] = compute(l);
    for (unsigned l = 0; l < kWarpSize; ++l) to[l] = result[l];
    return;
  }
  for (unsigned l = 0; l < kWarpSize; ++l) result[l] = compute(l);
  for (unsigned l = 0; l < kWarpSize; ++l) to[l] = mask >> l & 1 ? result[l] : to[l];
}

// Never inlined: InMode() relies on the call to keep the arithmetic between its changes of mode.
template <typename R>
__attribute__((noinline)) void Unary(void* d, const void* a, const void*, const void*, uint32_t mask) {
  const typename R::A* x = static_cast<const typename R::A*>(a);
  Store<typename R::D>(
      d, mask, [=](unsigned l) __attribute__((always_inline)) { return R::Do(x[l]); });
}
template <typename R>
__attribute__((noinline)) void Binary(void* d, const void* a, const void* b, const void*, uint32_t mask) {
  const typename R::A* x = static_cast<const typename R::A*>(a);
  const typename R::B* y = static_cast<const typename R::B*>(b);
  Store<typename R::D>(
      d, mask, [=](unsigned l) __attribute__((always_inline)) { return R::Do(x[l], y[l]); });
}
template <typename R>
__attribute__((noinline)) void Ternary(void* d, const void* a, const void* b, const void* c, uint32_t mask) {
  const typename R::A* x = static_cast<const typename R::A*>(a);
  const typename R::B* y = static_cast<const typename R::B*>(b);
  const typename R::C* z = static_cast<const typename R::C*>(c);
  Store<typename R::D>(
      d, mask, [=](unsigned l) __attribute__((always_inline)) { return R::Do(x[l], y[l], z[l]); });
}

// The same under another rounding mode of the FPU. The compiler does not know of the mode, so kFn must be a
// function that is not inlined and whose rounding operations have sources from memory only: there is nothing
// to fold or to move.
enum MxcsrBits : unsigned { kMxDefault = 0x1f80, kMxDown = 0x2000, kMxUp = 0x4000, kMxZero = 0x6000 };
template <LaneFn kFn, unsigned kBits>
void InMode(void* d, const void* a, const void* b, const void* c, uint32_t mask) {
  _mm_setcsr(kMxDefault | kBits);
  asm volatile("" ::: "memory");
  kFn(d, a, b, c, mask);
  asm volatile("" ::: "memory");
  _mm_setcsr(kMxDefault);
}
template <LaneFn kFn>
LaneFn ForMode(Round round) {
  switch (round) {
    case Round::kDown:
      return &InMode<kFn, kMxDown>;
    case Round::kUp:
      return &InMode<kFn, kMxUp>;
    case Round::kZero:
      return &InMode<kFn, kMxZero>;
    default:
      return kFn;
  }
}

template <typename R>
uint32_t CompareLanes(const void* a, const void* b) {
  const typename R::A* x = static_cast<const typename R::A*>(a);
  const typename R::A* y = static_cast<const typename R::A*>(b);
  alignas(32) s8 holds[kWarpSize];
  for (unsigned l = 0; l < kWarpSize; ++l) holds[l] = R::Do(x[l], y[l]) ? -1 : 0;
  const __m128i* halves = reinterpret_cast<const __m128i*>(holds);
  return static_cast<u32>(_mm_movemask_epi8(_mm_load_si128(halves))) |
         static_cast<u32>(_mm_movemask_epi8(_mm_load_si128(halves + 1))) << 16;
}

inline bool Fill(AluOp* op, LaneFn fn, unsigned sources, ptx::Type dest, ptx::Type a,
                 ptx::Type b = ptx::Type::kNone, ptx::Type c = ptx::Type::kNone) {
  op->shape = AluOp::Shape::kLane;
  op->lane = fn;
  op->sources = static_cast<uint8_t>(sources);
  op->dest_type = dest;
  op->source_type[0] = a;
  op->source_type[1] = b;
  op->source_type[2] = c;
  return true;
}

}  // namespace
}  // namespace softgpu::exec::SOFTGPU_ISA

#endif  // SOFTGPU_PTX_EXEC_ALU_LANES_H_
