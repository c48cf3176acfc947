// Integer instructions that are rare in programs: 24-bit products, dot products, bit fields, permutation,
// extended precision. Compiled for the baseline only.
#include "softgpu/ptx/exec/alu_integer.h"

namespace softgpu::exec::SOFTGPU_ISA {
namespace {

// 24-bit products: the low 24 bits of the sources, sign-extended for .s32.
template <typename T>
inline s64 Low24(T a) {
  if constexpr (kSigned<T>)
    return static_cast<s32>(static_cast<u32>(a) << 8) >> 8;
  else
    return a & 0xffffff;
}
template <typename T>
struct Mul24Lo : Same3<T> {
  static T Do(T a, T b) { return static_cast<T>(Low24(a) * Low24(b)); }
};
template <typename T>
struct Mul24Hi : Same3<T> {
  static T Do(T a, T b) { return static_cast<T>(Low24(a) * Low24(b) >> 16); }
};
template <typename T>
struct Mad24Lo : Same3<T> {
  static T Do(T a, T b, T c) { return AddWrap(Mul24Lo<T>::Do(a, b), c); }
};
template <typename T>
struct Mad24Hi : Same3<T> {
  static T Do(T a, T b, T c) { return AddWrap(Mul24Hi<T>::Do(a, b), c); }
};
struct Mad24HiSat : Same3<s32> {
  static s32 Do(s32 a, s32 b, s32 c) { return Saturated(s64{Mul24Hi<s32>::Do(a, b)} + c); }
};

template <bool kLeft, bool kWrap>
struct Shf : Same3<u32> {
  static u32 Do(u32 low, u32 high, u32 count) {
    u32 n = kWrap ? count & 31 : count > 32 ? 32 : count;
    u64 both = u64{high} << 32 | low;
    return static_cast<u32>(kLeft ? both << n >> 32 : both >> n);
  }
};
template <unsigned kLut>
struct Lop3 : Same3<u32> {
  static u32 Do(u32 a, u32 b, u32 c) {
    u32 r = 0;
    if constexpr (kLut & 0x01) r |= ~a & ~b & ~c;
    if constexpr (kLut & 0x02) r |= ~a & ~b & c;
    if constexpr (kLut & 0x04) r |= ~a & b & ~c;
    if constexpr (kLut & 0x08) r |= ~a & b & c;
    if constexpr (kLut & 0x10) r |= a & ~b & ~c;
    if constexpr (kLut & 0x20) r |= a & ~b & c;
    if constexpr (kLut & 0x40) r |= a & b & ~c;
    if constexpr (kLut & 0x80) r |= a & b & c;
    return r;
  }
};
template <unsigned kCount, unsigned... kLuts>
struct Lop3Table : Lop3Table<kCount - 1, kCount - 1, kLuts...> {};
template <unsigned... kLuts>
struct Lop3Table<0, kLuts...> {
  static LaneFn Get(u8 lut) {
    static constexpr LaneFn kFunctions[] = {&Ternary<Lop3<kLuts>>...};
    return kFunctions[lut];
  }
};

template <typename T>
inline unsigned Leading(T a) {
  if constexpr (sizeof(T) == 8)
    return a == 0 ? 64 : static_cast<unsigned>(__builtin_clzll(a));
  else
    return a == 0 ? 32 : static_cast<unsigned>(__builtin_clz(a));
}
template <typename T>
struct Clz : Same3<T> {
  using D = u32;
  static u32 Do(T a) { return Leading(a); }
};
template <typename T>
struct Popc : Same3<T> {
  using D = u32;
  static u32 Do(T a) {
    return static_cast<u32>(sizeof(T) == 8 ? __builtin_popcountll(a)
                                           : __builtin_popcount(static_cast<u32>(a)));
  }
};
template <typename T>
struct Brev : Same3<T> {
  static T Do(T a) {
    u64 v = sizeof(T) == 8 ? static_cast<u64>(a) : static_cast<u64>(a) << 32;
    v = (v >> 1 & 0x5555555555555555) | (v & 0x5555555555555555) << 1;
    v = (v >> 2 & 0x3333333333333333) | (v & 0x3333333333333333) << 2;
    v = (v >> 4 & 0x0f0f0f0f0f0f0f0f) | (v & 0x0f0f0f0f0f0f0f0f) << 4;
    return static_cast<T>(__builtin_bswap64(v));
  }
};
template <typename T, bool kShiftAmount>
struct Bfind : Same3<T> {
  using D = u32;
  static u32 Do(T a) {
    U<T> v = static_cast<U<T>>(kSigned<T> && a < 0 ? ~a : a);
    if (v == 0) return 0xffffffff;
    unsigned leading = Leading(v);
    return kShiftAmount ? leading : kBits<T> - 1 - leading;
  }
};
// Position and length are the low 8 bits of their operands (PTX ISA, bfe).
template <typename T>
struct Bfe : Same3<T> {
  using B = u32;
  using C = u32;
  static T Do(T a, u32 b, u32 c) {
    unsigned position = b & 0xff, length = c & 0xff, msb = kBits<T> - 1;
    U<T> v = static_cast<U<T>>(a);
    bool sign = false;
    if (kSigned<T> && length != 0) {
      unsigned at = position + length - 1;
      sign = v >> (at > msb ? msb : at) & 1;
    }
    U<T> field = position > msb ? 0 : static_cast<U<T>>(v >> position);
    if (position + length > msb + 1) length = position > msb ? 0 : msb + 1 - position;
    if (length <= msb) {
      U<T> keep = static_cast<U<T>>((U<T>(1) << length) - 1);
      field = static_cast<U<T>>(sign ? field | ~keep : field & keep);
    }
    return static_cast<T>(field);
  }
};
template <typename T>
inline T InsertField(T a, T b, u32 c, u32 d) {
  unsigned position = c & 0xff, length = d & 0xff, width = kBits<T>;
  if (position >= width || length == 0) return b;
  if (length > width - position) length = width - position;
  T keep = static_cast<T>((length >= width ? ~T(0) : (T(1) << length) - 1) << position);
  return static_cast<T>((b & ~keep) | (static_cast<T>(a << position) & keep));
}
template <typename T>
void Bfi(void* d, const void* a, const void* b, const void* c, const void* e, uint32_t mask) {
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
  const u32* position = static_cast<const u32*>(c);
  const u32* length = static_cast<const u32*>(e);
  Store<T>(d, mask, [=](unsigned l) { return InsertField(x[l], y[l], position[l], length[l]); });
}
// Position of the n-th set bit from `base` on, upwards for n > 0, downwards for n < 0.
struct Fns : Same3<u32> {
  using C = s32;
  static u32 Do(u32 a, u32 base, s32 offset) {
    if (base > 31) return 0xffffffff;
    if (offset == 0) return a >> base & 1 ? base : 0xffffffff;
    int step = offset > 0 ? 1 : -1;
    u32 wanted = offset > 0 ? static_cast<u32>(offset) : u32{0} - static_cast<u32>(offset);
    for (int at = static_cast<int>(base); at >= 0 && at < 32; at += step) {
      if ((a >> at & 1) && --wanted == 0) return static_cast<u32>(at);
    }
    return 0xffffffff;
  }
};
template <bool kClamp>
struct Bmsk : Same3<u32> {
  static u32 Do(u32 a, u32 b) {
    u32 position = kClamp ? a : a & 31, length = kClamp ? (b > 32 ? 32 : b) : b & 31;
    if (position > 31) return 0;
    u64 ones = (u64{1} << length) - 1;
    return static_cast<u32>(ones << position);
  }
};
template <typename T, bool kClamp>
struct Szext : Same3<T> {
  using B = u32;
  static T Do(T a, u32 b) {
    u32 length = kClamp ? (b > 32 ? 32 : b) : b & 31;
    if (length == 0) return 0;
    if (length >= 32) return a;
    u32 shift = 32 - length;
    if constexpr (kSigned<T>)
      return static_cast<s32>(static_cast<u32>(a) << shift) >> shift;
    else
      return a << shift >> shift;
  }
};

template <Permute kMode>
struct PrmtMode : Same3<u32> {
  static u32 Do(u32 a, u32 b, u32 c) {
    u64 pool = u64{b} << 32 | a;
    u32 result = 0;
    for (unsigned i = 0; i < 4; ++i) {
      unsigned n = c & 3, selector = 0;
      if constexpr (kMode == Permute::kF4e)
        selector = n + i;
      else if constexpr (kMode == Permute::kB4e)
        selector = (n - i) & 7;
      else if constexpr (kMode == Permute::kRc8)
        selector = n;
      else if constexpr (kMode == Permute::kEcl)
        selector = i < n ? n : i;
      else if constexpr (kMode == Permute::kEcr)
        selector = i < n ? i : n;
      else
        selector = (n & 1) * 2 + (i & 1);
      u32 byte = static_cast<u32>(pool >> (8 * (selector & 7))) & 0xff;
      result |= byte << (8 * i);
    }
    return result;
  }
};

template <typename A8, typename B8>
struct Dp4a : Same3<u32> {
  static u32 Do(u32 a, u32 b, u32 c) {
    for (unsigned i = 0; i < 4; ++i)
      c += static_cast<u32>(s32{static_cast<A8>(a >> (8 * i))} * s32{static_cast<B8>(b >> (8 * i))});
    return c;
  }
};
template <typename A16, typename B8, bool kHigh>
struct Dp2a : Same3<u32> {
  static u32 Do(u32 a, u32 b, u32 c) {
    for (unsigned i = 0; i < 2; ++i) {
      c += static_cast<u32>(s32{static_cast<A16>(a >> (16 * i))} *
                            s32{static_cast<B8>(b >> (8 * i + (kHigh ? 16 : 0)))});
    }
    return c;
  }
};

template <typename T>
struct Slct : Same3<T> {
  using C = s32;
  static T Do(T a, T b, s32 c) { return c >= 0 ? a : b; }
};
template <typename T>
struct SlctFloat : Same3<T> {
  using C = float;
  static T Do(T a, T b, float c) { return c >= 0 ? a : b; }
};
template <typename T>
struct SlctFlush : Same3<T> {
  using C = u32;
  static T Do(T a, T b, u32 c) {
    bool subnormal_or_zero = (c & 0x7f800000u) == 0, nan = (c & 0x7fffffffu) > 0x7f800000u;
    return subnormal_or_zero || (!nan && !(c >> 31)) ? a : b;
  }
};

// Extended precision. The carry flag of subtraction is a borrow, as the manual's CC.CF.
template <typename T, AluCode kCode, Flow kFlow, Part kPart>
void Carry(void* d, const void* a, const void* b, const void* c, uint32_t mask, uint32_t* carry) {
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
  const T* z = static_cast<const T*>(c);
  T* to = static_cast<T*>(d);
  uint32_t in = kFlow == Flow::kIn || kFlow == Flow::kInOut ? *carry : 0, out = 0;
  using W = unsigned __int128;
  for (unsigned l = 0; l < kWarpSize; ++l) {
    W left = x[l], right = y[l], extra = in >> l & 1, sum = 0;
    if constexpr (kCode == AluCode::kSub) {
      sum = left - right - extra;
    } else if constexpr (kCode == AluCode::kMad) {
      W product = left * right;
      T part = static_cast<T>(kPart == Part::kHi ? product >> kBits<T> : product);
      sum = W{part} + z[l] + extra;
    } else {
      sum = left + right + extra;
    }
    if (mask >> l & 1) to[l] = static_cast<T>(sum);
    out |= static_cast<uint32_t>(sum >> kBits<T> & 1) << l;
  }
  if constexpr (kFlow == Flow::kOut || kFlow == Flow::kInOut) *carry = (*carry & ~mask) | (out & mask);
}
// The high product of signed sources differs, so mad.hi has a form of its own.
template <typename S, Flow kFlow>
void CarryMadHiSigned(void* d, const void* a, const void* b, const void* c, uint32_t mask, uint32_t* carry) {
  using T = U<S>;
  const S* x = static_cast<const S*>(a);
  const S* y = static_cast<const S*>(b);
  const T* z = static_cast<const T*>(c);
  T* to = static_cast<T*>(d);
  uint32_t in = kFlow == Flow::kIn || kFlow == Flow::kInOut ? *carry : 0, out = 0;
  for (unsigned l = 0; l < kWarpSize; ++l) {
    unsigned __int128 sum = static_cast<T>(MulHigh(x[l], y[l]));
    sum += z[l];
    sum += in >> l & 1;
    if (mask >> l & 1) to[l] = static_cast<T>(sum);
    out |= static_cast<uint32_t>(sum >> kBits<T> & 1) << l;
  }
  if constexpr (kFlow == Flow::kOut || kFlow == Flow::kInOut) *carry = (*carry & ~mask) | (out & mask);
}

template <AluCode kCode, Flow kFlow>
CarryFn CarryFunction(const AluKey& k) {
  bool wide = Width(k.type) == 8;
  if constexpr (kCode == AluCode::kMad) {
    if (k.part == Part::kHi) {
      if (k.type == Type::kS32) return &CarryMadHiSigned<s32, kFlow>;
      if (k.type == Type::kS64) return &CarryMadHiSigned<s64, kFlow>;
      return wide ? &Carry<u64, kCode, kFlow, Part::kHi> : &Carry<u32, kCode, kFlow, Part::kHi>;
    }
  }
  return wide ? &Carry<u64, kCode, kFlow, Part::kLo> : &Carry<u32, kCode, kFlow, Part::kLo>;
}
template <AluCode kCode>
bool ResolveCarry(const AluKey& k, AluOp* op) {
  if (Width(k.type) < 4 || !IsInteger(k.type)) return false;
  Fill(op, nullptr, kCode == AluCode::kMad ? 3 : 2, k.type, k.type, k.type, k.type);
  op->shape = AluOp::Shape::kCarry;
  op->carry = k.carry == Flow::kOut  ? CarryFunction<kCode, Flow::kOut>(k)
              : k.carry == Flow::kIn ? CarryFunction<kCode, Flow::kIn>(k)
                                     : CarryFunction<kCode, Flow::kInOut>(k);
  return true;
}

bool ResolveProduct24(const AluKey& k, AluOp* op) {
  bool mad = k.code == AluCode::kMad24;
  if (k.sat) {
    return mad && k.part == Part::kHi && k.type == Type::kS32 &&
           Fill(op, &Ternary<Mad24HiSat>, 3, k.type, k.type, k.type, k.type);
  }
  if (k.part == Part::kLo) return mad ? BySign32<Mad24Lo, kThree>(k, op) : BySign32<Mul24Lo, kTwo>(k, op);
  if (k.part == Part::kHi) return mad ? BySign32<Mad24Hi, kThree>(k, op) : BySign32<Mul24Hi, kTwo>(k, op);
  return false;
}
bool ResolveDot(const AluKey& k, AluOp* op) {
  bool a = IsSigned(k.type), b = IsSigned(k.source);
  Type result = a || b ? Type::kS32 : Type::kU32;
  LaneFn fn = nullptr;
  if (k.code == AluCode::kDp4a) {
    fn = a ? (b ? &Ternary<Dp4a<s8, s8>> : &Ternary<Dp4a<s8, u8>>)
           : (b ? &Ternary<Dp4a<u8, s8>> : &Ternary<Dp4a<u8, u8>>);
  } else if (k.part == Part::kHi) {
    fn = a ? (b ? &Ternary<Dp2a<s16, s8, true>> : &Ternary<Dp2a<s16, u8, true>>)
           : (b ? &Ternary<Dp2a<u16, s8, true>> : &Ternary<Dp2a<u16, u8, true>>);
  } else {
    fn = a ? (b ? &Ternary<Dp2a<s16, s8, false>> : &Ternary<Dp2a<s16, u8, false>>)
           : (b ? &Ternary<Dp2a<u16, s8, false>> : &Ternary<Dp2a<u16, u8, false>>);
  }
  return Fill(op, fn, 3, result, k.type, k.source, result);
}
bool ResolveBfind(const AluKey& k, AluOp* op) {
  LaneFn fn = nullptr;
  switch (k.type) {
    case Type::kU32:
      fn = k.shiftamt ? &Unary<Bfind<u32, true>> : &Unary<Bfind<u32, false>>;
      break;
    case Type::kS32:
      fn = k.shiftamt ? &Unary<Bfind<s32, true>> : &Unary<Bfind<s32, false>>;
      break;
    case Type::kU64:
      fn = k.shiftamt ? &Unary<Bfind<u64, true>> : &Unary<Bfind<u64, false>>;
      break;
    case Type::kS64:
      fn = k.shiftamt ? &Unary<Bfind<s64, true>> : &Unary<Bfind<s64, false>>;
      break;
    default:
      return false;
  }
  return Fill(op, fn, 1, Type::kU32, k.type);
}
bool ResolveBfe(const AluKey& k, AluOp* op) {
  LaneFn fn = nullptr;
  switch (k.type) {
    case Type::kU32:
      fn = &Ternary<Bfe<u32>>;
      break;
    case Type::kS32:
      fn = &Ternary<Bfe<s32>>;
      break;
    case Type::kU64:
      fn = &Ternary<Bfe<u64>>;
      break;
    case Type::kS64:
      fn = &Ternary<Bfe<s64>>;
      break;
    default:
      return false;
  }
  return Fill(op, fn, 3, k.type, k.type, Type::kU32, Type::kU32);
}
bool ResolveBfi(const AluKey& k, AluOp* op) {
  if (k.type != Type::kB32 && k.type != Type::kB64) return false;
  Fill(op, nullptr, 4, k.type, k.type, k.type, Type::kU32);
  op->source_type[3] = Type::kU32;
  op->shape = AluOp::Shape::kLane4;
  op->lane4 = k.type == Type::kB32 ? &Bfi<u32> : &Bfi<u64>;
  return true;
}
bool ResolvePermute(const AluKey& k, AluOp* op) {
  LaneFn fn = nullptr;
  switch (k.permute) {
    case Permute::kDefault:
      return false;
    case Permute::kF4e:
      fn = &Ternary<PrmtMode<Permute::kF4e>>;
      break;
    case Permute::kB4e:
      fn = &Ternary<PrmtMode<Permute::kB4e>>;
      break;
    case Permute::kRc8:
      fn = &Ternary<PrmtMode<Permute::kRc8>>;
      break;
    case Permute::kEcl:
      fn = &Ternary<PrmtMode<Permute::kEcl>>;
      break;
    case Permute::kEcr:
      fn = &Ternary<PrmtMode<Permute::kEcr>>;
      break;
    case Permute::kRc16:
      fn = &Ternary<PrmtMode<Permute::kRc16>>;
      break;
  }
  return Fill(op, fn, 3, Type::kB32, Type::kB32, Type::kB32, Type::kB32);
}
template <template <typename> class R>
LaneFn SlctByWidth(const AluKey& k) {
  return Width(k.type) == 2 ? &Ternary<R<u16>> : Width(k.type) == 4 ? &Ternary<R<u32>> : &Ternary<R<u64>>;
}
bool ResolveSlct(const AluKey& k, AluOp* op) {
  bool by_float = k.source == Type::kF32;
  if (!by_float && (k.source != Type::kS32 || k.ftz)) return false;
  // Flushing the selector keeps its sign, and a zero of either sign selects a.
  LaneFn fn = !by_float ? SlctByWidth<Slct>(k)
              : k.ftz   ? SlctByWidth<SlctFlush>(k)
                        : SlctByWidth<SlctFloat>(k);
  return Fill(op, fn, 3, k.type, k.type, k.type, k.source);
}
bool ResolveFunnel(const AluKey& k, AluOp* op) {
  LaneFn fn = k.left ? (k.wrap ? &Ternary<Shf<true, true>> : &Ternary<Shf<true, false>>)
                     : (k.wrap ? &Ternary<Shf<false, true>> : &Ternary<Shf<false, false>>);
  return k.type == Type::kB32 && k.wrap != k.clamp && Fill(op, fn, 3, k.type, k.type, k.type, Type::kU32);
}
bool ResolveMaskOfBits(const AluKey& k, AluOp* op) {
  LaneFn fn = k.clamp ? &Binary<Bmsk<true>> : &Binary<Bmsk<false>>;
  return k.type == Type::kB32 && k.wrap != k.clamp && Fill(op, fn, 2, k.type, Type::kU32, Type::kU32);
}
bool ResolveSzext(const AluKey& k, AluOp* op) {
  if ((k.type != Type::kS32 && k.type != Type::kU32) || k.wrap == k.clamp) return false;
  LaneFn fn = k.type == Type::kS32 ? (k.clamp ? &Binary<Szext<s32, true>> : &Binary<Szext<s32, false>>)
                                   : (k.clamp ? &Binary<Szext<u32, true>> : &Binary<Szext<u32, false>>);
  return Fill(op, fn, 2, k.type, k.type, Type::kU32);
}
bool ResolveCount(const AluKey& k, AluOp* op) {
  bool wide = k.type == Type::kB64;
  if (!wide && k.type != Type::kB32) return false;
  switch (k.code) {
    case AluCode::kBrev:
      return Fill(op, wide ? &Unary<Brev<u64>> : &Unary<Brev<u32>>, 1, k.type, k.type);
    case AluCode::kClz:
      return Fill(op, wide ? &Unary<Clz<u64>> : &Unary<Clz<u32>>, 1, Type::kU32, k.type);
    default:
      return Fill(op, wide ? &Unary<Popc<u64>> : &Unary<Popc<u32>>, 1, Type::kU32, k.type);
  }
}

}  // namespace

bool ResolveBits(const AluKey& k, AluOp* op) {
  switch (k.code) {
    case AluCode::kAdd:
      return k.carry != Flow::kNone && ResolveCarry<AluCode::kAdd>(k, op);
    case AluCode::kSub:
      return k.carry != Flow::kNone && ResolveCarry<AluCode::kSub>(k, op);
    case AluCode::kMad:
      return k.carry != Flow::kNone && (k.part == Part::kLo || k.part == Part::kHi) &&
             ResolveCarry<AluCode::kMad>(k, op);
    case AluCode::kMul24:
    case AluCode::kMad24:
      return ResolveProduct24(k, op);
    case AluCode::kDp2a:
    case AluCode::kDp4a:
      return ResolveDot(k, op);
    case AluCode::kShf:
      return ResolveFunnel(k, op);
    case AluCode::kLop3:
      return k.type == Type::kB32 && Fill(op, Lop3Table<256>::Get(k.lut), 3, k.type, k.type, k.type, k.type);
    case AluCode::kBrev:
    case AluCode::kClz:
    case AluCode::kPopc:
      return ResolveCount(k, op);
    case AluCode::kBfind:
      return ResolveBfind(k, op);
    case AluCode::kBfe:
      return ResolveBfe(k, op);
    case AluCode::kBfi:
      return ResolveBfi(k, op);
    case AluCode::kFns:
      return k.type == Type::kB32 && Fill(op, &Ternary<Fns>, 3, k.type, k.type, Type::kU32, Type::kS32);
    case AluCode::kBmsk:
      return ResolveMaskOfBits(k, op);
    case AluCode::kSzext:
      return ResolveSzext(k, op);
    case AluCode::kPrmt:
      return k.type == Type::kB32 && ResolvePermute(k, op);
    case AluCode::kSlct:
      return ResolveSlct(k, op);
    default:
      return false;
  }
}

}  // namespace softgpu::exec::SOFTGPU_ISA
