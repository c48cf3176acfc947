// Half and bfloat16 instructions with .ftz, .sat or .relu, minima, maxima and functions, and single precision
// arithmetic with half sources (PTX ISA: half precision, mixed precision). Compiled for the baseline only.
#include "softgpu/ptx/exec/alu_math.h"

namespace softgpu::exec::SOFTGPU_ISA {
namespace {

template <typename F>
inline u32 NarrowFlush(u32 bits) {
  return (bits & F::kExponentMask) == 0 ? bits & F::kSignBit : bits;
}

enum Words : unsigned { kPlain = 0, kFtz = 1, kSat = 2, kRelu = 4, kNan = 8, kXorSign = 16 };
enum class HalfOp { kAdd, kSub, kMul, kFma, kMin, kMax, kAbs, kNeg, kEx2, kTanh };

template <HalfOp kOp>
inline double Exact(double a, double b, double c) {
  switch (kOp) {
    case HalfOp::kAdd:
      return AddToOdd(a, b);
    case HalfOp::kSub:
      return AddToOdd(a, -b);
    case HalfOp::kMul:
      return a * b;
    case HalfOp::kFma:
      return AddToOdd(a * b, c);
    case HalfOp::kEx2:
      return TwoToThe(a);
    default:
      return HyperbolicTangent(a);
  }
}
template <typename F, HalfOp kOp, unsigned kWords>
__attribute__((noinline)) u32 HalfDo(u32 x, u32 y, u32 z) {
  if constexpr (kWords & kFtz) {
    x = NarrowFlush<F>(x);
    y = NarrowFlush<F>(y);
    z = NarrowFlush<F>(z);
  }
  if constexpr (kOp == HalfOp::kAbs) return x & F::kMagnitude;
  if constexpr (kOp == HalfOp::kNeg) return x ^ F::kSignBit;
  double a = F::Value(x), b = F::Value(y), c = F::Value(z);
  if constexpr (kOp == HalfOp::kMin || kOp == HalfOp::kMax) {
    return F::Of(
        MinMax<double, kOp == HalfOp::kMin, (kWords & kNan) != 0, (kWords & kXorSign) != 0>::Do(a, b));
  }
  double value = Exact<kOp>(a, b, c);
  if constexpr (kWords & kSat) value = Unit(value);
  if constexpr (kWords & kRelu) value = value > 0 || value != value ? value : 0.0;
  u32 result = F::Of(value);
  return kWords & kFtz ? NarrowFlush<F>(result) : result;
}

template <typename F, HalfOp kOp, unsigned kWords>
struct Single {
  using D = u16;
  using A = u16;
  using B = u16;
  using C = u16;
  static u16 Do(u16 a, u16 b = 0, u16 c = 0) { return static_cast<u16>(HalfDo<F, kOp, kWords>(a, b, c)); }
};
template <typename F, HalfOp kOp, unsigned kWords>
struct Pair : Same3<u32> {
  static u32 Do(u32 a, u32 b = 0, u32 c = 0) {
    u32 low = HalfDo<F, kOp, kWords>(a & 0xffff, b & 0xffff, c & 0xffff);
    return low | HalfDo<F, kOp, kWords>(a >> 16, b >> 16, c >> 16) << 16;
  }
};

struct Chosen {
  LaneFn fn = nullptr;
  unsigned sources = 0;
};
constexpr unsigned SourcesOf(HalfOp op) {
  switch (op) {
    case HalfOp::kFma:
      return 3;
    case HalfOp::kAbs:
    case HalfOp::kNeg:
    case HalfOp::kEx2:
    case HalfOp::kTanh:
      return 1;
    default:
      return 2;
  }
}
template <typename F, HalfOp kOp, unsigned kWords>
Chosen Choose(bool pair) {
  constexpr unsigned kSources = SourcesOf(kOp);
  using One = Single<F, kOp, kWords>;
  using Two = Pair<F, kOp, kWords>;
  if constexpr (kSources == 1)
    return {pair ? &Unary<Two> : &Unary<One>, 1};
  else if constexpr (kSources == 2)
    return {pair ? &Binary<Two> : &Binary<One>, 2};
  else
    return {pair ? &Ternary<Two> : &Ternary<One>, 3};
}
template <typename F, HalfOp kOp>
Chosen ChooseArithmetic(unsigned words, bool pair) {
  switch (words) {
    case kFtz:
      return Choose<F, kOp, kFtz>(pair);
    case kSat:
      return Choose<F, kOp, kSat>(pair);
    case kFtz | kSat:
      return Choose<F, kOp, kFtz | kSat>(pair);
    default:
      break;
  }
  if constexpr (kOp == HalfOp::kFma) {
    if (words == kRelu) return Choose<F, kOp, kRelu>(pair);
    if (words == (kFtz | kRelu)) return Choose<F, kOp, kFtz | kRelu>(pair);
  }
  return {};
}
template <typename F, HalfOp kOp>
Chosen ChooseExtreme(unsigned words, bool pair) {
  switch (words) {
    case 0:
      return Choose<F, kOp, 0>(pair);
    case kFtz:
      return Choose<F, kOp, kFtz>(pair);
    case kNan:
      return Choose<F, kOp, kNan>(pair);
    case kFtz | kNan:
      return Choose<F, kOp, kFtz | kNan>(pair);
    case kXorSign:
      return Choose<F, kOp, kXorSign>(pair);
    case kFtz | kXorSign:
      return Choose<F, kOp, kFtz | kXorSign>(pair);
    case kNan | kXorSign:
      return Choose<F, kOp, kNan | kXorSign>(pair);
    case kFtz | kNan | kXorSign:
      return Choose<F, kOp, kFtz | kNan | kXorSign>(pair);
    default:
      return {};
  }
}
template <typename F, HalfOp kOp>
Chosen ChooseUnary(unsigned words, bool pair) {
  if (words & ~unsigned{kFtz}) return {};
  return words ? Choose<F, kOp, kFtz>(pair) : Choose<F, kOp, 0>(pair);
}
unsigned WordsOf(const AluKey& k) {
  return (k.ftz ? kFtz : kPlain) | (k.sat ? kSat : kPlain) | (k.relu ? kRelu : kPlain) |
         (k.nan ? kNan : kPlain) | (k.xorsign_abs ? kXorSign : kPlain);
}
template <typename F>
bool ResolveHalf(const AluKey& k, AluOp* op, bool pair) {
  if ((k.round != Round::kNone && k.round != Round::kNearest) || k.source != Type::kNone) return false;
  unsigned words = WordsOf(k);
  Chosen chosen;
  switch (k.code) {
    case AluCode::kAdd:
      chosen = ChooseArithmetic<F, HalfOp::kAdd>(words, pair);
      break;
    case AluCode::kSub:
      chosen = ChooseArithmetic<F, HalfOp::kSub>(words, pair);
      break;
    case AluCode::kMul:
      chosen = ChooseArithmetic<F, HalfOp::kMul>(words, pair);
      break;
    case AluCode::kFma:
      chosen = ChooseArithmetic<F, HalfOp::kFma>(words, pair);
      break;
    case AluCode::kMin:
      chosen = ChooseExtreme<F, HalfOp::kMin>(words, pair);
      break;
    case AluCode::kMax:
      chosen = ChooseExtreme<F, HalfOp::kMax>(words, pair);
      break;
    case AluCode::kAbs:
      chosen = ChooseUnary<F, HalfOp::kAbs>(words, pair);
      break;
    case AluCode::kNeg:
      chosen = ChooseUnary<F, HalfOp::kNeg>(words, pair);
      break;
    case AluCode::kEx2:
      chosen = ChooseUnary<F, HalfOp::kEx2>(words, pair);
      break;
    case AluCode::kTanh:
      chosen = ChooseUnary<F, HalfOp::kTanh>(words, pair);
      break;
    default:
      return false;
  }
  return chosen.fn != nullptr && Fill(op, chosen.fn, chosen.sources, k.type, k.type, k.type, k.type);
}

// --- Single precision with half sources: the first source of add and sub, the factors of fma.
template <typename F>
inline float Widen(u16 bits) {
  return static_cast<float>(F::Value(bits));
}
template <bool kSat>
inline float Finish(float r) {
  return kSat ? Unit(r) : Canonical(r);
}
template <typename F, bool kSat>
struct MixedAdd : Same3<float> {
  using A = u16;
  static float Do(u16 a, float c) { return Finish<kSat>(Widen<F>(a) + c); }
};
template <typename F, bool kSat>
struct MixedSub : Same3<float> {
  using A = u16;
  static float Do(u16 a, float c) { return Finish<kSat>(Widen<F>(a) - c); }
};
template <typename F, bool kSat>
struct MixedFma : Same3<float> {
  using A = u16;
  using B = u16;
  static float Do(u16 a, u16 b, float c) { return Finish<kSat>(Fuse(Widen<F>(a), Widen<F>(b), c)); }
};
template <typename F, bool kSat>
bool ResolveMixed(const AluKey& k, AluOp* op) {
  switch (k.code) {
    case AluCode::kAdd:
      return Fill(op, ForMode<&Binary<MixedAdd<F, kSat>>>(k.round), 2, k.type, k.source, k.type);
    case AluCode::kSub:
      return Fill(op, ForMode<&Binary<MixedSub<F, kSat>>>(k.round), 2, k.type, k.source, k.type);
    case AluCode::kFma:
      return Fill(op, ForMode<&Ternary<MixedFma<F, kSat>>>(k.round), 3, k.type, k.source, k.source, k.type);
    default:
      return false;
  }
}

}  // namespace

bool ResolveSmall(const AluKey& k, AluOp* op) {
  switch (k.type) {
    case Type::kF16:
      return ResolveHalf<Half>(k, op, false);
    case Type::kF16x2:
      return ResolveHalf<Half>(k, op, true);
    case Type::kBF16:
      return ResolveHalf<Bfloat>(k, op, false);
    case Type::kBF16x2:
      return ResolveHalf<Bfloat>(k, op, true);
    default:
      break;
  }
  if (k.type != Type::kF32 || k.ftz || k.relu || k.approx) return false;
  if (k.source == Type::kF16)
    return k.sat ? ResolveMixed<Half, true>(k, op) : ResolveMixed<Half, false>(k, op);
  if (k.source == Type::kBF16)
    return k.sat ? ResolveMixed<Bfloat, true>(k, op) : ResolveMixed<Bfloat, false>(k, op);
  return false;
}

}  // namespace softgpu::exec::SOFTGPU_ISA
