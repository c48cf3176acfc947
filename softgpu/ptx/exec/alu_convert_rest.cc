// The conversions that are rare in programs: saturating, narrow, directed, packed. Compiled for the baseline
// only.
#include "softgpu/ptx/exec/alu_convert.h"

namespace softgpu::exec::SOFTGPU_ISA {
namespace {

template <typename R>
struct Outlined {
  using D = typename R::D;
  using A = typename R::A;
  static __attribute__((noinline)) D Do(A a) { return R::Do(a); }
};

// --- Between integers, with saturation.
template <typename To>
LaneFn Saturated(Type source) {
  switch (source) {
    case Type::kU8:
      return &Unary<IntToInt<To, IntU8, true>>;
    case Type::kS8:
      return &Unary<IntToInt<To, IntS8, true>>;
    case Type::kU16:
      return &Unary<IntToInt<To, IntU16, true>>;
    case Type::kS16:
      return &Unary<IntToInt<To, IntS16, true>>;
    case Type::kU32:
      return &Unary<IntToInt<To, IntU32, true>>;
    case Type::kS32:
      return &Unary<IntToInt<To, IntS32, true>>;
    case Type::kU64:
      return &Unary<IntToInt<To, IntU64, true>>;
    case Type::kS64:
      return &Unary<IntToInt<To, IntS64, true>>;
    default:
      return nullptr;
  }
}
// --- Floating point to integer, as far as it is not hot.
template <typename To>
LaneFn ToInteger(const AluKey& k) {
  if (!k.integral) return k.sat && k.round == Round::kNone && !k.ftz ? Saturated<To>(k.source) : nullptr;
  if (k.ftz && k.source != Type::kF32) return nullptr;
  switch (k.source) {
    case Type::kF16:
      return IntegralRound<To, F16, false>(k.round);
    case Type::kBF16:
      return IntegralRound<To, BF16, false>(k.round);
    case Type::kF32:
      return k.ftz ? IntegralRound<To, F32, true>(k.round) : IntegralRound<To, F32, false>(k.round);
    case Type::kF64:
      return IntegralRound<To, F64, false>(k.round);
    default:
      return nullptr;
  }
}
LaneFn IntegerResult(const AluKey& k) {
  switch (k.type) {
    case Type::kU8:
      return ToInteger<IntU8>(k);
    case Type::kS8:
      return ToInteger<IntS8>(k);
    case Type::kU16:
      return ToInteger<IntU16>(k);
    case Type::kS16:
      return ToInteger<IntS16>(k);
    case Type::kU32:
      return ToInteger<IntU32>(k);
    case Type::kS32:
      return ToInteger<IntS32>(k);
    case Type::kU64:
      return ToInteger<IntU64>(k);
    case Type::kS64:
      return ToInteger<IntS64>(k);
    default:
      return nullptr;
  }
}

// --- Integer to floating point.
template <typename To, typename From>
LaneFn IntegerRound(const AluKey& k) {
  if (k.sat)
    return k.round == Round::kNone ? nullptr : &Unary<Outlined<IntToFloat<To, From, Round::kNearest, true>>>;
  switch (k.round) {
    case Round::kNearest:
      return &Unary<Outlined<IntToFloat<To, From, Round::kNearest, false>>>;
    case Round::kZero:
      return &Unary<Outlined<IntToFloat<To, From, Round::kZero, false>>>;
    case Round::kDown:
      return &Unary<Outlined<IntToFloat<To, From, Round::kDown, false>>>;
    case Round::kUp:
      return &Unary<Outlined<IntToFloat<To, From, Round::kUp, false>>>;
    default:
      return nullptr;
  }
}
template <typename To>
LaneFn OfInteger(const AluKey& k) {
  if (k.ftz || k.relu || k.integral || k.satfinite) return nullptr;
  switch (k.source) {
    case Type::kU8:
      return IntegerRound<To, IntU8>(k);
    case Type::kS8:
      return IntegerRound<To, IntS8>(k);
    case Type::kU16:
      return IntegerRound<To, IntU16>(k);
    case Type::kS16:
      return IntegerRound<To, IntS16>(k);
    case Type::kU32:
      return IntegerRound<To, IntU32>(k);
    case Type::kS32:
      return IntegerRound<To, IntS32>(k);
    case Type::kU64:
      return IntegerRound<To, IntU64>(k);
    case Type::kS64:
      return IntegerRound<To, IntS64>(k);
    default:
      return nullptr;
  }
}

// --- Between floating-point formats.
template <typename To, typename From, Round kRound, unsigned kWords>
constexpr LaneFn Rule() {
  return &Unary<Outlined<FloatToFloat<To, From, kRound, kWords>>>;
}
// .ftz is for single precision only; .relu and .satfinite for results of 16 bits.
template <typename To, typename From, Round kRound, unsigned kBase>
LaneFn WithWords(unsigned words) {
  constexpr bool kFlushes = sizeof(typename To::D) == 4 || sizeof(typename From::A) == 4;
  constexpr bool kNarrow = sizeof(typename To::D) == 2;
  switch (words) {
    case kPlain:
      return Rule<To, From, kRound, kBase>();
    case kSat:
      return Rule<To, From, kRound, kBase | kSat>();
    default:
      break;
  }
  if constexpr (kFlushes) {
    if (words == kFtz) return Rule<To, From, kRound, kBase | kFtz>();
    if (words == (kFtz | kSat)) return Rule<To, From, kRound, kBase | kFtz | kSat>();
  }
  if constexpr (kNarrow && kBase == kPlain) {
    if (words == kRelu) return Rule<To, From, kRound, kRelu>();
    if (words == kSatFinite) return Rule<To, From, kRound, kSatFinite>();
    if (words == (kRelu | kSatFinite)) return Rule<To, From, kRound, kRelu | kSatFinite>();
  }
  return nullptr;
}
unsigned WordsOf(const AluKey& k) {
  return (k.ftz ? kFtz : kPlain) | (k.sat ? kSat : kPlain) | (k.relu ? kRelu : kPlain) |
         (k.satfinite ? kSatFinite : kPlain);
}
// Within one format: rounded to an integral value, or as it is.
template <typename T>
LaneFn SameFormat(const AluKey& k) {
  if (k.relu || k.satfinite) return nullptr;
  unsigned words = WordsOf(k);
  if (k.round == Round::kNone) return WithWords<T, T, Round::kNearest, kPlain>(words);
  if (!k.integral) return nullptr;
  switch (k.round) {
    case Round::kNearest:
      return WithWords<T, T, Round::kNearest, kIntegral>(words);
    case Round::kZero:
      return WithWords<T, T, Round::kZero, kIntegral>(words);
    case Round::kDown:
      return WithWords<T, T, Round::kDown, kIntegral>(words);
    case Round::kUp:
      return WithWords<T, T, Round::kUp, kIntegral>(words);
    default:
      return nullptr;
  }
}
template <typename To, typename From>
LaneFn Narrowing(const AluKey& k) {
  if (k.integral) return nullptr;
  unsigned words = WordsOf(k);
  switch (k.round) {
    case Round::kNearest:
      return WithWords<To, From, Round::kNearest, kPlain>(words);
    case Round::kZero:
      return WithWords<To, From, Round::kZero, kPlain>(words);
    case Round::kDown:
      return WithWords<To, From, Round::kDown, kPlain>(words);
    case Round::kUp:
      return WithWords<To, From, Round::kUp, kPlain>(words);
    default:
      return nullptr;
  }
}
template <typename To, typename From>
LaneFn Exactly(const AluKey& k) {
  return k.round == Round::kNone ? WithWords<To, From, Round::kNearest, kPlain>(WordsOf(k)) : nullptr;
}
// Narrowing to single precision rounds by the FPU's mode.
LaneFn SingleOfDouble(const AluKey& k) {
  if (k.integral || k.round == Round::kNone || k.round == Round::kNearestAway) return nullptr;
  switch (WordsOf(k)) {
    case kPlain:
      return ForMode<Rule<F32, F64, Round::kNearest, kPlain>()>(k.round);
    case kFtz:
      return ForMode<Rule<F32, F64, Round::kNearest, kFtz>()>(k.round);
    case kSat:
      return ForMode<Rule<F32, F64, Round::kNearest, kSat>()>(k.round);
    case kFtz | kSat:
      return ForMode<Rule<F32, F64, Round::kNearest, kFtz | kSat>()>(k.round);
    default:
      return nullptr;
  }
}
LaneFn FloatResult(const AluKey& k) {
  Type t = k.type, s = k.source;
  if (t == Type::kF16) {
    return s == Type::kF16    ? SameFormat<F16>(k)
           : s == Type::kBF16 ? Narrowing<F16, BF16>(k)
           : s == Type::kF32  ? Narrowing<F16, F32>(k)
           : s == Type::kF64  ? Narrowing<F16, F64>(k)
                              : OfInteger<F16>(k);
  }
  if (t == Type::kBF16) {
    return s == Type::kBF16  ? SameFormat<BF16>(k)
           : s == Type::kF16 ? Narrowing<BF16, F16>(k)
           : s == Type::kF32 ? Narrowing<BF16, F32>(k)
           : s == Type::kF64 ? Narrowing<BF16, F64>(k)
                             : OfInteger<BF16>(k);
  }
  if (t == Type::kF32) {
    return s == Type::kF32    ? SameFormat<F32>(k)
           : s == Type::kF16  ? Exactly<F32, F16>(k)
           : s == Type::kBF16 ? Exactly<F32, BF16>(k)
           : s == Type::kF64  ? SingleOfDouble(k)
                              : OfInteger<F32>(k);
  }
  return s == Type::kF64    ? SameFormat<F64>(k)
         : s == Type::kF16  ? Exactly<F64, F16>(k)
         : s == Type::kBF16 ? Exactly<F64, BF16>(k)
         : s == Type::kF32  ? Exactly<F64, F32>(k)
                            : OfInteger<F64>(k);
}

// --- Packed conversions.

// Two 8-bit floats in a 16-bit lane; the 8-bit conversions always saturate to the largest finite value.
template <typename Format, bool kRelu>
struct PackTwo8 {
  using D = u16;
  using A = float;
  using B = float;
  static u16 Do(float a, float b) {
    using Wide = PackTwo<Format, Round::kNearest, kRelu, true>;
    return static_cast<u16>(Wide::One(a) << 8 | Wide::One(b));
  }
};
template <typename Format, bool kRelu>
struct NarrowPair8 {
  using D = u16;
  using A = u32;
  static u16 Do(u32 pair) {
    return PackTwo8<Format, kRelu>::Do(static_cast<float>(Half::Value(pair >> 16)),
                                       static_cast<float>(Half::Value(pair & 0xffff)));
  }
};
template <typename Format, bool kRelu>
struct WidenPair8 {
  using D = u32;
  using A = u16;
  static u32 One(u32 bits) {
    double v = Format::Value(bits);
    if constexpr (kRelu) v = v > 0 || v != v ? v : 0.0;
    return Half::Of(v);
  }
  static u32 Do(u16 pair) { return One(pair >> 8) << 16 | One(pair & 0xff); }
};
// tf32: single precision with 10 mantissa bits.
template <Round kRound, bool kReluWord, bool kFinite>
struct ToTf32 {
  using D = u32;
  using A = u32;
  static u32 Do(u32 a) {
    u32 magnitude = a & 0x7fffffff, sign = a & 0x80000000;
    if (magnitude > 0x7f800000) return 0x7fffffff;
    if (kReluWord && sign) return 0;
    u32 add = kRound == Round::kNearestAway ? 0x1000 : kRound == Round::kZero ? 0 : 0xfff + (a >> 13 & 1);
    u32 rounded = magnitude == 0x7f800000 ? magnitude : (magnitude + add) & ~u32{0x1fff};
    if (kFinite && rounded >= 0x7f800000) rounded = 0x7f7fe000;
    return sign | rounded;
  }
};
template <Round kRound>
LaneFn Tf32Words(const AluKey& k) {
  if (k.relu) return k.satfinite ? &Unary<ToTf32<kRound, true, true>> : &Unary<ToTf32<kRound, true, false>>;
  return k.satfinite ? &Unary<ToTf32<kRound, false, true>> : &Unary<ToTf32<kRound, false, false>>;
}
bool ResolveTf32(const AluKey& k, AluOp* op) {
  if (k.source != Type::kF32 || k.sat || k.ftz || k.integral) return false;
  switch (k.round) {
    case Round::kNearestAway:
      return !k.relu && Fill(op, Tf32Words<Round::kNearestAway>(k), 1, Type::kB32, Type::kF32);
    case Round::kZero:
      return Fill(op, Tf32Words<Round::kZero>(k), 1, Type::kB32, Type::kF32);
    case Round::kNearest:
      return Fill(op, Tf32Words<Round::kNearest>(k), 1, Type::kB32, Type::kF32);
    default:
      return false;
  }
}
template <typename Format, Round kRound>
LaneFn PackWords(const AluKey& k) {
  if (k.relu)
    return k.satfinite ? &Binary<PackTwo<Format, kRound, true, true>>
                       : &Binary<PackTwo<Format, kRound, true, false>>;
  return k.satfinite ? &Binary<PackTwo<Format, kRound, false, true>>
                     : &Binary<PackTwo<Format, kRound, false, false>>;
}
template <typename Format>
bool ResolvePair(const AluKey& k, AluOp* op) {
  if (k.source != Type::kF32 || (k.round != Round::kNearest && k.round != Round::kZero)) return false;
  LaneFn fn =
      k.round == Round::kNearest ? PackWords<Format, Round::kNearest>(k) : PackWords<Format, Round::kZero>(k);
  return Fill(op, fn, 2, k.type, Type::kF32, Type::kF32);
}
template <typename Format>
bool ResolvePair8(const AluKey& k, AluOp* op) {
  if (!k.satfinite || k.round != Round::kNearest) return false;
  if (k.source == Type::kF32) {
    return Fill(op, k.relu ? &Binary<PackTwo8<Format, true>> : &Binary<PackTwo8<Format, false>>, 2,
                Type::kB16, Type::kF32, Type::kF32);
  }
  if (k.source != Type::kF16x2) return false;
  return Fill(op, k.relu ? &Unary<NarrowPair8<Format, true>> : &Unary<NarrowPair8<Format, false>>, 1,
              Type::kB16, Type::kF16x2);
}
template <typename Format>
bool ResolveWiden8(const AluKey& k, AluOp* op) {
  if (k.round != Round::kNearest || k.satfinite) return false;
  return Fill(op, k.relu ? &Unary<WidenPair8<Format, true>> : &Unary<WidenPair8<Format, false>>, 1, k.type,
              Type::kB16);
}
bool ResolvePairOfHalves(const AluKey& k, AluOp* op) {
  if (k.source == Type::kE4M3x2) return ResolveWiden8<E4m3>(k, op);
  if (k.source == Type::kE5M2x2) return ResolveWiden8<E5m2>(k, op);
  return ResolvePair<Half>(k, op);
}
bool ResolvePacked(const AluKey& k, AluOp* op) {
  if (k.sat || k.ftz || k.integral) return false;
  switch (k.type) {
    case Type::kF16x2:
      return ResolvePairOfHalves(k, op);
    case Type::kBF16x2:
      return ResolvePair<Bfloat>(k, op);
    case Type::kE4M3x2:
      return ResolvePair8<E4m3>(k, op);
    case Type::kE5M2x2:
      return ResolvePair8<E5m2>(k, op);
    default:
      return false;
  }
}
// cvt.pack: two saturated narrow integers, and for 8 bits the low half of c moved up.
template <typename To>
struct Pack2 {
  using D = u32;
  using A = s32;
  using B = s32;
  static u32 One(s32 v) {
    s32 most = static_cast<s32>(To::kMost), least = static_cast<s32>(To::kLeast);
    return static_cast<u32>(v > most ? most : v < least ? least : v) & ((1u << To::kBits) - 1);
  }
  static u32 Do(s32 a, s32 b) { return One(a) << To::kBits | One(b); }
};
template <typename To>
struct Pack4 : Pack2<To> {
  using C = u32;
  static u32 Do(s32 a, s32 b, u32 c) { return c << 16 | Pack2<To>::Do(a, b); }
};
bool ResolveConvertPack(const AluKey& k, AluOp* op) {
  switch (k.type) {
    case Type::kU16:
      return Fill(op, &Binary<Pack2<IntU16>>, 2, Type::kB32, Type::kS32, Type::kS32);
    case Type::kS16:
      return Fill(op, &Binary<Pack2<IntS16>>, 2, Type::kB32, Type::kS32, Type::kS32);
    case Type::kU8:
      return Fill(op, &Ternary<Pack4<IntU8>>, 3, Type::kB32, Type::kS32, Type::kS32, Type::kB32);
    case Type::kS8:
      return Fill(op, &Ternary<Pack4<IntS8>>, 3, Type::kB32, Type::kS32, Type::kS32, Type::kB32);
    default:
      return false;
  }
}

}  // namespace

bool ResolveConvertRest(const AluKey& k, AluOp* op) {
  if (k.code == AluCode::kCvtPack) return ResolveConvertPack(k, op);
  if (k.code != AluCode::kCvt) return false;
  if (k.type == Type::kTF32) return ResolveTf32(k, op);
  bool packed =
      k.type == Type::kF16x2 || k.type == Type::kBF16x2 || k.type == Type::kE4M3x2 || k.type == Type::kE5M2x2;
  if (packed) return ResolvePacked(k, op);
  bool floating =
      k.type == Type::kF16 || k.type == Type::kBF16 || k.type == Type::kF32 || k.type == Type::kF64;
  LaneFn fn = floating ? FloatResult(k) : IntegerResult(k);
  return fn != nullptr && Fill(op, fn, 1, k.type, k.source);
}

}  // namespace softgpu::exec::SOFTGPU_ISA
