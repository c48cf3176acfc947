// Plain half and bfloat16 arithmetic, single and packed. Compiled once per instruction set variant; the forms
// with more words are in alu_small.cc.
#include "softgpu/ptx/exec/alu_half.h"

namespace softgpu::exec::SOFTGPU_ISA {
namespace {

template <typename F>
struct Add {
  static u32 Of(u32 a, u32 b) { return F::Of(AddToOdd(F::Value(a), F::Value(b))); }
};
template <typename F>
struct Sub {
  static u32 Of(u32 a, u32 b) { return F::Of(AddToOdd(F::Value(a), -F::Value(b))); }
};
template <typename F>
struct Mul {
  static u32 Of(u32 a, u32 b) { return F::Of(F::Value(a) * F::Value(b)); }
};
template <typename F>
struct Fma {
  static u32 Of(u32 a, u32 b, u32 c) { return F::Of(AddToOdd(F::Value(a) * F::Value(b), F::Value(c))); }
};

template <typename R>
struct Single : Same3<u16> {
  static u16 Do(u16 a, u16 b) { return static_cast<u16>(R::Of(a, b)); }
  static u16 Do(u16 a, u16 b, u16 c) { return static_cast<u16>(R::Of(a, b, c)); }
};
template <typename R>
struct Pair : Same3<u32> {
  static u32 Do(u32 a, u32 b) { return R::Of(a & 0xffff, b & 0xffff) | R::Of(a >> 16, b >> 16) << 16; }
  static u32 Do(u32 a, u32 b, u32 c) {
    return R::Of(a & 0xffff, b & 0xffff, c & 0xffff) | R::Of(a >> 16, b >> 16, c >> 16) << 16;
  }
};
template <typename F>
bool Resolve(const AluKey& k, AluOp* op, bool pair) {
  switch (k.code) {
    case AluCode::kAdd:
      return Fill(op, pair ? &Binary<Pair<Add<F>>> : &Binary<Single<Add<F>>>, 2, k.type, k.type, k.type);
    case AluCode::kSub:
      return Fill(op, pair ? &Binary<Pair<Sub<F>>> : &Binary<Single<Sub<F>>>, 2, k.type, k.type, k.type);
    case AluCode::kMul:
      return Fill(op, pair ? &Binary<Pair<Mul<F>>> : &Binary<Single<Mul<F>>>, 2, k.type, k.type, k.type);
    case AluCode::kFma:
      return Fill(op, pair ? &Ternary<Pair<Fma<F>>> : &Ternary<Single<Fma<F>>>, 3, k.type, k.type, k.type,
                  k.type);
    default:
      return false;
  }
}

}  // namespace

bool ResolveHalf(const AluKey& k, AluOp* op) {
  bool plain = (k.round == Round::kNone || k.round == Round::kNearest) && k.source == ptx::Type::kNone;
  if (!plain || k.ftz || k.sat || k.relu || k.nan || k.xorsign_abs) return false;
  switch (k.type) {
    case ptx::Type::kF16:
      return Resolve<Half>(k, op, false);
    case ptx::Type::kF16x2:
      return Resolve<Half>(k, op, true);
    case ptx::Type::kBF16:
      return Resolve<Bfloat>(k, op, false);
    case ptx::Type::kBF16x2:
      return Resolve<Bfloat>(k, op, true);
    default:
      return false;
  }
}

}  // namespace softgpu::exec::SOFTGPU_ISA
