// Single and double precision arithmetic, ordering and approximations (PTX ISA: floating point, comparison).
// Compiled once per instruction set variant; directed rounding is a mode of the FPU around the loop over
// lanes.
#include "softgpu/ptx/exec/alu_math.h"

namespace softgpu::exec::SOFTGPU_ISA {
namespace {

template <typename T, bool kFlush>
struct Add : Same3<T> {
  static T Do(T a, T b) { return Result<kFlush>(Flushed<kFlush>(a) + Flushed<kFlush>(b), a, b); }
};
template <typename T, bool kFlush>
struct Sub : Same3<T> {
  static T Do(T a, T b) { return Result<kFlush>(Flushed<kFlush>(a) - Flushed<kFlush>(b), a, b); }
};
template <typename T, bool kFlush>
struct Mul : Same3<T> {
  static T Do(T a, T b) { return Result<kFlush>(Flushed<kFlush>(a) * Flushed<kFlush>(b), a, b); }
};
template <typename T, bool kFlush>
struct Div : Same3<T> {
  static T Do(T a, T b) { return Result<kFlush>(Flushed<kFlush>(a) / Flushed<kFlush>(b), a, b); }
};
template <typename T, bool kFlush>
struct Fma : Same3<T> {
  static T Do(T a, T b, T c) {
    return Result<kFlush>(Fuse(Flushed<kFlush>(a), Flushed<kFlush>(b), Flushed<kFlush>(c)), a, b, c);
  }
};
template <typename T, bool kFlush>
struct Sqrt : Same3<T> {
  static T Do(T a) { return Result<kFlush>(Root(Flushed<kFlush>(a)), a); }
};
template <typename T, bool kFlush>
struct Rcp : Same3<T> {
  static T Do(T a) { return Result<kFlush>(T(1) / Flushed<kFlush>(a), a); }
};
template <typename R>
struct Sat : Same3<float> {
  static float Do(float a, float b) { return Unit(R::Do(a, b)); }
  static float Do(float a, float b, float c) { return Unit(R::Do(a, b, c)); }
};
template <typename T, bool kFlush = false>
struct Abs : Same3<T> {
  static T Do(T a) { return FromBits<T>(BitsOf(Flushed<kFlush>(a)) & ~SignOf<T>::kMask); }
};
template <typename T, bool kFlush = false>
struct Neg : Same3<T> {
  static T Do(T a) { return FromBits<T>(BitsOf(Flushed<kFlush>(a)) ^ SignOf<T>::kMask); }
};
template <typename T>
struct Copysign : Same3<T> {
  static T Do(T a, T b) {
    return FromBits<T>((BitsOf(b) & ~SignOf<T>::kMask) | (BitsOf(a) & SignOf<T>::kMask));
  }
};

enum class Approximate { kEx2, kLg2, kSin, kCos, kTanh, kRsqrt, kRcp, kSqrt };
template <Approximate kFunction>
inline double Evaluate(double x) {
  switch (kFunction) {
    case Approximate::kEx2:
      return TwoToThe(x);
    case Approximate::kLg2:
      return LogTwo(x);
    case Approximate::kSin:
      return x == 0 ? x : SinQuarter(x, 0);  // keeps -0
    case Approximate::kCos:
      return SinQuarter(x, 1);
    case Approximate::kTanh:
      return HyperbolicTangent(x);
    case Approximate::kRsqrt:
      return 1 / Root(x);
    case Approximate::kRcp:
      return 1 / x;
    default:
      return Root(x);
  }
}
template <Approximate kFunction, bool kFlush>
struct ApproxF32 : Same3<float> {
  static float Do(float a) {
    return Canonical(Flushed<kFlush>(static_cast<float>(Evaluate<kFunction>(Flushed<kFlush>(a)))));
  }
};
// The .ftz.f64 forms are gross approximations whose result has no low word.
template <Approximate kFunction>
struct GrossF64 : Same3<double> {
  static double Do(double a) {
    u64 bits = BitCast<u64>(a);
    if ((bits >> 52 & 0x7ff) == 0) a = BitCast<double>(bits & u64{1} << 63);
    u64 result = BitCast<u64>(Evaluate<kFunction>(a));
    if ((result >> 52 & 0x7ff) == 0) result &= u64{1} << 63;
    return BitCast<double>(result & ~u64{0xffffffff});
  }
};
template <Approximate kFunction>
struct ApproxF64 : Same3<double> {
  static double Do(double a) { return Evaluate<kFunction>(a); }
};
// div.approx multiplies by the reciprocal, which for divisors past 2^126 is flushed to zero; div.full scales
// first.
template <bool kFlush, bool kScaled>
struct DivApprox : Same3<float> {
  static float Do(float a, float b) {
    float x = Flushed<kFlush>(a), y = Flushed<kFlush>(b), q = x / y;
    if constexpr (!kScaled) {
      float magnitude = FromBits<float>(BitsOf(y) & 0x7fffffffu);
      bool huge = magnitude > 0x1p126f && magnitude < FromBits<float>(0x7f800000u);
      float product = x * FromBits<float>(BitsOf(y) & 0x80000000u);
      q = huge ? product : q;
    }
    return Flushed<kFlush>(Canonical(q));
  }
};
template <typename T, Compare kCompare, bool kFlush>
struct Order : Same3<T> {
  static bool Do(T a, T b) { return Holds<kCompare>(Flushed<kFlush>(a), Flushed<kFlush>(b)); }
};
template <typename T, bool kFlush>
CompareFn OrderOf(Compare compare) {
#define FUNCTION(compare, T, kFlush) &CompareLanes<Order<T, compare, kFlush>>
  SOFTGPU_FOR_COMPARE(compare, FUNCTION, T, kFlush);
#undef FUNCTION
}
bool ResolveOrder(const AluKey& k, AluOp* op) {
  bool single = k.type == Type::kF32;
  if (!single && k.ftz) return false;
  Fill(op, nullptr, 2, Type::kPred, k.type, k.type);
  op->shape = AluOp::Shape::kCompare;
  op->compare = !single ? OrderOf<double, false>(k.compare)
                : k.ftz ? OrderOf<float, true>(k.compare)
                        : OrderOf<float, false>(k.compare);
  return op->compare != nullptr;
}

template <bool kFlush>
bool ResolveSaturating(const AluKey& k, AluOp* op) {
  switch (k.code) {
    case AluCode::kAdd:
      return Fill(op, ForMode<&Binary<Sat<Add<float, kFlush>>>>(k.round), 2, k.type, k.type, k.type);
    case AluCode::kSub:
      return Fill(op, ForMode<&Binary<Sat<Sub<float, kFlush>>>>(k.round), 2, k.type, k.type, k.type);
    case AluCode::kMul:
      return Fill(op, ForMode<&Binary<Sat<Mul<float, kFlush>>>>(k.round), 2, k.type, k.type, k.type);
    case AluCode::kFma:
    case AluCode::kMad:
      return Fill(op, ForMode<&Ternary<Sat<Fma<float, kFlush>>>>(k.round), 3, k.type, k.type, k.type, k.type);
    default:
      return false;
  }
}
template <typename T, bool kFlush>
bool ResolveRounded(const AluKey& k, AluOp* op) {
  switch (k.code) {
    case AluCode::kAdd:
      return Fill(op, ForMode<&Binary<Add<T, kFlush>>>(k.round), 2, k.type, k.type, k.type);
    case AluCode::kSub:
      return Fill(op, ForMode<&Binary<Sub<T, kFlush>>>(k.round), 2, k.type, k.type, k.type);
    case AluCode::kMul:
      return Fill(op, ForMode<&Binary<Mul<T, kFlush>>>(k.round), 2, k.type, k.type, k.type);
    case AluCode::kDiv:
      return Fill(op, ForMode<&Binary<Div<T, kFlush>>>(k.round), 2, k.type, k.type, k.type);
    case AluCode::kFma:
    case AluCode::kMad:
      return Fill(op, ForMode<&Ternary<Fma<T, kFlush>>>(k.round), 3, k.type, k.type, k.type, k.type);
    case AluCode::kSqrt:
      return Fill(op, ForMode<&Unary<Sqrt<T, kFlush>>>(k.round), 1, k.type, k.type);
    case AluCode::kRcp:
      return Fill(op, ForMode<&Unary<Rcp<T, kFlush>>>(k.round), 1, k.type, k.type);
    default:
      return false;
  }
}
bool ResolveArithmetic(const AluKey& k, AluOp* op) {
  if (k.relu || k.round == Round::kNearestAway || k.source != Type::kNone) return false;
  if (k.type == Type::kF64) return !k.ftz && !k.sat && ResolveRounded<double, false>(k, op);
  if (k.sat) return k.ftz ? ResolveSaturating<true>(k, op) : ResolveSaturating<false>(k, op);
  return k.ftz ? ResolveRounded<float, true>(k, op) : ResolveRounded<float, false>(k, op);
}
template <Approximate kFunction>
bool ResolveApproximation(const AluKey& k, AluOp* op) {
  if (k.type == Type::kF32) {
    return Fill(op, k.ftz ? &Unary<ApproxF32<kFunction, true>> : &Unary<ApproxF32<kFunction, false>>, 1,
                k.type, k.type);
  }
  if (k.type != Type::kF64) return false;
  if (kFunction == Approximate::kRcp && k.ftz)
    return Fill(op, &Unary<GrossF64<kFunction>>, 1, k.type, k.type);
  if (kFunction == Approximate::kRsqrt) {
    return Fill(op, k.ftz ? &Unary<GrossF64<kFunction>> : &Unary<ApproxF64<kFunction>>, 1, k.type, k.type);
  }
  return false;
}
template <typename T, bool kMin>
bool ResolveExtreme(const AluKey& k, AluOp* op) {
  LaneFn fn = nullptr;
  if constexpr (sizeof(T) == 4) {
    if (k.xorsign_abs) {
      fn = k.nan ? (k.ftz ? &Binary<MinMax<T, kMin, true, true, true>>
                          : &Binary<MinMax<T, kMin, true, true, false>>)
                 : (k.ftz ? &Binary<MinMax<T, kMin, false, true, true>>
                          : &Binary<MinMax<T, kMin, false, true, false>>);
    } else {
      fn = k.nan ? (k.ftz ? &Binary<MinMax<T, kMin, true, false, true>> : &Binary<MinMax<T, kMin, true>>)
                 : (k.ftz ? &Binary<MinMax<T, kMin, false, false, true>> : &Binary<MinMax<T, kMin>>);
    }
  } else {
    if (k.nan || k.xorsign_abs || k.ftz) return false;
    fn = &Binary<MinMax<T, kMin>>;
  }
  return Fill(op, fn, 2, k.type, k.type, k.type);
}
bool ResolveQuotient(const AluKey& k, AluOp* op) {
  if (k.type != Type::kF32) return false;
  LaneFn fn = k.full ? (k.ftz ? &Binary<DivApprox<true, true>> : &Binary<DivApprox<false, true>>)
                     : (k.ftz ? &Binary<DivApprox<true, false>> : &Binary<DivApprox<false, false>>);
  return Fill(op, fn, 2, k.type, k.type, k.type);
}
bool ResolveFunction(const AluKey& k, AluOp* op) {
  switch (k.code) {
    case AluCode::kDiv:
      return ResolveQuotient(k, op);
    case AluCode::kSqrt:
      return ResolveApproximation<Approximate::kSqrt>(k, op);
    case AluCode::kRcp:
      return ResolveApproximation<Approximate::kRcp>(k, op);
    case AluCode::kRsqrt:
      return ResolveApproximation<Approximate::kRsqrt>(k, op);
    case AluCode::kEx2:
      return ResolveApproximation<Approximate::kEx2>(k, op);
    case AluCode::kLg2:
      return ResolveApproximation<Approximate::kLg2>(k, op);
    case AluCode::kSin:
      return ResolveApproximation<Approximate::kSin>(k, op);
    case AluCode::kCos:
      return ResolveApproximation<Approximate::kCos>(k, op);
    case AluCode::kTanh:
      return ResolveApproximation<Approximate::kTanh>(k, op);
    default:
      return false;
  }
}
template <typename T>
bool ResolveSign(const AluKey& k, AluOp* op) {
  switch (k.code) {
    case AluCode::kAbs:
      return Fill(op, k.ftz ? &Unary<Abs<T, true>> : &Unary<Abs<T>>, 1, k.type, k.type);
    case AluCode::kNeg:
      return Fill(op, k.ftz ? &Unary<Neg<T, true>> : &Unary<Neg<T>>, 1, k.type, k.type);
    default:
      return Fill(op, &Binary<Copysign<T>>, 2, k.type, k.type, k.type);
  }
}

}  // namespace

bool ResolveFloat(const AluKey& k, AluOp* op) {
  if (k.type != Type::kF32 && k.type != Type::kF64) return false;
  bool single = k.type == Type::kF32;
  if (k.approx || k.full) return ResolveFunction(k, op);
  switch (k.code) {
    case AluCode::kMin:
      return single ? ResolveExtreme<float, true>(k, op) : ResolveExtreme<double, true>(k, op);
    case AluCode::kMax:
      return single ? ResolveExtreme<float, false>(k, op) : ResolveExtreme<double, false>(k, op);
    case AluCode::kAbs:
    case AluCode::kNeg:
    case AluCode::kCopysign:
      return single ? ResolveSign<float>(k, op) : !k.ftz && ResolveSign<double>(k, op);
    case AluCode::kSetp:
      return ResolveOrder(k, op);
    default:
      return ResolveArithmetic(k, op);
  }
}

}  // namespace softgpu::exec::SOFTGPU_ISA
