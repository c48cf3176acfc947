// How a scalar rule becomes a function over 32 lanes. Included only by the files that are compiled once per instruction
// set variant; everything has internal linkage, and no library header with inline functions is used.
//
// A rule is a type with D, A, B, C (lane types as stored) and static D Do(A, B, C). Do() must be total: it is computed
// for inactive lanes too, whose values are arbitrary.
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

// Writes the lanes of mask; the full warp is the common case and vectorises to plain stores.
template <typename D, typename Compute>
inline __attribute__((always_inline)) void Store(void* d, uint32_t mask, Compute compute) {
  D* to = static_cast<D*>(d);
  if (__builtin_expect(mask == kAllLanes, 1)) {
    D result[kWarpSize];
    for (unsigned l = 0; l < kWarpSize; ++l) result[l] = compute(l);
    for (unsigned l = 0; l < kWarpSize; ++l) to[l] = result[l];
    return;
  }
  D result[kWarpSize];
  for (unsigned l = 0; l < kWarpSize; ++l) result[l] = compute(l);
  for (unsigned l = 0; l < kWarpSize; ++l) to[l] = mask >> l & 1 ? result[l] : to[l];
}

template <typename R>
void Unary(void* d, const void* a, const void*, const void*, uint32_t mask) {
  const typename R::A* x = static_cast<const typename R::A*>(a);
  Store<typename R::D>(d, mask, [=](unsigned l) __attribute__((always_inline)) { return R::Do(x[l]); });
}
template <typename R>
void Binary(void* d, const void* a, const void* b, const void*, uint32_t mask) {
  const typename R::A* x = static_cast<const typename R::A*>(a);
  const typename R::B* y = static_cast<const typename R::B*>(b);
  Store<typename R::D>(d, mask, [=](unsigned l) __attribute__((always_inline)) { return R::Do(x[l], y[l]); });
}
template <typename R>
void Ternary(void* d, const void* a, const void* b, const void* c, uint32_t mask) {
  const typename R::A* x = static_cast<const typename R::A*>(a);
  const typename R::B* y = static_cast<const typename R::B*>(b);
  const typename R::C* z = static_cast<const typename R::C*>(c);
  Store<typename R::D>(d, mask, [=](unsigned l) __attribute__((always_inline)) { return R::Do(x[l], y[l], z[l]); });
}

// The same under another rounding or flush mode of the FPU. The barriers keep loads, arithmetic and stores between the
// two changes of mode.
enum MxcsrBits : unsigned { kMxDefault = 0x1f80, kMxDown = 0x2000, kMxUp = 0x4000, kMxZero = 0x6000, kMxFlush = 0x8040 };
template <LaneFn kFn, unsigned kBits>
void InMode(void* d, const void* a, const void* b, const void* c, uint32_t mask) {
  _mm_setcsr(kMxDefault | kBits);
  asm volatile("" ::: "memory");
  kFn(d, a, b, c, mask);
  asm volatile("" ::: "memory");
  _mm_setcsr(kMxDefault);
}
// Picks the variant of kFn for the key's rounding and flush words.
template <LaneFn kFn>
LaneFn ForMode(const AluKey& key) {
  switch (key.round) {
    case Round::kDown: return key.ftz ? &InMode<kFn, kMxDown | kMxFlush> : &InMode<kFn, kMxDown>;
    case Round::kUp: return key.ftz ? &InMode<kFn, kMxUp | kMxFlush> : &InMode<kFn, kMxUp>;
    case Round::kZero: return key.ftz ? &InMode<kFn, kMxZero | kMxFlush> : &InMode<kFn, kMxZero>;
    default: return key.ftz ? &InMode<kFn, kMxFlush> : kFn;
  }
}

template <typename R>
uint32_t CompareLanes(const void* a, const void* b) {
  const typename R::A* x = static_cast<const typename R::A*>(a);
  const typename R::A* y = static_cast<const typename R::A*>(b);
  uint32_t bits = 0;
  for (unsigned l = 0; l < kWarpSize; ++l) bits |= static_cast<uint32_t>(R::Do(x[l], y[l])) << l;
  return bits;
}

inline bool Fill(AluOp* op, LaneFn fn, unsigned sources, ptx::Type dest, ptx::Type a, ptx::Type b = ptx::Type::kNone,
                 ptx::Type c = ptx::Type::kNone) {
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
