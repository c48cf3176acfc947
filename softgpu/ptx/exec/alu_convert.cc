// cvt and cvt.pack (PTX ISA: data movement and conversion). Compiled once per instruction set variant.
#include "softgpu/ptx/exec/alu_half.h"

namespace softgpu::exec::SOFTGPU_ISA {
namespace {

using ptx::Type;

// --- Integers: how a lane of each type is read and written. 8-bit values live in 16-bit lanes.
template <typename Lane, typename Value>
struct Int {
  using D = Lane;
  using A = Lane;
  using V = Value;
  static constexpr bool kSigned = Value(-1) < Value(0);
  static constexpr unsigned kBits = 8 * sizeof(Value);
  static constexpr Value kMost = static_cast<Value>(kSigned ? (u64{1} << (kBits - 1)) - 1 : ~u64{0});
  static constexpr Value kLeast = static_cast<Value>(kSigned ? u64{1} << (kBits - 1) : 0);
  static Value Get(Lane lane) { return static_cast<Value>(lane); }
  // Without the bits above the value.
  static Lane Put(Value value) {
    if constexpr (sizeof(Value) == 1) return static_cast<Lane>(static_cast<u8>(value));
    else return static_cast<Lane>(value);
  }
};
using IntU8 = Int<u16, u8>;
using IntS8 = Int<u16, s8>;
using IntU16 = Int<u16, u16>;
using IntS16 = Int<u16, s16>;
using IntU32 = Int<u32, u32>;
using IntS32 = Int<u32, s32>;
using IntU64 = Int<u64, u64>;
using IntS64 = Int<u64, s64>;

template <typename To, typename From, bool kSat> struct IntToInt {
  using D = typename To::D;
  using A = typename From::A;
  static D Do(A lane) {
    typename From::V v = From::Get(lane);
    if constexpr (kSat) {
      __int128 wide = v;
      if (wide > To::kMost) return To::Put(To::kMost);
      if (wide < To::kLeast) return To::Put(To::kLeast);
    }
    return To::Put(static_cast<typename To::V>(v));
  }
};

// --- Floating point: lanes as double, which holds every value of every format exactly.
struct F32 {
  using D = float;
  using A = float;
  static double Get(float v) { return v; }
};
struct F64 {
  using D = double;
  using A = double;
  static double Get(double v) { return v; }
};
template <typename Format> struct Small {
  using D = u16;
  using A = u16;
  static double Get(u16 v) { return Format::Value(v); }
};
using F16 = Small<Half>;
using BF16 = Small<Bfloat>;

inline float FlushF32(float v) { return (BitCast<u32>(v) & 0x7f800000u) == 0 ? BitCast<float>(BitCast<u32>(v) & 0x80000000u) : v; }
inline float CanonicalF32(float v) { return v == v ? v : BitCast<float>(0x7fffffffu); }

// The narrowing to single is left to the FPU's mode; the small formats round by their own code.
template <typename To, Round kRound, bool kFlush> inline typename To::D PutFloat(double v);
template <typename To, Round kRound, bool kFlush> struct Putter;
template <Round kRound, bool kFlush> struct Putter<F32, kRound, kFlush> {
  static float Put(double v) {
    float narrow = CanonicalF32(static_cast<float>(v));
    return kFlush ? FlushF32(narrow) : narrow;
  }
};
template <Round kRound, bool kFlush> struct Putter<F64, kRound, kFlush> { static double Put(double v) { return v; } };
template <typename Format, Round kRound, bool kFlush> struct Putter<Small<Format>, kRound, kFlush> {
  static u16 Put(double v) { return static_cast<u16>(Format::template Of<kRound>(v)); }
};

inline double RoundIntegral(double v, Round round) {
  switch (round) {
    case Round::kZero: return __builtin_trunc(v);
    case Round::kDown: return __builtin_floor(v);
    case Round::kUp: return __builtin_ceil(v);
    default: return __builtin_rint(v);
  }
}
inline double UnitOf(double v) { return v > 0 ? (v < 1 ? v : 1.0) : 0.0; }

enum class Clip { kNone, kSat, kRelu };
template <typename To, typename From, Round kRound, bool kIntegral, bool kFlush, Clip kClip> struct FloatToFloat {
  using D = typename To::D;
  using A = typename From::A;
  static D Do(A lane) {
    if constexpr (kFlush && sizeof(A) == 4) lane = FlushF32(lane);
    double v = From::Get(lane);
    if constexpr (kIntegral) v = RoundIntegral(v, kRound);
    if constexpr (kClip == Clip::kSat) v = UnitOf(v);
    if constexpr (kClip == Clip::kRelu) v = v > 0 || v != v ? v : 0.0;
    return Putter<To, kIntegral ? Round::kNearest : kRound, kFlush>::Put(v);
  }
};

template <typename To, typename From, Round kRound, bool kFlush> struct FloatToInt {
  using D = typename To::D;
  using A = typename From::A;
  static D Do(A lane) {
    if constexpr (kFlush && sizeof(A) == 4) lane = FlushF32(lane);
    double v = RoundIntegral(From::Get(lane), kRound);
    using V = typename To::V;
    // NaN: zero, but for 64-bit results and for sources in double precision the most significant bit alone.
    constexpr bool kTopBit = sizeof(V) == 8 || sizeof(A) == 8;
    V nan = kTopBit ? static_cast<V>(u64{1} << (To::kBits - 1)) : V(0);
    constexpr double kAbove = To::kSigned ? (To::kBits == 64 ? 0x1p63 : static_cast<double>(u64{1} << (To::kBits - 1)))
                                          : (To::kBits == 64 ? 0x1p64 : static_cast<double>(u64{1} << (To::kBits % 64)));
    constexpr double kBelow = To::kSigned ? -kAbove : 0.0;
    double inside = v >= kAbove ? 0.0 : v < kBelow ? 0.0 : v == v ? v : 0.0;
    V converted = 0;
    if constexpr (To::kBits == 64 && !To::kSigned) {
      converted = inside >= 0x1p63 ? static_cast<V>(static_cast<s64>(inside - 0x1p63)) + (u64{1} << 63) : static_cast<V>(static_cast<s64>(inside));
    } else if constexpr (To::kBits == 64 || (To::kBits == 32 && !To::kSigned)) {
      converted = static_cast<V>(static_cast<s64>(inside));
    } else {
      converted = static_cast<V>(static_cast<s32>(inside));
    }
    V result = v >= kAbove ? To::kMost : v < kBelow ? To::kLeast : v == v ? converted : nan;
    return To::Put(result);
  }
};

// Integer to a format of kMantissa explicit mantissa bits, by integer arithmetic, for every rounding.
template <unsigned kMantissa, int kBias, int kTop, Round kRound>
inline u64 RoundInteger(u64 magnitude, bool negative, u64 sign_bit) {
  if (magnitude == 0) return 0;
  unsigned msb = 63 - static_cast<unsigned>(__builtin_clzll(magnitude));
  u64 kept = 0;
  bool up = false;
  if (msb <= kMantissa) {
    kept = magnitude << (kMantissa - msb);
  } else {
    unsigned drop = msb - kMantissa;
    kept = magnitude >> drop;
    u64 rest = magnitude & ((u64{1} << drop) - 1), half = u64{1} << (drop - 1);
    if (kRound == Round::kUp) up = rest != 0 && !negative;
    else if (kRound == Round::kDown) up = rest != 0 && negative;
    else if (kRound != Round::kZero) up = rest > half || (rest == half && (kept & 1));
  }
  u64 sign = negative ? sign_bit : 0;
  u64 result = kept + up + (static_cast<u64>(static_cast<int>(msb) + kBias - 1) << kMantissa);
  u64 infinity = static_cast<u64>(kTop) << kMantissa;
  if (result >= infinity) {
    bool largest = kRound == Round::kZero || (kRound == Round::kUp && negative) || (kRound == Round::kDown && !negative);
    return sign | (largest ? infinity - 1 : infinity);
  }
  return sign | result;
}
template <typename To, typename From, Round kRound, bool kSatUnit> struct IntToFloat {
  using D = typename To::D;
  using A = typename From::A;
  static D Do(A lane) {
    typename From::V v = From::Get(lane);
    if constexpr (kSatUnit) v = v > 0 ? 1 : 0;
    if constexpr (kRound == Round::kNearest && sizeof(D) >= 4) {
      return static_cast<D>(v);
    } else {
      bool negative = v < 0;
      u64 magnitude = negative ? u64{0} - static_cast<u64>(v) : static_cast<u64>(v);
      if constexpr (sizeof(D) == 8) return BitCast<double>(RoundInteger<52, 1023, 2047, kRound>(magnitude, negative, u64{1} << 63));
      else if constexpr (sizeof(D) == 4) return BitCast<float>(static_cast<u32>(RoundInteger<23, 127, 255, kRound>(magnitude, negative, u64{1} << 31)));
      else if constexpr (__is_same(To, F16)) return static_cast<u16>(RoundInteger<10, 15, 31, kRound>(magnitude, negative, 0x8000));
      else return static_cast<u16>(RoundInteger<7, 127, 255, kRound>(magnitude, negative, 0x8000));
    }
  }
};

// --- Choice by destination, source and rounding.

bool IsFloat(Type t) { return t == Type::kF16 || t == Type::kBF16 || t == Type::kF32 || t == Type::kF64; }

template <typename To>
LaneFn FromInteger(const AluKey& k, bool sat) {
#define FROM(type, From) case Type::type: return sat ? &Unary<IntToInt<To, From, true>> : &Unary<IntToInt<To, From, false>>
  switch (k.source) {
    FROM(kU8, IntU8);
    FROM(kS8, IntS8);
    FROM(kU16, IntU16);
    FROM(kS16, IntS16);
    FROM(kU32, IntU32);
    FROM(kS32, IntS32);
    FROM(kU64, IntU64);
    FROM(kS64, IntS64);
    default: return nullptr;
  }
#undef FROM
}
template <typename To, typename From, bool kFlush>
LaneFn IntegralRound(Round round) {
  switch (round) {
    case Round::kNearest: return &Unary<FloatToInt<To, From, Round::kNearest, kFlush>>;
    case Round::kZero: return &Unary<FloatToInt<To, From, Round::kZero, kFlush>>;
    case Round::kDown: return &Unary<FloatToInt<To, From, Round::kDown, kFlush>>;
    case Round::kUp: return &Unary<FloatToInt<To, From, Round::kUp, kFlush>>;
    default: return nullptr;
  }
}
template <typename To>
LaneFn ToInteger(const AluKey& k) {
  switch (k.source) {
    case Type::kF16: return IntegralRound<To, F16, false>(k.round);
    case Type::kBF16: return IntegralRound<To, BF16, false>(k.round);
    case Type::kF32: return k.ftz ? IntegralRound<To, F32, true>(k.round) : IntegralRound<To, F32, false>(k.round);
    case Type::kF64: return IntegralRound<To, F64, false>(k.round);
    default: return FromInteger<To>(k, k.sat);
  }
}
LaneFn IntegerResult(const AluKey& k) {
  switch (k.type) {
    case Type::kU8: return ToInteger<IntU8>(k);
    case Type::kS8: return ToInteger<IntS8>(k);
    case Type::kU16: return ToInteger<IntU16>(k);
    case Type::kS16: return ToInteger<IntS16>(k);
    case Type::kU32: return ToInteger<IntU32>(k);
    case Type::kS32: return ToInteger<IntS32>(k);
    case Type::kU64: return ToInteger<IntU64>(k);
    case Type::kS64: return ToInteger<IntS64>(k);
    default: return nullptr;
  }
}
template <typename To, typename From>
LaneFn IntegerRound(const AluKey& k) {
  if (k.sat) return &Unary<IntToFloat<To, From, Round::kNearest, true>>;
  switch (k.round) {
    case Round::kNearest: return &Unary<IntToFloat<To, From, Round::kNearest, false>>;
    case Round::kZero: return &Unary<IntToFloat<To, From, Round::kZero, false>>;
    case Round::kDown: return &Unary<IntToFloat<To, From, Round::kDown, false>>;
    case Round::kUp: return &Unary<IntToFloat<To, From, Round::kUp, false>>;
    default: return nullptr;
  }
}
template <typename To>
LaneFn FloatOfInteger(const AluKey& k) {
  switch (k.source) {
    case Type::kU8: return IntegerRound<To, IntU8>(k);
    case Type::kS8: return IntegerRound<To, IntS8>(k);
    case Type::kU16: return IntegerRound<To, IntU16>(k);
    case Type::kS16: return IntegerRound<To, IntS16>(k);
    case Type::kU32: return IntegerRound<To, IntU32>(k);
    case Type::kS32: return IntegerRound<To, IntS32>(k);
    case Type::kU64: return IntegerRound<To, IntU64>(k);
    case Type::kS64: return IntegerRound<To, IntS64>(k);
    default: return nullptr;
  }
}
template <typename To, typename From, Round kRound, bool kIntegral>
LaneFn FloatClip(const AluKey& k) {
  constexpr bool kCanFlush = sizeof(typename To::D) == 4 || sizeof(typename From::A) == 4;
  if constexpr (kCanFlush) {
    if (k.ftz) {
      return k.sat    ? &Unary<FloatToFloat<To, From, kRound, kIntegral, true, Clip::kSat>>
             : k.relu ? &Unary<FloatToFloat<To, From, kRound, kIntegral, true, Clip::kRelu>>
                      : &Unary<FloatToFloat<To, From, kRound, kIntegral, true, Clip::kNone>>;
    }
  }
  return k.sat    ? &Unary<FloatToFloat<To, From, kRound, kIntegral, false, Clip::kSat>>
         : k.relu ? &Unary<FloatToFloat<To, From, kRound, kIntegral, false, Clip::kRelu>>
                  : &Unary<FloatToFloat<To, From, kRound, kIntegral, false, Clip::kNone>>;
}
template <typename To, typename From>
LaneFn FloatRound(const AluKey& k) {
  if (k.integral) {
    switch (k.round) {
      case Round::kNearest: return FloatClip<To, From, Round::kNearest, true>(k);
      case Round::kZero: return FloatClip<To, From, Round::kZero, true>(k);
      case Round::kDown: return FloatClip<To, From, Round::kDown, true>(k);
      case Round::kUp: return FloatClip<To, From, Round::kUp, true>(k);
      default: return nullptr;
    }
  }
  switch (k.round) {
    case Round::kNone: case Round::kNearest: return FloatClip<To, From, Round::kNearest, false>(k);
    case Round::kZero: return FloatClip<To, From, Round::kZero, false>(k);
    case Round::kDown: return FloatClip<To, From, Round::kDown, false>(k);
    case Round::kUp: return FloatClip<To, From, Round::kUp, false>(k);
    default: return nullptr;
  }
}
// Double to single in another rounding mode of the FPU. Flushing is part of the rule, not of the mode.
LaneFn SingleOfDouble(const AluKey& k) {
  if (k.sat || k.ftz || k.relu || k.integral) return FloatRound<F32, F64>(k);
  constexpr LaneFn kPlain = &Unary<FloatToFloat<F32, F64, Round::kNearest, false, false, Clip::kNone>>;
  switch (k.round) {
    case Round::kZero: return &InMode<kPlain, kMxZero>;
    case Round::kDown: return &InMode<kPlain, kMxDown>;
    case Round::kUp: return &InMode<kPlain, kMxUp>;
    default: return kPlain;
  }
}
template <typename To>
LaneFn ToFloat(const AluKey& k) {
  switch (k.source) {
    case Type::kF16: return FloatRound<To, F16>(k);
    case Type::kBF16: return FloatRound<To, BF16>(k);
    case Type::kF32: return FloatRound<To, F32>(k);
    case Type::kF64:
      if constexpr (__is_same(To, F32)) return SingleOfDouble(k);
      else return FloatRound<To, F64>(k);
    default: return FloatOfInteger<To>(k);
  }
}

// --- Packed conversions.

template <typename Format, Round kRound, bool kRelu, bool kSatFinite> struct PackTwo {
  using D = u32;
  using A = float;
  using B = float;
  static u32 One(float v) {
    double wide = v;
    if constexpr (kRelu) wide = wide > 0 || wide != wide ? wide : 0.0;
    return Format::template Of<kRound, kSatFinite>(wide);
  }
  static u32 Do(float a, float b) { return One(a) << 16 | One(b); }
};
// Two 8-bit floats in a 16-bit lane; the 8-bit conversions always saturate to the largest finite value.
template <typename Format, bool kRelu> struct PackTwo8 {
  using D = u16;
  using A = float;
  using B = float;
  static u16 Do(float a, float b) {
    using Wide = PackTwo<Format, Round::kNearest, kRelu, true>;
    return static_cast<u16>(Wide::One(a) << 8 | Wide::One(b));
  }
};
template <typename Format, bool kRelu> struct NarrowPair8 {
  using D = u16;
  using A = u32;
  static u16 Do(u32 pair) {
    return PackTwo8<Format, kRelu>::Do(static_cast<float>(Half::Value(pair >> 16)), static_cast<float>(Half::Value(pair & 0xffff)));
  }
};
template <typename Format, bool kRelu> struct WidenPair8 {
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
template <bool kAway, bool kZero, bool kRelu> struct ToTf32 {
  using D = u32;
  using A = u32;
  static u32 Do(u32 a) {
    u32 magnitude = a & 0x7fffffff;
    if (magnitude > 0x7f800000) return 0x7fffffff;
    if (kRelu && (a >> 31)) return 0;
    if (magnitude == 0x7f800000 || kZero) return a & ~u32{0x1fff};
    u32 add = kAway ? 0x1000 : 0xfff + (a >> 13 & 1);
    return (a + add) & ~u32{0x1fff};
  }
};
template <typename Format>
bool ResolvePack(const AluKey& k, AluOp* op) {
  if (k.source != Type::kF32 || (k.round != Round::kNearest && k.round != Round::kZero)) return false;
  LaneFn fn = k.round == Round::kNearest ? (k.relu ? &Binary<PackTwo<Format, Round::kNearest, true, false>> : &Binary<PackTwo<Format, Round::kNearest, false, false>>)
                                         : (k.relu ? &Binary<PackTwo<Format, Round::kZero, true, false>> : &Binary<PackTwo<Format, Round::kZero, false, false>>);
  return Fill(op, fn, 2, k.type, Type::kF32, Type::kF32);
}
template <typename Format>
bool ResolvePack8(const AluKey& k, AluOp* op) {
  if (k.source == Type::kF32) return Fill(op, k.relu ? &Binary<PackTwo8<Format, true>> : &Binary<PackTwo8<Format, false>>, 2, Type::kB16, Type::kF32, Type::kF32);
  if (k.source == Type::kF16x2) return Fill(op, k.relu ? &Unary<NarrowPair8<Format, true>> : &Unary<NarrowPair8<Format, false>>, 1, Type::kB16, Type::kF16x2);
  return false;
}
bool ResolvePairOfHalves(const AluKey& k, AluOp* op) {
  if (k.source == Type::kE4M3x2) return Fill(op, k.relu ? &Unary<WidenPair8<E4m3, true>> : &Unary<WidenPair8<E4m3, false>>, 1, k.type, Type::kB16);
  if (k.source == Type::kE5M2x2) return Fill(op, k.relu ? &Unary<WidenPair8<E5m2, true>> : &Unary<WidenPair8<E5m2, false>>, 1, k.type, Type::kB16);
  return ResolvePack<Half>(k, op);
}
bool ResolveTf32(const AluKey& k, AluOp* op) {
  if (k.source != Type::kF32) return false;
  LaneFn fn = k.round == Round::kNearestAway ? &Unary<ToTf32<true, false, false>>
              : k.round == Round::kZero      ? (k.relu ? &Unary<ToTf32<false, true, true>> : &Unary<ToTf32<false, true, false>>)
                                             : (k.relu ? &Unary<ToTf32<false, false, true>> : &Unary<ToTf32<false, false, false>>);
  return Fill(op, fn, 1, Type::kB32, Type::kB32);
}
// cvt.pack: two saturated narrow integers, and for 8 bits the low half of c moved up.
template <typename To> struct Pack2 {
  using D = u32;
  using A = s32;
  using B = s32;
  static u32 One(s32 v) {
    using V = typename To::V;
    s32 most = static_cast<s32>(To::kMost), least = static_cast<s32>(To::kLeast);
    return To::Put(static_cast<V>(v > most ? most : v < least ? least : v));
  }
  static u32 Do(s32 a, s32 b) { return One(a) << To::kBits | One(b); }
};
template <typename To> struct Pack4 : Pack2<To> {
  using C = u32;
  static u32 Do(s32 a, s32 b, u32 c) { return c << 16 | Pack2<To>::Do(a, b); }
};
bool ResolveConvertPack(const AluKey& k, AluOp* op) {
  switch (k.type) {
    case Type::kU16: return Fill(op, &Binary<Pack2<IntU16>>, 2, Type::kB32, Type::kS32, Type::kS32);
    case Type::kS16: return Fill(op, &Binary<Pack2<IntS16>>, 2, Type::kB32, Type::kS32, Type::kS32);
    case Type::kU8: return Fill(op, &Ternary<Pack4<IntU8>>, 3, Type::kB32, Type::kS32, Type::kS32, Type::kB32);
    case Type::kS8: return Fill(op, &Ternary<Pack4<IntS8>>, 3, Type::kB32, Type::kS32, Type::kS32, Type::kB32);
    default: return false;
  }
}

}  // namespace

bool ResolveConvert(const AluKey& k, AluOp* op) {
  if (k.code == AluCode::kCvtPack) return ResolveConvertPack(k, op);
  switch (k.type) {
    case Type::kF16x2: return ResolvePairOfHalves(k, op);
    case Type::kBF16x2: return ResolvePack<Bfloat>(k, op);
    case Type::kE4M3x2: return ResolvePack8<E4m3>(k, op);
    case Type::kE5M2x2: return ResolvePack8<E5m2>(k, op);
    case Type::kTF32: return ResolveTf32(k, op);
    default: break;
  }
  LaneFn fn = nullptr;
  switch (k.type) {
    case Type::kF16: fn = ToFloat<F16>(k); break;
    case Type::kBF16: fn = ToFloat<BF16>(k); break;
    case Type::kF32: fn = ToFloat<F32>(k); break;
    case Type::kF64: fn = ToFloat<F64>(k); break;
    default: fn = IntegerResult(k); break;
  }
  // Integers convert to floating point only with a rounding, and floating point to integers only with an integral one.
  bool to_float = IsFloat(k.type), from_float = IsFloat(k.source);
  if (fn == nullptr || (from_float && !to_float && !k.integral) || (!from_float && k.integral)) return false;
  return Fill(op, fn, 1, k.type, k.source);
}

}  // namespace softgpu::exec::SOFTGPU_ISA
