// The conversions that programs spend their time in. Compiled once per instruction set variant; the others
// are in alu_convert_rest.cc.
#include "softgpu/ptx/exec/alu_convert.h"

namespace softgpu::exec::SOFTGPU_ISA {
namespace {

template <typename To>
LaneFn Resize(Type source) {
  switch (source) {
    case Type::kU8:
      return &Unary<IntToInt<To, IntU8, false>>;
    case Type::kS8:
      return &Unary<IntToInt<To, IntS8, false>>;
    case Type::kU16:
      return &Unary<IntToInt<To, IntU16, false>>;
    case Type::kS16:
      return &Unary<IntToInt<To, IntS16, false>>;
    case Type::kU32:
      return &Unary<IntToInt<To, IntU32, false>>;
    case Type::kS32:
      return &Unary<IntToInt<To, IntS32, false>>;
    case Type::kU64:
      return &Unary<IntToInt<To, IntU64, false>>;
    case Type::kS64:
      return &Unary<IntToInt<To, IntS64, false>>;
    default:
      return nullptr;
  }
}
template <typename To>
LaneFn Nearest(Type source) {
  switch (source) {
    case Type::kU16:
      return &Unary<IntToFloat<To, IntU16, Round::kNearest, false>>;
    case Type::kS16:
      return &Unary<IntToFloat<To, IntS16, Round::kNearest, false>>;
    case Type::kU32:
      return &Unary<IntToFloat<To, IntU32, Round::kNearest, false>>;
    case Type::kS32:
      return &Unary<IntToFloat<To, IntS32, Round::kNearest, false>>;
    case Type::kU64:
      return &Unary<IntToFloat<To, IntU64, Round::kNearest, false>>;
    case Type::kS64:
      return &Unary<IntToFloat<To, IntS64, Round::kNearest, false>>;
    default:
      return nullptr;
  }
}
template <typename To>
LaneFn Integer(const AluKey& k) {
  if (k.source == Type::kF64) return k.ftz ? nullptr : IntegralRound<To, F64, false>(k.round);
  if (k.source != Type::kF32) return nullptr;
  return k.ftz ? IntegralRound<To, F32, true>(k.round) : IntegralRound<To, F32, false>(k.round);
}
template <typename T>
LaneFn Integral(Round round) {
  switch (round) {
    case Round::kNearest:
      return &Unary<FloatToFloat<T, T, Round::kNearest, kIntegral>>;
    case Round::kZero:
      return &Unary<FloatToFloat<T, T, Round::kZero, kIntegral>>;
    case Round::kDown:
      return &Unary<FloatToFloat<T, T, Round::kDown, kIntegral>>;
    case Round::kUp:
      return &Unary<FloatToFloat<T, T, Round::kUp, kIntegral>>;
    default:
      return nullptr;
  }
}
LaneFn BetweenIntegers(const AluKey& k) {
  switch (k.type) {
    case Type::kU8:
      return Resize<IntU8>(k.source);
    case Type::kS8:
      return Resize<IntS8>(k.source);
    case Type::kU16:
    case Type::kS16:
      return Resize<IntU16>(k.source);
    case Type::kU32:
    case Type::kS32:
      return Resize<IntU32>(k.source);
    case Type::kU64:
    case Type::kS64:
      return Resize<IntU64>(k.source);
    default:
      return nullptr;
  }
}
LaneFn ToIntegers(const AluKey& k) {
  switch (k.type) {
    case Type::kU32:
      return Integer<IntU32>(k);
    case Type::kS32:
      return Integer<IntS32>(k);
    case Type::kU64:
      return Integer<IntU64>(k);
    case Type::kS64:
      return Integer<IntS64>(k);
    default:
      return nullptr;
  }
}
LaneFn ToNearest(const AluKey& k) {
  bool integer =
      k.source != Type::kF16 && k.source != Type::kBF16 && k.source != Type::kF64 && k.source != Type::kF32;
  if (integer && k.type == Type::kF32) return Nearest<F32>(k.source);
  if (integer && k.type == Type::kF64) return Nearest<F64>(k.source);
  if (k.source == Type::kF64 && k.type == Type::kF32)
    return &Unary<FloatToFloat<F32, F64, Round::kNearest, kPlain>>;
  if (k.source == Type::kF32 && k.type == Type::kF16)
    return &Unary<FloatToFloat<F16, F32, Round::kNearest, kPlain>>;
  if (k.source == Type::kF32 && k.type == Type::kBF16)
    return &Unary<FloatToFloat<BF16, F32, Round::kNearest, kPlain>>;
  return nullptr;
}
LaneFn Widening(const AluKey& k) {
  if (k.source == Type::kF16 && k.type == Type::kF32)
    return &Unary<FloatToFloat<F32, F16, Round::kNone, kPlain>>;
  if (k.source == Type::kBF16 && k.type == Type::kF32)
    return &Unary<FloatToFloat<F32, BF16, Round::kNone, kPlain>>;
  if (k.source == Type::kF32 && k.type == Type::kF64)
    return &Unary<FloatToFloat<F64, F32, Round::kNone, kPlain>>;
  return BetweenIntegers(k);
}
LaneFn Find(const AluKey& k) {
  bool to_float = k.type == Type::kF32 || k.type == Type::kF64;
  if (k.integral && !to_float) return ToIntegers(k);
  // A .sat of float to integer changes nothing; in all other conversions it does.
  if (k.sat || k.relu || k.satfinite || k.ftz) return nullptr;
  if (k.integral) {
    if (k.type != k.source) return nullptr;
    return k.type == Type::kF32 ? Integral<F32>(k.round) : Integral<F64>(k.round);
  }
  return k.round == Round::kNearest ? ToNearest(k) : k.round == Round::kNone ? Widening(k) : nullptr;
}

}  // namespace

bool ResolveConvert(const AluKey& k, AluOp* op) {
  if (k.code != AluCode::kCvt || k.relu || k.satfinite) return false;
  bool pair = k.source == Type::kF32 && k.round == Round::kNearest && !k.sat && !k.ftz;
  if (pair && k.type == Type::kF16x2) {
    return Fill(op, &Binary<PackTwo<Half, Round::kNearest, false, false>>, 2, k.type, k.source, k.source);
  }
  if (pair && k.type == Type::kBF16x2) {
    return Fill(op, &Binary<PackTwo<Bfloat, Round::kNearest, false, false>>, 2, k.type, k.source, k.source);
  }
  LaneFn fn = Find(k);
  return fn != nullptr && Fill(op, fn, 1, k.type, k.source);
}

}  // namespace softgpu::exec::SOFTGPU_ISA
