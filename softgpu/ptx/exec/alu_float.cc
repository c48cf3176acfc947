// Floating-point instructions (PTX ISA: floating point, half precision, mixed precision, comparison). Compiled once per
// instruction set variant; directed rounding and flushing are modes of the FPU around the loop over lanes.
#include "softgpu/ptx/exec/alu_half.h"

namespace softgpu::exec::SOFTGPU_ISA {
namespace {

using ptx::Type;

// Single precision results that are NaN are the canonical one; double precision keeps what the FPU gives.
inline float Canonical(float v) { return v == v ? v : BitCast<float>(0x7fffffffu); }
inline double Canonical(double v) { return v; }

template <typename T>
struct Same3 {
  using D = T;
  using A = T;
  using B = T;
  using C = T;
};
inline float Fuse(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double Fuse(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline float Root(float a) { return _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(a))); }
inline double Root(double a) { return _mm_cvtsd_f64(_mm_sqrt_sd(_mm_set_sd(0), _mm_set_sd(a))); }
// NaN becomes +0.
template <typename T> inline T Unit(T v) { return v > 0 ? (v < 1 ? v : T(1)) : T(0); }

template <typename T> struct Add : Same3<T> { static T Do(T a, T b) { return Canonical(a + b); } };
template <typename T> struct Sub : Same3<T> { static T Do(T a, T b) { return Canonical(a - b); } };
template <typename T> struct Mul : Same3<T> { static T Do(T a, T b) { return Canonical(a * b); } };
template <typename T> struct Fma : Same3<T> { static T Do(T a, T b, T c) { return Canonical(Fuse(a, b, c)); } };
template <typename T> struct Div : Same3<T> { static T Do(T a, T b) { return Canonical(a / b); } };
template <typename T> struct Sqrt : Same3<T> { static T Do(T a) { return Canonical(Root(a)); } };
template <typename T> struct Rcp : Same3<T> { static T Do(T a) { return Canonical(T(1) / a); } };
template <template <typename> class R> struct Sat : Same3<float> {
  static float Do(float a, float b) { return Unit(R<float>::Do(a, b)); }
};
struct FmaSat : Same3<float> { static float Do(float a, float b, float c) { return Unit(Fuse(a, b, c)); } };

template <typename T> struct SignOf;
template <> struct SignOf<float> { using Bits = u32; static constexpr Bits kMask = 0x80000000u; };
template <> struct SignOf<double> { using Bits = u64; static constexpr Bits kMask = u64{1} << 63; };
template <typename T> inline typename SignOf<T>::Bits BitsOf(T v) { return BitCast<typename SignOf<T>::Bits>(v); }
template <typename T> inline T FromBits(typename SignOf<T>::Bits b) { return BitCast<T>(b); }

// Flushing abs, neg, min and max: subnormals become zero of their sign.
template <bool kFlush> inline float Flushed(float v) {
  if constexpr (!kFlush) return v;
  return (BitsOf(v) & 0x7f800000u) == 0 ? FromBits<float>(BitsOf(v) & 0x80000000u) : v;
}
template <typename T, bool kFlush = false> struct Abs : Same3<T> {
  static T Do(T a) {
    if constexpr (kFlush) a = Flushed<true>(a);
    return FromBits<T>(BitsOf(a) & ~SignOf<T>::kMask);
  }
};
template <typename T, bool kFlush = false> struct Neg : Same3<T> {
  static T Do(T a) {
    if constexpr (kFlush) a = Flushed<true>(a);
    return FromBits<T>(BitsOf(a) ^ SignOf<T>::kMask);
  }
};
template <typename T> struct Copysign : Same3<T> {
  static T Do(T a, T b) { return FromBits<T>((BitsOf(b) & ~SignOf<T>::kMask) | (BitsOf(a) & SignOf<T>::kMask)); }
};
// -0 is less than +0; a NaN loses against a number unless kNan.
template <typename T> inline T Smaller(T a, T b) { return a < b || (a == b && (BitsOf(a) & SignOf<T>::kMask)) ? a : b; }
template <typename T> inline T Larger(T a, T b) { return a > b || (a == b && !(BitsOf(a) & SignOf<T>::kMask)) ? a : b; }
template <typename T> inline T NanOf() {
  if constexpr (sizeof(T) == 4) return FromBits<T>(0x7fffffffu);
  else return FromBits<T>(u64{0x7fffffffffffffff});
}
template <typename T, bool kMin, bool kNan = false, bool kXorSign = false, bool kFlush = false> struct MinMax : Same3<T> {
  static T Do(T a, T b) {
    if constexpr (kFlush) {
      a = Flushed<true>(a);
      b = Flushed<true>(b);
    }
    typename SignOf<T>::Bits sign = (BitsOf(a) ^ BitsOf(b)) & SignOf<T>::kMask;
    if constexpr (kXorSign) {
      a = FromBits<T>(BitsOf(a) & ~SignOf<T>::kMask);
      b = FromBits<T>(BitsOf(b) & ~SignOf<T>::kMask);
    }
    bool a_nan = a != a, b_nan = b != b;
    T result = kMin ? Smaller(a, b) : Larger(a, b);
    if (a_nan) result = b;
    if (b_nan) result = a;
    if ((a_nan && b_nan) || (kNan && (a_nan || b_nan))) return NanOf<T>();
    if constexpr (kXorSign) result = FromBits<T>((BitsOf(result) & ~SignOf<T>::kMask) | sign);
    return result;
  }
};

// --- Approximations, computed in double by fixed sequences of operations, far inside the manual's bounds and the same
// on every CPU.

inline double TwoToThe(double x) {
  if (x > 2000) x = 2000;
  if (x < -2000) x = -2000;
  if (!(x == x)) return x;
  double whole = static_cast<double>(static_cast<s64>(x + (x < 0 ? -0.5 : 0.5)));
  double y = (x - whole) * 0.69314718055994530942;
  // exp(y) on [-0.35, 0.35] by its series.
  double sum = 1.0 / 6227020800;
  constexpr double kTerms[] = {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
                               1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0};
  for (double term : kTerms) sum = sum * y + term;
  int n = static_cast<int>(whole), half = n / 2;
  auto power = [](int e) { return e < -1022 ? 0.0 : e > 1023 ? BitCast<double>(u64{0x7ff} << 52) : BitCast<double>(static_cast<u64>(e + 1023) << 52); };
  return sum * power(half) * power(n - half);
}
inline double LogTwo(double x) {
  if (!(x >= 0)) return BitCast<double>(u64{0x7ff8} << 48);
  if (x == 0) return BitCast<double>(u64{0xfff} << 52);
  u64 bits = BitCast<u64>(x);
  if (bits >> 52 == 0x7ff) return x;
  int exponent = 0;
  if (bits >> 52 == 0) {
    bits = BitCast<u64>(x * 0x1p60);
    exponent = -60;
  }
  exponent += static_cast<int>(bits >> 52) - 1023;
  double m = BitCast<double>((bits & ((u64{1} << 52) - 1)) | u64{1023} << 52);
  if (m > 1.41421356237309504880) {
    m *= 0.5;
    ++exponent;
  }
  // log(m) = 2 atanh((m - 1) / (m + 1)).
  double t = (m - 1) / (m + 1), square = t * t, sum = 1.0 / 21;
  for (int k = 19; k >= 1; k -= 2) sum = sum * square + 1.0 / k;
  return exponent + 2 * t * sum * 1.44269504088896340736;
}
// Sine of x + quarter * pi / 2.
inline double SinQuarter(double x, int quarter) {
  if (!(x - x == 0)) return BitCast<double>(u64{0x7ff8} << 48);
  double turns = x * 0.63661977236758134308;
  if (turns > 0x1p50 || turns < -0x1p50) turns = 0;  // no digit of the angle is left in single precision
  s64 n = static_cast<s64>(turns + (turns < 0 ? -0.5 : 0.5));
  double whole = static_cast<double>(n);
  double y = (x - whole * 1.57079632673412561417) - whole * 6.07710050650619224932e-11;
  double square = y * y;
  double sine = y * (1 + square * (-1.0 / 6 + square * (1.0 / 120 + square * (-1.0 / 5040 + square * (1.0 / 362880 - square / 39916800)))));
  double cosine = 1 + square * (-0.5 + square * (1.0 / 24 + square * (-1.0 / 720 + square * (1.0 / 40320 - square / 3628800))));
  switch ((n + quarter) & 3) {
    case 0: return sine;
    case 1: return cosine;
    case 2: return -sine;
    default: return -cosine;
  }
}
inline double HyperbolicTangent(double x) {
  if (!(x == x)) return x;
  double magnitude = x < 0 ? -x : x;
  if (magnitude > 20) return x < 0 ? -1 : 1;
  if (magnitude < 1e-4) return x - x * x * x / 3;
  double e = TwoToThe(magnitude * 2 * 1.44269504088896340736), result = (e - 1) / (e + 1);
  return x < 0 ? -result : result;
}
enum class Approximate { kEx2, kLg2, kSin, kCos, kTanh, kRsqrt, kRcp, kSqrt };
template <Approximate kFunction> inline double Evaluate(double x) {
  switch (kFunction) {
    case Approximate::kEx2: return TwoToThe(x);
    case Approximate::kLg2: return LogTwo(x);
    case Approximate::kSin: return x == 0 ? x : SinQuarter(x, 0);
    case Approximate::kCos: return SinQuarter(x, 1);
    case Approximate::kTanh: return x == 0 ? x : HyperbolicTangent(x);
    case Approximate::kRsqrt: return 1 / Root(x);
    case Approximate::kRcp: return 1 / x;
    default: return Root(x);
  }
}
template <Approximate kFunction, bool kFlush> struct ApproxF32 : Same3<float> {
  static float Do(float a) { return Canonical(Flushed<kFlush>(static_cast<float>(Evaluate<kFunction>(Flushed<kFlush>(a))))); }
};
// The .ftz.f64 forms are gross approximations whose result has no low word.
template <Approximate kFunction> struct GrossF64 : Same3<double> {
  static double Do(double a) {
    u64 bits = BitCast<u64>(a);
    if ((bits >> 52 & 0x7ff) == 0) a = BitCast<double>(bits & u64{1} << 63);
    u64 result = BitCast<u64>(Evaluate<kFunction>(a));
    if ((result >> 52 & 0x7ff) == 0) result &= u64{1} << 63;
    return BitCast<double>(result & ~u64{0xffffffff});
  }
};
template <Approximate kFunction> struct ApproxF64 : Same3<double> { static double Do(double a) { return Evaluate<kFunction>(a); } };
// div.approx and div.full: the quotient itself is within their bounds, except that huge divisors may give zero, which
// the exact quotient also is within two units of the smallest normal.
template <bool kFlush> struct DivApprox : Same3<float> {
  static float Do(float a, float b) { return Canonical(Flushed<kFlush>(Flushed<kFlush>(a) / Flushed<kFlush>(b))); }
};

// --- Half and bfloat16.

template <typename F> inline u32 NarrowFlush(u32 bits) { return (bits & F::kExponentMask) == 0 ? bits & F::kSignBit : bits; }

enum class HalfOp { kAdd, kSub, kMul, kFma, kMin, kMax, kAbs, kNeg, kEx2, kTanh, kRcp };
template <typename F, HalfOp kOp, bool kFlush, bool kSat, bool kRelu, bool kNan, bool kXorSign = false>
inline u32 HalfDo(u32 x, u32 y, u32 z) {
  if constexpr (kFlush) {
    x = NarrowFlush<F>(x);
    y = NarrowFlush<F>(y);
    z = NarrowFlush<F>(z);
  }
  if constexpr (kOp == HalfOp::kAbs) return (x & F::kMagnitude) > F::kExponentMask ? F::kNan : x & F::kMagnitude;
  if constexpr (kOp == HalfOp::kNeg) return (x & F::kMagnitude) > F::kExponentMask ? F::kNan : x ^ F::kSignBit;
  double a = F::Value(x), b = F::Value(y), c = F::Value(z);
  if constexpr (kOp == HalfOp::kMin || kOp == HalfOp::kMax) {
    double best = MinMax<double, kOp == HalfOp::kMin, kNan, kXorSign>::Do(a, b);
    return F::Of(best);
  }
  double value = 0;
  if constexpr (kOp == HalfOp::kAdd) value = AddToOdd(a, b);
  else if constexpr (kOp == HalfOp::kSub) value = AddToOdd(a, -b);
  else if constexpr (kOp == HalfOp::kMul) value = a * b;
  else if constexpr (kOp == HalfOp::kFma) value = AddToOdd(a * b, c);
  else if constexpr (kOp == HalfOp::kEx2) value = TwoToThe(a);
  else if constexpr (kOp == HalfOp::kTanh) value = a == 0 ? a : HyperbolicTangent(a);
  else value = 1 / a;
  if constexpr (kSat) value = Unit(value);
  if constexpr (kRelu) value = value > 0 || value != value ? value : 0.0;
  u32 result = F::Of(value);
  return kFlush ? NarrowFlush<F>(result) : result;
}
template <typename F, HalfOp kOp, bool kPair, bool kFlush, bool kSat, bool kRelu, bool kNan, bool kXorSign>
struct HalfRule : Same3<u32> {
  static u32 Do(u32 a, u32 b = 0, u32 c = 0) {
    u32 low = HalfDo<F, kOp, kFlush, kSat, kRelu, kNan, kXorSign>(a & 0xffff, b & 0xffff, c & 0xffff);
    if constexpr (!kPair) return low;
    return low | HalfDo<F, kOp, kFlush, kSat, kRelu, kNan, kXorSign>(a >> 16, b >> 16, c >> 16) << 16;
  }
};
template <typename F, HalfOp kOp, bool kFlush, bool kSat, bool kRelu, bool kNan, bool kXorSign>
struct HalfSingle {
  using D = u16;
  using A = u16;
  using B = u16;
  using C = u16;
  static u16 Do(u16 a, u16 b = 0, u16 c = 0) {
    return static_cast<u16>(HalfDo<F, kOp, kFlush, kSat, kRelu, kNan, kXorSign>(a, b, c));
  }
};
template <typename R>
LaneFn ByCount(unsigned sources) {
  return sources == 1 ? &Unary<R> : sources == 2 ? &Binary<R> : &Ternary<R>;
}
template <typename F, HalfOp kOp, bool kFlush, bool kSat = false, bool kRelu = false, bool kNan = false, bool kXorSign = false>
LaneFn HalfFunction(bool pair, unsigned sources) {
  return pair ? ByCount<HalfRule<F, kOp, true, kFlush, kSat, kRelu, kNan, kXorSign>>(sources)
              : ByCount<HalfSingle<F, kOp, kFlush, kSat, kRelu, kNan, kXorSign>>(sources);
}
template <typename F, HalfOp kOp>
LaneFn HalfArithmetic(const AluKey& k, bool pair, unsigned sources) {
  if (k.sat) return k.ftz ? HalfFunction<F, kOp, true, true>(pair, sources) : HalfFunction<F, kOp, false, true>(pair, sources);
  if (k.relu) return kOp == HalfOp::kFma ? (k.ftz ? HalfFunction<F, kOp, true, false, true>(pair, sources) : HalfFunction<F, kOp, false, false, true>(pair, sources)) : nullptr;
  return k.ftz ? HalfFunction<F, kOp, true>(pair, sources) : HalfFunction<F, kOp, false>(pair, sources);
}
template <typename F, HalfOp kOp>
LaneFn HalfExtreme(const AluKey& k, bool pair) {
  if (k.xorsign_abs) {
    return k.nan ? HalfFunction<F, kOp, false, false, false, true, true>(pair, 2) : HalfFunction<F, kOp, false, false, false, false, true>(pair, 2);
  }
  if (k.nan) return k.ftz ? HalfFunction<F, kOp, true, false, false, true>(pair, 2) : HalfFunction<F, kOp, false, false, false, true>(pair, 2);
  return k.ftz ? HalfFunction<F, kOp, true>(pair, 2) : HalfFunction<F, kOp, false>(pair, 2);
}
template <typename F>
bool ResolveHalf(const AluKey& k, AluOp* op, bool pair) {
  // Saturation and directed rounding of halves do not exist beyond what is listed here.
  if (k.round != Round::kNone && k.round != Round::kNearest) return false;
  LaneFn fn = nullptr;
  unsigned sources = 2;
  switch (k.code) {
    case AluCode::kAdd: fn = HalfArithmetic<F, HalfOp::kAdd>(k, pair, 2); break;
    case AluCode::kSub: fn = HalfArithmetic<F, HalfOp::kSub>(k, pair, 2); break;
    case AluCode::kMul: fn = HalfArithmetic<F, HalfOp::kMul>(k, pair, 2); break;
    case AluCode::kFma: fn = HalfArithmetic<F, HalfOp::kFma>(k, pair, sources = 3); break;
    case AluCode::kMin: fn = HalfExtreme<F, HalfOp::kMin>(k, pair); break;
    case AluCode::kMax: fn = HalfExtreme<F, HalfOp::kMax>(k, pair); break;
    case AluCode::kAbs: fn = HalfArithmetic<F, HalfOp::kAbs>(k, pair, sources = 1); break;
    case AluCode::kNeg: fn = HalfArithmetic<F, HalfOp::kNeg>(k, pair, sources = 1); break;
    case AluCode::kEx2: fn = HalfArithmetic<F, HalfOp::kEx2>(k, pair, sources = 1); break;
    case AluCode::kTanh: fn = HalfArithmetic<F, HalfOp::kTanh>(k, pair, sources = 1); break;
    default: return false;
  }
  return fn != nullptr && Fill(op, fn, sources, k.type, k.type, k.type, k.type);
}

// --- Comparison.

inline float Numeric(float v) { return v; }
inline double Numeric(double v) { return v; }
struct HalfBits { u16 bits; };
struct BfloatBits { u16 bits; };
inline double Numeric(HalfBits v) { return Half::Value(v.bits); }
inline double Numeric(BfloatBits v) { return Bfloat::Value(v.bits); }

template <Compare kCompare, typename T> inline bool Holds(T a, T b) {
  bool unordered = a != a || b != b;
  switch (kCompare) {
    case Compare::kEq: return a == b;
    case Compare::kNe: return !unordered && a != b;
    case Compare::kLt: return a < b;
    case Compare::kLe: return a <= b;
    case Compare::kGt: return a > b;
    case Compare::kGe: return a >= b;
    case Compare::kEqu: return unordered || a == b;
    case Compare::kNeu: return a != b;
    case Compare::kLtu: return !(a >= b);
    case Compare::kLeu: return !(a > b);
    case Compare::kGtu: return !(a <= b);
    case Compare::kGeu: return !(a < b);
    case Compare::kNum: return !unordered;
    default: return unordered;
  }
}
template <typename T, Compare kCompare, bool kFlush> struct Order {
  using A = T;
  static bool Do(T a, T b) {
    if constexpr (kFlush) return Holds<kCompare>(Flushed<true>(a), Flushed<true>(b));
    else return Holds<kCompare>(Numeric(a), Numeric(b));
  }
};
template <typename T, Compare kCompare, bool kFlush, typename Dest, Dest kTrue> struct SetOrder {
  using D = Dest;
  using A = T;
  using B = T;
  static Dest Do(T a, T b) { return Order<T, kCompare, kFlush>::Do(a, b) ? kTrue : Dest(0); }
};
// set on packed halves: each half compared, results packed.
template <typename F, Compare kCompare, u32 kTrue> struct SetPair : Same3<u32> {
  static u32 Do(u32 a, u32 b) {
    u32 low = Holds<kCompare>(F::Value(a & 0xffff), F::Value(b & 0xffff)) ? kTrue : 0;
    u32 high = Holds<kCompare>(F::Value(a >> 16), F::Value(b >> 16)) ? kTrue : 0;
    return high << 16 | low;
  }
};
template <typename T, Compare kCompare, bool kFlush>
bool FillOrder(const AluKey& k, AluOp* op, Type source) {
  if (k.code == AluCode::kSetp) {
    Fill(op, nullptr, 2, Type::kPred, source, source);
    op->shape = AluOp::Shape::kCompare;
    op->compare = &CompareLanes<Order<T, kCompare, kFlush>>;
    return true;
  }
  LaneFn fn = nullptr;
  switch (k.type) {
    case Type::kF32: fn = &Binary<SetOrder<T, kCompare, kFlush, u32, 0x3f800000>>; break;
    case Type::kU32: case Type::kS32: fn = &Binary<SetOrder<T, kCompare, kFlush, u32, 0xffffffff>>; break;
    case Type::kF16: fn = &Binary<SetOrder<T, kCompare, kFlush, u16, 0x3c00>>; break;
    case Type::kBF16: fn = &Binary<SetOrder<T, kCompare, kFlush, u16, 0x3f80>>; break;
    case Type::kU16: case Type::kS16: fn = &Binary<SetOrder<T, kCompare, kFlush, u16, 0xffff>>; break;
    default: return false;
  }
  return Fill(op, fn, 2, k.type, source, source);
}
template <Compare kCompare>
bool ResolveOrder(const AluKey& k, AluOp* op) {
  Type source = k.code == AluCode::kSet ? k.source : k.type;
  switch (source) {
    case Type::kF32: return k.ftz ? FillOrder<float, kCompare, true>(k, op, source) : FillOrder<float, kCompare, false>(k, op, source);
    case Type::kF64: return FillOrder<double, kCompare, false>(k, op, source);
    case Type::kF16: return FillOrder<HalfBits, kCompare, false>(k, op, source);
    case Type::kBF16: return FillOrder<BfloatBits, kCompare, false>(k, op, source);
    case Type::kF16x2:
      if (k.code != AluCode::kSet) return false;
      return Fill(op, k.type == Type::kF16x2 ? &Binary<SetPair<Half, kCompare, 0x3c00>> : &Binary<SetPair<Half, kCompare, 0xffff>>, 2, k.type, source, source);
    case Type::kBF16x2:
      if (k.code != AluCode::kSet) return false;
      return Fill(op, k.type == Type::kBF16x2 ? &Binary<SetPair<Bfloat, kCompare, 0x3f80>> : &Binary<SetPair<Bfloat, kCompare, 0xffff>>, 2, k.type, source, source);
    default: return false;
  }
}
bool ResolveComparison(const AluKey& k, AluOp* op) {
  switch (k.compare) {
#define ORDER(name) case Compare::name: return ResolveOrder<Compare::name>(k, op)
    ORDER(kEq); ORDER(kNe); ORDER(kLt); ORDER(kLe); ORDER(kGt); ORDER(kGe); ORDER(kEqu); ORDER(kNeu); ORDER(kLtu); ORDER(kLeu);
    ORDER(kGtu); ORDER(kGeu); ORDER(kNum); ORDER(kNan);
#undef ORDER
  }
  return false;
}
template <typename T> inline bool TestOf(T v, Test test) {
  constexpr int kMantissa = sizeof(T) == 4 ? 23 : 52;
  auto magnitude = BitsOf(v) & ~SignOf<T>::kMask;
  decltype(magnitude) top = (sizeof(T) == 4 ? 0xff : 0x7ff);
  top <<= kMantissa;
  switch (test) {
    case Test::kFinite: return magnitude < top;
    case Test::kInfinite: return magnitude == top;
    case Test::kNumber: return magnitude <= top;
    case Test::kNotANumber: return magnitude > top;
    case Test::kNormal: return magnitude < top && magnitude >> kMantissa != 0;
    default: return magnitude != 0 && magnitude >> kMantissa == 0;
  }
}
template <typename T, Test kTest> uint32_t TestLanes(const void* a) {
  const T* x = static_cast<const T*>(a);
  uint32_t bits = 0;
  for (unsigned l = 0; l < kWarpSize; ++l) bits |= static_cast<uint32_t>(TestOf(x[l], kTest)) << l;
  return bits;
}
template <typename T> TestFn TestFunction(Test test) {
  switch (test) {
    case Test::kFinite: return &TestLanes<T, Test::kFinite>;
    case Test::kInfinite: return &TestLanes<T, Test::kInfinite>;
    case Test::kNumber: return &TestLanes<T, Test::kNumber>;
    case Test::kNotANumber: return &TestLanes<T, Test::kNotANumber>;
    case Test::kNormal: return &TestLanes<T, Test::kNormal>;
    default: return &TestLanes<T, Test::kSubnormal>;
  }
}

// --- Choice.

template <typename T>
bool ResolveArithmetic(const AluKey& k, AluOp* op) {
  constexpr bool kSingle = sizeof(T) == 4;
  LaneFn fn = nullptr;
  unsigned sources = 2;
  if (k.sat) {
    if (!kSingle) return false;
    switch (k.code) {
      case AluCode::kAdd: fn = ForMode<&Binary<Sat<Add>>>(k); break;
      case AluCode::kSub: fn = ForMode<&Binary<Sat<Sub>>>(k); break;
      case AluCode::kMul: fn = ForMode<&Binary<Sat<Mul>>>(k); break;
      case AluCode::kFma: case AluCode::kMad: fn = ForMode<&Ternary<FmaSat>>(k); sources = 3; break;
      default: return false;
    }
    return Fill(op, fn, sources, k.type, k.type, k.type, k.type);
  }
  switch (k.code) {
    case AluCode::kAdd: fn = ForMode<&Binary<Add<T>>>(k); break;
    case AluCode::kSub: fn = ForMode<&Binary<Sub<T>>>(k); break;
    case AluCode::kMul: fn = ForMode<&Binary<Mul<T>>>(k); break;
    case AluCode::kFma: case AluCode::kMad: fn = ForMode<&Ternary<Fma<T>>>(k); sources = 3; break;
    case AluCode::kDiv: fn = ForMode<&Binary<Div<T>>>(k); break;
    case AluCode::kSqrt: fn = ForMode<&Unary<Sqrt<T>>>(k); sources = 1; break;
    case AluCode::kRcp: fn = ForMode<&Unary<Rcp<T>>>(k); sources = 1; break;
    default: return false;
  }
  return Fill(op, fn, sources, k.type, k.type, k.type, k.type);
}
template <Approximate kFunction>
bool ResolveApproximation(const AluKey& k, AluOp* op) {
  if (k.type == Type::kF32) {
    return Fill(op, k.ftz ? &Unary<ApproxF32<kFunction, true>> : &Unary<ApproxF32<kFunction, false>>, 1, k.type, k.type);
  }
  if (k.type != Type::kF64) return false;
  if (kFunction == Approximate::kRcp && k.ftz) return Fill(op, &Unary<GrossF64<kFunction>>, 1, k.type, k.type);
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
      fn = k.nan ? (k.ftz ? &Binary<MinMax<T, kMin, true, true, true>> : &Binary<MinMax<T, kMin, true, true, false>>)
                 : (k.ftz ? &Binary<MinMax<T, kMin, false, true, true>> : &Binary<MinMax<T, kMin, false, true, false>>);
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
bool ResolveDivide(const AluKey& k, AluOp* op) {
  if (!k.approx && !k.full) return k.type == Type::kF32 ? ResolveArithmetic<float>(k, op) : ResolveArithmetic<double>(k, op);
  if (k.type != Type::kF32) return false;
  return Fill(op, k.ftz ? &Binary<DivApprox<true>> : &Binary<DivApprox<false>>, 2, k.type, k.type, k.type);
}

}  // namespace

bool ResolveFloat(const AluKey& k, AluOp* op) {
  if (k.code == AluCode::kSetp || k.code == AluCode::kSet) return ResolveComparison(k, op);
  switch (k.type) {
    case Type::kF16: return ResolveHalf<Half>(k, op, false);
    case Type::kF16x2: return ResolveHalf<Half>(k, op, true);
    case Type::kBF16: return ResolveHalf<Bfloat>(k, op, false);
    case Type::kBF16x2: return ResolveHalf<Bfloat>(k, op, true);
    case Type::kF32: case Type::kF64: break;
    default: return false;
  }
  bool single = k.type == Type::kF32;
  switch (k.code) {
    case AluCode::kAdd: case AluCode::kSub: case AluCode::kMul: case AluCode::kFma: case AluCode::kMad:
      return single ? ResolveArithmetic<float>(k, op) : ResolveArithmetic<double>(k, op);
    case AluCode::kDiv: return ResolveDivide(k, op);
    case AluCode::kSqrt:
      if (k.approx) return single && ResolveApproximation<Approximate::kSqrt>(k, op);
      return single ? ResolveArithmetic<float>(k, op) : ResolveArithmetic<double>(k, op);
    case AluCode::kRcp:
      if (k.approx) return ResolveApproximation<Approximate::kRcp>(k, op);
      return single ? ResolveArithmetic<float>(k, op) : ResolveArithmetic<double>(k, op);
    case AluCode::kRsqrt: return ResolveApproximation<Approximate::kRsqrt>(k, op);
    case AluCode::kEx2: return single && ResolveApproximation<Approximate::kEx2>(k, op);
    case AluCode::kLg2: return single && ResolveApproximation<Approximate::kLg2>(k, op);
    case AluCode::kSin: return single && ResolveApproximation<Approximate::kSin>(k, op);
    case AluCode::kCos: return single && ResolveApproximation<Approximate::kCos>(k, op);
    case AluCode::kTanh: return single && ResolveApproximation<Approximate::kTanh>(k, op);
    case AluCode::kMin: return single ? ResolveExtreme<float, true>(k, op) : ResolveExtreme<double, true>(k, op);
    case AluCode::kMax: return single ? ResolveExtreme<float, false>(k, op) : ResolveExtreme<double, false>(k, op);
    case AluCode::kAbs:
      return Fill(op, !single ? &Unary<Abs<double>> : k.ftz ? &Unary<Abs<float, true>> : &Unary<Abs<float>>, 1, k.type, k.type);
    case AluCode::kNeg:
      return Fill(op, !single ? &Unary<Neg<double>> : k.ftz ? &Unary<Neg<float, true>> : &Unary<Neg<float>>, 1, k.type, k.type);
    case AluCode::kCopysign: return Fill(op, single ? &Binary<Copysign<float>> : &Binary<Copysign<double>>, 2, k.type, k.type, k.type);
    case AluCode::kTestp:
      Fill(op, nullptr, 1, Type::kPred, k.type);
      op->shape = AluOp::Shape::kTest;
      op->test = single ? TestFunction<float>(k.test) : TestFunction<double>(k.test);
      return true;
    default: return false;
  }
}

}  // namespace softgpu::exec::SOFTGPU_ISA
