// Integer, logic, selection and permutation instructions (PTX ISA: integer arithmetic, extended precision, comparison and
// selection, logic and shift). Compiled once per instruction set variant.
#include "softgpu/ptx/exec/alu_lanes.h"

namespace softgpu::exec::SOFTGPU_ISA {
namespace {

using ptx::Type;

template <typename T> struct Wider;
template <> struct Wider<u16> { using type = u32; };
template <> struct Wider<s16> { using type = s32; };
template <> struct Wider<u32> { using type = u64; };
template <> struct Wider<s32> { using type = s64; };
template <> struct Wider<u64> { using type = unsigned __int128; };
template <> struct Wider<s64> { using type = __int128; };
template <typename T> struct Unsigned { using type = T; };
template <> struct Unsigned<s16> { using type = u16; };
template <> struct Unsigned<s32> { using type = u32; };
template <> struct Unsigned<s64> { using type = u64; };
template <typename T> using U = typename Unsigned<T>::type;
template <typename T> inline constexpr bool kSigned = T(-1) < T(0);
template <typename T> inline constexpr unsigned kBits = 8 * sizeof(T);
template <typename T> inline constexpr T kMost = static_cast<T>(kSigned<T> ? U<T>(-1) >> 1 : U<T>(-1));
template <typename T> inline constexpr T kLeast = static_cast<T>(kSigned<T> ? U<T>(1) << (kBits<T> - 1) : 0);

template <typename T>
struct Same3 {
  using D = T;
  using A = T;
  using B = T;
  using C = T;
};

// Products are computed in a type wide enough that no promotion to signed int can overflow.
template <typename T> inline T MulLow(T a, T b) { return static_cast<T>(static_cast<u64>(a) * static_cast<u64>(b)); }
template <typename T> inline T MulHigh(T a, T b) {
  using W = typename Wider<T>::type;
  return static_cast<T>(static_cast<W>(static_cast<W>(a) * b) >> kBits<T>);
}
template <typename T> inline T AddWrap(T a, T b) { return static_cast<T>(static_cast<U<T>>(static_cast<U<T>>(a) + static_cast<U<T>>(b))); }
template <typename T> inline T SubWrap(T a, T b) { return static_cast<T>(static_cast<U<T>>(static_cast<U<T>>(a) - static_cast<U<T>>(b))); }
inline s32 Saturated(s64 v) { return static_cast<s32>(v > kMost<s32> ? kMost<s32> : v < kLeast<s32> ? kLeast<s32> : v); }

template <typename T> struct Add : Same3<T> { static T Do(T a, T b) { return AddWrap(a, b); } };
template <typename T> struct Sub : Same3<T> { static T Do(T a, T b) { return SubWrap(a, b); } };
struct AddSat : Same3<s32> { static s32 Do(s32 a, s32 b) { return Saturated(s64{a} + b); } };
struct SubSat : Same3<s32> { static s32 Do(s32 a, s32 b) { return Saturated(s64{a} - b); } };
template <typename T> struct MulLo : Same3<T> { static T Do(T a, T b) { return MulLow(a, b); } };
template <typename T> struct MulHi : Same3<T> { static T Do(T a, T b) { return MulHigh(a, b); } };
template <typename T> struct MulWide : Same3<T> {
  using D = typename Wider<T>::type;
  static D Do(T a, T b) { return static_cast<D>(static_cast<D>(a) * static_cast<D>(b)); }
};
template <typename T> struct MadLo : Same3<T> { static T Do(T a, T b, T c) { return AddWrap(MulLow(a, b), c); } };
template <typename T> struct MadHi : Same3<T> { static T Do(T a, T b, T c) { return AddWrap(MulHigh(a, b), c); } };
struct MadHiSat : Same3<s32> { static s32 Do(s32 a, s32 b, s32 c) { return Saturated(s64{MulHigh(a, b)} + c); } };
template <typename T> struct MadWide : Same3<T> {
  using D = typename Wider<T>::type;
  using C = D;
  static D Do(T a, T b, C c) { return AddWrap<D>(static_cast<D>(static_cast<D>(a) * static_cast<D>(b)), c); }
};
// 24-bit products: the low 24 bits of the sources, sign-extended for .s32.
template <typename T> inline s64 Low24(T a) {
  if constexpr (kSigned<T>) return static_cast<s32>(static_cast<u32>(a) << 8) >> 8;
  else return a & 0xffffff;
}
template <typename T> struct Mul24Lo : Same3<T> { static T Do(T a, T b) { return static_cast<T>(Low24(a) * Low24(b)); } };
template <typename T> struct Mul24Hi : Same3<T> { static T Do(T a, T b) { return static_cast<T>(Low24(a) * Low24(b) >> 16); } };
template <typename T> struct Mad24Lo : Same3<T> { static T Do(T a, T b, T c) { return AddWrap(Mul24Lo<T>::Do(a, b), c); } };
template <typename T> struct Mad24Hi : Same3<T> { static T Do(T a, T b, T c) { return AddWrap(Mul24Hi<T>::Do(a, b), c); } };
struct Mad24HiSat : Same3<s32> { static s32 Do(s32 a, s32 b, s32 c) { return Saturated(s64{Mul24Hi<s32>::Do(a, b)} + c); } };

// Division by zero gives all ones and must not trap; the most negative number over -1 wraps.
template <typename T> struct Div : Same3<T> {
  static T Do(T a, T b) {
    if (b == 0) return static_cast<T>(-1);
    if (kSigned<T> && b == static_cast<T>(-1)) return SubWrap<T>(0, a);
    return static_cast<T>(a / b);
  }
};
template <typename T> struct Rem : Same3<T> {
  static T Do(T a, T b) {
    if (b == 0) return a;
    if (kSigned<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
  }
};
template <typename T> struct Min : Same3<T> { static T Do(T a, T b) { return a < b ? a : b; } };
template <typename T> struct Max : Same3<T> { static T Do(T a, T b) { return a > b ? a : b; } };
template <typename T> struct MinRelu : Same3<T> { static T Do(T a, T b) { T m = a < b ? a : b; return m > 0 ? m : T(0); } };
template <typename T> struct MaxRelu : Same3<T> { static T Do(T a, T b) { T m = a > b ? a : b; return m > 0 ? m : T(0); } };
template <typename T> struct Abs : Same3<T> { static T Do(T a) { return a < 0 ? SubWrap<T>(0, a) : a; } };
template <typename T> struct Neg : Same3<T> { static T Do(T a) { return SubWrap<T>(0, a); } };
template <typename T> struct Sad : Same3<T> {
  static T Do(T a, T b, T c) { return AddWrap<T>(c, a < b ? SubWrap(b, a) : SubWrap(a, b)); }
};

template <typename T> struct And : Same3<T> { static T Do(T a, T b) { return a & b; } };
template <typename T> struct Or : Same3<T> { static T Do(T a, T b) { return a | b; } };
template <typename T> struct Xor : Same3<T> { static T Do(T a, T b) { return a ^ b; } };
template <typename T> struct Not : Same3<T> { static T Do(T a) { return static_cast<T>(~a); } };
template <typename T> struct Cnot : Same3<T> { static T Do(T a) { return a == 0 ? T(1) : T(0); } };
template <typename T> struct Mov : Same3<T> { static T Do(T a) { return a; } };
// Shift amounts are unsigned 32-bit values and clamp at the width.
template <typename T> struct Shl : Same3<T> {
  using B = u32;
  static T Do(T a, u32 b) { return b >= kBits<T> ? T(0) : static_cast<T>(a << b); }
};
template <typename T> struct Shr : Same3<T> {
  using B = u32;
  static T Do(T a, u32 b) {
    if constexpr (kSigned<T>) return static_cast<T>(a >> (b >= kBits<T> ? kBits<T> - 1 : b));
    else return b >= kBits<T> ? T(0) : static_cast<T>(a >> b);
  }
};
template <bool kLeft, bool kWrap> struct Shf : Same3<u32> {
  static u32 Do(u32 low, u32 high, u32 count) {
    u32 n = kWrap ? count & 31 : count > 32 ? 32 : count;
    u64 both = u64{high} << 32 | low;
    return static_cast<u32>(kLeft ? both << n >> 32 : both >> n);
  }
};
template <unsigned kLut> struct Lop3 : Same3<u32> {
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
template <unsigned... kLuts>
LaneFn Lop3Function(u8 lut, __SIZE_TYPE__) {
  static constexpr LaneFn kFunctions[] = {&Ternary<Lop3<kLuts>>...};
  return kFunctions[lut];
}
template <unsigned kFirst, unsigned... kRest>
struct Lop3Table : Lop3Table<kFirst - 1, kFirst - 1, kRest...> {};
template <unsigned... kLuts>
struct Lop3Table<0, kLuts...> {
  static LaneFn Get(u8 lut) { return Lop3Function<kLuts...>(lut, 0); }
};

template <typename T> inline unsigned Leading(T a) {
  if constexpr (sizeof(T) == 8) return a == 0 ? 64 : static_cast<unsigned>(__builtin_clzll(a));
  else return a == 0 ? 32 : static_cast<unsigned>(__builtin_clz(a));
}
template <typename T> struct Clz : Same3<T> { using D = u32; static u32 Do(T a) { return Leading(a); } };
template <typename T> struct Popc : Same3<T> {
  using D = u32;
  static u32 Do(T a) { return static_cast<u32>(sizeof(T) == 8 ? __builtin_popcountll(a) : __builtin_popcount(static_cast<u32>(a))); }
};
template <typename T> struct Brev : Same3<T> {
  static T Do(T a) {
    u64 v = sizeof(T) == 8 ? static_cast<u64>(a) : static_cast<u64>(a) << 32;
    v = (v >> 1 & 0x5555555555555555) | (v & 0x5555555555555555) << 1;
    v = (v >> 2 & 0x3333333333333333) | (v & 0x3333333333333333) << 2;
    v = (v >> 4 & 0x0f0f0f0f0f0f0f0f) | (v & 0x0f0f0f0f0f0f0f0f) << 4;
    return static_cast<T>(__builtin_bswap64(v));
  }
};
template <typename T, bool kShiftAmount> struct Bfind : Same3<T> {
  using D = u32;
  static u32 Do(T a) {
    U<T> v = static_cast<U<T>>(kSigned<T> && a < 0 ? ~a : a);
    if (v == 0) return 0xffffffff;
    unsigned leading = Leading(v);
    return kShiftAmount ? leading : kBits<T> - 1 - leading;
  }
};
// Position and length are the low 8 bits of their operands (PTX ISA, bfe).
template <typename T> struct Bfe : Same3<T> {
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
template <typename T> inline T InsertField(T a, T b, u32 c, u32 d) {
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
    int step = offset > 0 ? 1 : -1, wanted = offset > 0 ? offset : -(offset + 1) + 1;
    for (int at = static_cast<int>(base); at >= 0 && at < 32; at += step) {
      if ((a >> at & 1) && --wanted == 0) return static_cast<u32>(at);
    }
    return 0xffffffff;
  }
};
template <bool kClamp> struct Bmsk : Same3<u32> {
  static u32 Do(u32 a, u32 b) {
    u32 position = kClamp ? a : a & 31, length = kClamp ? (b > 32 ? 32 : b) : b & 31;
    if (position > 31) return 0;
    u64 ones = (u64{1} << length) - 1;
    return static_cast<u32>(ones << position);
  }
};
template <typename T, bool kClamp> struct Szext : Same3<T> {
  using B = u32;
  static T Do(T a, u32 b) {
    u32 length = kClamp ? (b > 32 ? 32 : b) : b & 31;
    if (length == 0) return 0;
    if (length >= 32) return a;
    u32 shift = 32 - length;
    if constexpr (kSigned<T>) return static_cast<s32>(static_cast<u32>(a) << shift) >> shift;
    else return a << shift >> shift;
  }
};

template <Permute kMode> struct Prmt : Same3<u32> {
  static u32 Do(u32 a, u32 b, u32 c) {
    u64 pool = u64{b} << 32 | a;
    u32 result = 0;
    for (unsigned i = 0; i < 4; ++i) {
      unsigned n = c & 3, selector = 0;
      if constexpr (kMode == Permute::kDefault) selector = c >> (4 * i) & 15;
      else if constexpr (kMode == Permute::kF4e) selector = n + i;
      else if constexpr (kMode == Permute::kB4e) selector = (n - i) & 7;
      else if constexpr (kMode == Permute::kRc8) selector = n;
      else if constexpr (kMode == Permute::kEcl) selector = i < n ? n : i;
      else if constexpr (kMode == Permute::kEcr) selector = i < n ? i : n;
      else selector = (n & 1) * 2 + (i & 1);
      u32 byte = static_cast<u32>(pool >> (8 * (selector & 7))) & 0xff;
      if (kMode == Permute::kDefault && (selector & 8)) byte = byte & 0x80 ? 0xff : 0;
      result |= byte << (8 * i);
    }
    return result;
  }
};

template <typename A8, typename B8> struct Dp4a : Same3<u32> {
  static u32 Do(u32 a, u32 b, u32 c) {
    for (unsigned i = 0; i < 4; ++i) c += static_cast<u32>(s32{static_cast<A8>(a >> (8 * i))} * s32{static_cast<B8>(b >> (8 * i))});
    return c;
  }
};
template <typename A16, typename B8, bool kHigh> struct Dp2a : Same3<u32> {
  static u32 Do(u32 a, u32 b, u32 c) {
    for (unsigned i = 0; i < 2; ++i) {
      c += static_cast<u32>(s32{static_cast<A16>(a >> (16 * i))} * s32{static_cast<B8>(b >> (8 * i + (kHigh ? 16 : 0)))});
    }
    return c;
  }
};

// Two 16-bit values in one register.
template <typename Half, template <typename> class Rule> struct Packed : Same3<u32> {
  static u32 Do(u32 a, u32 b) {
    u32 low = static_cast<u16>(Rule<Half>::Do(static_cast<Half>(a), static_cast<Half>(b)));
    u32 high = static_cast<u16>(Rule<Half>::Do(static_cast<Half>(a >> 16), static_cast<Half>(b >> 16)));
    return high << 16 | low;
  }
};

template <typename T> struct Slct : Same3<T> {
  using C = s32;
  static T Do(T a, T b, s32 c) { return c >= 0 ? a : b; }
};
template <typename T> struct SlctFloat : Same3<T> {
  using C = float;
  static T Do(T a, T b, float c) { return c >= 0 ? a : b; }
};

template <typename T>
void Select(void* d, const void* a, const void* b, uint32_t pred, uint32_t mask) {
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
  Store<T>(d, mask, [=](unsigned l) __attribute__((always_inline)) { return pred >> l & 1 ? x[l] : y[l]; });
}

template <typename T, Compare kCompare> struct Order : Same3<T> {
  static bool Do(T a, T b) {
    switch (kCompare) {
      case Compare::kEq: return a == b;
      case Compare::kNe: return a != b;
      case Compare::kLt: return a < b;
      case Compare::kLe: return a <= b;
      case Compare::kGt: return a > b;
      default: return a >= b;
    }
  }
};
// set gives all ones for integers and 1.0 for .f32.
template <typename T, Compare kCompare, u32 kTrue> struct SetOrder : Same3<T> {
  using D = u32;
  static u32 Do(T a, T b) { return Order<T, kCompare>::Do(a, b) ? kTrue : 0; }
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

// --- Choice by type.

bool IsSigned(Type t) { return t == Type::kS8 || t == Type::kS16 || t == Type::kS32 || t == Type::kS64; }
unsigned Width(Type t) {
  switch (t) {
    case Type::kU8: case Type::kS8: case Type::kB8: case Type::kU16: case Type::kS16: case Type::kB16: case Type::kF16: case Type::kBF16: return 2;
    case Type::kU64: case Type::kS64: case Type::kB64: case Type::kF64: return 8;
    default: return 4;
  }
}

enum Arity { kOne = 1, kTwo = 2, kThree = 3 };
template <Arity kArity, typename R>
constexpr LaneFn FnOf() {
  if constexpr (kArity == kOne) return &Unary<R>;
  else if constexpr (kArity == kTwo) return &Binary<R>;
  else return &Ternary<R>;
}
// A rule whose meaning depends on the sign.
template <template <typename> class R, Arity kArity>
bool BySign(const AluKey& k, AluOp* op, Type dest = Type::kNone) {
  if (dest == Type::kNone) dest = k.type;
  LaneFn fn = nullptr;
  switch (k.type) {
    case Type::kU16: fn = FnOf<kArity, R<u16>>(); break;
    case Type::kS16: fn = FnOf<kArity, R<s16>>(); break;
    case Type::kU32: fn = FnOf<kArity, R<u32>>(); break;
    case Type::kS32: fn = FnOf<kArity, R<s32>>(); break;
    case Type::kU64: fn = FnOf<kArity, R<u64>>(); break;
    case Type::kS64: fn = FnOf<kArity, R<s64>>(); break;
    default: return false;
  }
  return Fill(op, fn, kArity, dest, k.type, k.type, k.type);
}
template <template <typename> class R, Arity kArity>
bool BySign32(const AluKey& k, AluOp* op) {
  if (k.type == Type::kU32) return Fill(op, FnOf<kArity, R<u32>>(), kArity, k.type, k.type, k.type, k.type);
  if (k.type == Type::kS32) return Fill(op, FnOf<kArity, R<s32>>(), kArity, k.type, k.type, k.type, k.type);
  return false;
}
// A rule on bits.
template <template <typename> class R, Arity kArity>
bool ByWidth(const AluKey& k, AluOp* op, Type second = Type::kNone, Type dest = Type::kNone) {
  if (second == Type::kNone) second = k.type;
  if (dest == Type::kNone) dest = k.type;
  LaneFn fn = Width(k.type) == 2 ? FnOf<kArity, R<u16>>() : Width(k.type) == 4 ? FnOf<kArity, R<u32>>() : FnOf<kArity, R<u64>>();
  return Fill(op, fn, kArity, dest, k.type, second, k.type);
}
bool IsInteger(Type t) {
  switch (t) {
    case Type::kU8: case Type::kU16: case Type::kU32: case Type::kU64: case Type::kS8: case Type::kS16: case Type::kS32: case Type::kS64:
      return true;
    default: return false;
  }
}
bool IsBits(Type t) { return t == Type::kB8 || t == Type::kB16 || t == Type::kB32 || t == Type::kB64; }

Type WideOf(Type t) {
  switch (t) {
    case Type::kU16: return Type::kU32;
    case Type::kS16: return Type::kS32;
    case Type::kU32: return Type::kU64;
    case Type::kS32: return Type::kS64;
    default: return Type::kNone;
  }
}
template <template <typename> class R, Arity kArity>
bool Widening(const AluKey& k, AluOp* op) {
  Type wide = WideOf(k.type);
  switch (k.type) {
    case Type::kU16: return Fill(op, FnOf<kArity, R<u16>>(), kArity, wide, k.type, k.type, wide);
    case Type::kS16: return Fill(op, FnOf<kArity, R<s16>>(), kArity, wide, k.type, k.type, wide);
    case Type::kU32: return Fill(op, FnOf<kArity, R<u32>>(), kArity, wide, k.type, k.type, wide);
    case Type::kS32: return Fill(op, FnOf<kArity, R<s32>>(), kArity, wide, k.type, k.type, wide);
    default: return false;
  }
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

template <Compare kCompare>
bool ResolveOrder(const AluKey& k, AluOp* op) {
  Type t = k.code == AluCode::kSet ? k.source : k.type;
  constexpr bool kSameForBits = kCompare == Compare::kEq || kCompare == Compare::kNe;
  if (IsBits(t) && !kSameForBits) return false;
  if (!IsBits(t) && !IsInteger(t)) return false;
  bool is_signed = IsSigned(t);
  if (k.code == AluCode::kSetp) {
    Fill(op, nullptr, 2, Type::kPred, t, t);
    op->shape = AluOp::Shape::kCompare;
    switch (Width(t)) {
      case 2: op->compare = is_signed ? &CompareLanes<Order<s16, kCompare>> : &CompareLanes<Order<u16, kCompare>>; break;
      case 4: op->compare = is_signed ? &CompareLanes<Order<s32, kCompare>> : &CompareLanes<Order<u32, kCompare>>; break;
      default: op->compare = is_signed ? &CompareLanes<Order<s64, kCompare>> : &CompareLanes<Order<u64, kCompare>>; break;
    }
    return true;
  }
  LaneFn fn = nullptr;
  if (k.type == Type::kF32) {
    constexpr u32 kOne = 0x3f800000;
    fn = Width(t) == 2   ? (is_signed ? &Binary<SetOrder<s16, kCompare, kOne>> : &Binary<SetOrder<u16, kCompare, kOne>>)
         : Width(t) == 4 ? (is_signed ? &Binary<SetOrder<s32, kCompare, kOne>> : &Binary<SetOrder<u32, kCompare, kOne>>)
                         : (is_signed ? &Binary<SetOrder<s64, kCompare, kOne>> : &Binary<SetOrder<u64, kCompare, kOne>>);
  } else {
    constexpr u32 kOnes = 0xffffffff;
    fn = Width(t) == 2   ? (is_signed ? &Binary<SetOrder<s16, kCompare, kOnes>> : &Binary<SetOrder<u16, kCompare, kOnes>>)
         : Width(t) == 4 ? (is_signed ? &Binary<SetOrder<s32, kCompare, kOnes>> : &Binary<SetOrder<u32, kCompare, kOnes>>)
                         : (is_signed ? &Binary<SetOrder<s64, kCompare, kOnes>> : &Binary<SetOrder<u64, kCompare, kOnes>>);
  }
  return Fill(op, fn, 2, k.type, t, t);
}
bool ResolveComparison(const AluKey& k, AluOp* op) {
  switch (k.compare) {
    case Compare::kEq: return ResolveOrder<Compare::kEq>(k, op);
    case Compare::kNe: return ResolveOrder<Compare::kNe>(k, op);
    case Compare::kLt: return ResolveOrder<Compare::kLt>(k, op);
    case Compare::kLe: return ResolveOrder<Compare::kLe>(k, op);
    case Compare::kGt: return ResolveOrder<Compare::kGt>(k, op);
    case Compare::kGe: return ResolveOrder<Compare::kGe>(k, op);
    default: return false;
  }
}

template <template <typename> class R>
bool ResolvePacked(const AluKey& k, AluOp* op) {
  if (k.type == Type::kU16x2) return Fill(op, &Binary<Packed<u16, R>>, 2, k.type, k.type, k.type);
  if (k.type == Type::kS16x2) return Fill(op, &Binary<Packed<s16, R>>, 2, k.type, k.type, k.type);
  return false;
}

bool ResolveAddSub(const AluKey& k, AluOp* op) {
  bool add = k.code == AluCode::kAdd;
  if (k.carry != Flow::kNone) return add ? ResolveCarry<AluCode::kAdd>(k, op) : ResolveCarry<AluCode::kSub>(k, op);
  if (k.sat) {
    if (k.type != Type::kS32) return false;
    return Fill(op, add ? &Binary<AddSat> : &Binary<SubSat>, 2, k.type, k.type, k.type);
  }
  if (ResolvePacked<Add>(k, op)) return add ? true : ResolvePacked<Sub>(k, op);
  return add ? BySign<Add, kTwo>(k, op) : BySign<Sub, kTwo>(k, op);
}
bool ResolveProduct(const AluKey& k, AluOp* op) {
  bool mad = k.code == AluCode::kMad;
  if (k.carry != Flow::kNone) return mad && k.part != Part::kWide && ResolveCarry<AluCode::kMad>(k, op);
  if (k.sat) {
    return mad && k.part == Part::kHi && k.type == Type::kS32 && Fill(op, &Ternary<MadHiSat>, 3, k.type, k.type, k.type, k.type);
  }
  switch (k.part) {
    case Part::kLo: return mad ? BySign<MadLo, kThree>(k, op) : BySign<MulLo, kTwo>(k, op);
    case Part::kHi: return mad ? BySign<MadHi, kThree>(k, op) : BySign<MulHi, kTwo>(k, op);
    case Part::kWide: return mad ? Widening<MadWide, kThree>(k, op) : Widening<MulWide, kTwo>(k, op);
    default: return false;
  }
}
bool ResolveProduct24(const AluKey& k, AluOp* op) {
  bool mad = k.code == AluCode::kMad24;
  if (k.sat) {
    return mad && k.part == Part::kHi && k.type == Type::kS32 && Fill(op, &Ternary<Mad24HiSat>, 3, k.type, k.type, k.type, k.type);
  }
  if (k.part == Part::kLo) return mad ? BySign32<Mad24Lo, kThree>(k, op) : BySign32<Mul24Lo, kTwo>(k, op);
  if (k.part == Part::kHi) return mad ? BySign32<Mad24Hi, kThree>(k, op) : BySign32<Mul24Hi, kTwo>(k, op);
  return false;
}
bool ResolveMinMax(const AluKey& k, AluOp* op) {
  bool min = k.code == AluCode::kMin;
  if (k.relu) {
    if (k.type == Type::kS32) return Fill(op, min ? &Binary<MinRelu<s32>> : &Binary<MaxRelu<s32>>, 2, k.type, k.type, k.type);
    if (k.type != Type::kS16x2) return false;
    return min ? ResolvePacked<MinRelu>(k, op) : ResolvePacked<MaxRelu>(k, op);
  }
  if (k.type == Type::kU16x2 || k.type == Type::kS16x2) return min ? ResolvePacked<Min>(k, op) : ResolvePacked<Max>(k, op);
  return min ? BySign<Min, kTwo>(k, op) : BySign<Max, kTwo>(k, op);
}
bool ResolveDot(const AluKey& k, AluOp* op) {
  bool a = IsSigned(k.type), b = IsSigned(k.source);
  Type result = a || b ? Type::kS32 : Type::kU32;
  LaneFn fn = nullptr;
  if (k.code == AluCode::kDp4a) {
    fn = a ? (b ? &Ternary<Dp4a<s8, s8>> : &Ternary<Dp4a<s8, u8>>) : (b ? &Ternary<Dp4a<u8, s8>> : &Ternary<Dp4a<u8, u8>>);
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
    case Type::kU32: fn = k.shiftamt ? &Unary<Bfind<u32, true>> : &Unary<Bfind<u32, false>>; break;
    case Type::kS32: fn = k.shiftamt ? &Unary<Bfind<s32, true>> : &Unary<Bfind<s32, false>>; break;
    case Type::kU64: fn = k.shiftamt ? &Unary<Bfind<u64, true>> : &Unary<Bfind<u64, false>>; break;
    case Type::kS64: fn = k.shiftamt ? &Unary<Bfind<s64, true>> : &Unary<Bfind<s64, false>>; break;
    default: return false;
  }
  return Fill(op, fn, 1, Type::kU32, k.type);
}
bool ResolveBfe(const AluKey& k, AluOp* op) {
  LaneFn fn = nullptr;
  switch (k.type) {
    case Type::kU32: fn = &Ternary<Bfe<u32>>; break;
    case Type::kS32: fn = &Ternary<Bfe<s32>>; break;
    case Type::kU64: fn = &Ternary<Bfe<u64>>; break;
    case Type::kS64: fn = &Ternary<Bfe<s64>>; break;
    default: return false;
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
    case Permute::kDefault: fn = &Ternary<Prmt<Permute::kDefault>>; break;
    case Permute::kF4e: fn = &Ternary<Prmt<Permute::kF4e>>; break;
    case Permute::kB4e: fn = &Ternary<Prmt<Permute::kB4e>>; break;
    case Permute::kRc8: fn = &Ternary<Prmt<Permute::kRc8>>; break;
    case Permute::kEcl: fn = &Ternary<Prmt<Permute::kEcl>>; break;
    case Permute::kEcr: fn = &Ternary<Prmt<Permute::kEcr>>; break;
    case Permute::kRc16: fn = &Ternary<Prmt<Permute::kRc16>>; break;
  }
  return Fill(op, fn, 3, Type::kB32, Type::kB32, Type::kB32, Type::kB32);
}
bool ResolveSelect(const AluKey& k, AluOp* op) {
  Fill(op, nullptr, 2, k.type, k.type, k.type);
  op->shape = AluOp::Shape::kSelect;
  op->select = Width(k.type) == 2 ? &Select<u16> : Width(k.type) == 4 ? &Select<u32> : &Select<u64>;
  return true;
}
bool ResolveSlct(const AluKey& k, AluOp* op) {
  bool by_float = k.source == Type::kF32;
  if (!by_float && k.source != Type::kS32) return false;
  LaneFn fn = Width(k.type) == 2   ? (by_float ? &Ternary<SlctFloat<u16>> : &Ternary<Slct<u16>>)
              : Width(k.type) == 4 ? (by_float ? &Ternary<SlctFloat<u32>> : &Ternary<Slct<u32>>)
                                   : (by_float ? &Ternary<SlctFloat<u64>> : &Ternary<Slct<u64>>);
  if (by_float && k.ftz) fn = Width(k.type) == 2   ? &InMode<&Ternary<SlctFloat<u16>>, kMxFlush>
                              : Width(k.type) == 4 ? &InMode<&Ternary<SlctFloat<u32>>, kMxFlush>
                                                   : &InMode<&Ternary<SlctFloat<u64>>, kMxFlush>;
  return Fill(op, fn, 3, k.type, k.type, k.type, k.source);
}
bool ResolveShift(const AluKey& k, AluOp* op) {
  if (k.code == AluCode::kShl) return IsBits(k.type) && ByWidth<Shl, kTwo>(k, op, Type::kU32);
  if (IsBits(k.type)) return ByWidth<Shr, kTwo>(k, op, Type::kU32);
  if (!BySign<Shr, kTwo>(k, op)) return false;
  op->source_type[1] = Type::kU32;
  return true;
}
bool ResolveBits(const AluKey& k, AluOp* op) {
  bool wide = k.type == Type::kB64;
  if (!wide && k.type != Type::kB32) return false;
  switch (k.code) {
    case AluCode::kBrev: return Fill(op, wide ? &Unary<Brev<u64>> : &Unary<Brev<u32>>, 1, k.type, k.type);
    case AluCode::kClz: return Fill(op, wide ? &Unary<Clz<u64>> : &Unary<Clz<u32>>, 1, Type::kU32, k.type);
    default: return Fill(op, wide ? &Unary<Popc<u64>> : &Unary<Popc<u32>>, 1, Type::kU32, k.type);
  }
}

}  // namespace

bool ResolveInteger(const AluKey& k, AluOp* op) {
  switch (k.code) {
    case AluCode::kAdd: case AluCode::kSub: return ResolveAddSub(k, op);
    case AluCode::kMul: case AluCode::kMad: return ResolveProduct(k, op);
    case AluCode::kMul24: case AluCode::kMad24: return ResolveProduct24(k, op);
    case AluCode::kDiv: return BySign<Div, kTwo>(k, op);
    case AluCode::kRem: return BySign<Rem, kTwo>(k, op);
    case AluCode::kMin: case AluCode::kMax: return ResolveMinMax(k, op);
    case AluCode::kAbs: return IsSigned(k.type) && BySign<Abs, kOne>(k, op);
    case AluCode::kNeg: return IsSigned(k.type) && BySign<Neg, kOne>(k, op);
    case AluCode::kSad: return BySign<Sad, kThree>(k, op);
    case AluCode::kDp2a: case AluCode::kDp4a: return ResolveDot(k, op);
    case AluCode::kAnd: return IsBits(k.type) && ByWidth<And, kTwo>(k, op);
    case AluCode::kOr: return IsBits(k.type) && ByWidth<Or, kTwo>(k, op);
    case AluCode::kXor: return IsBits(k.type) && ByWidth<Xor, kTwo>(k, op);
    case AluCode::kNot: return IsBits(k.type) && ByWidth<Not, kOne>(k, op);
    case AluCode::kCnot: return IsBits(k.type) && ByWidth<Cnot, kOne>(k, op);
    case AluCode::kMov: return ByWidth<Mov, kOne>(k, op);
    case AluCode::kShl: case AluCode::kShr: return ResolveShift(k, op);
    case AluCode::kShf: {
      LaneFn fn = k.left ? (k.wrap ? &Ternary<Shf<true, true>> : &Ternary<Shf<true, false>>)
                         : (k.wrap ? &Ternary<Shf<false, true>> : &Ternary<Shf<false, false>>);
      return k.type == Type::kB32 && Fill(op, fn, 3, k.type, k.type, k.type, Type::kU32);
    }
    case AluCode::kLop3: return k.type == Type::kB32 && Fill(op, Lop3Table<256>::Get(k.lut), 3, k.type, k.type, k.type, k.type);
    case AluCode::kBrev: case AluCode::kClz: case AluCode::kPopc: return ResolveBits(k, op);
    case AluCode::kBfind: return ResolveBfind(k, op);
    case AluCode::kBfe: return ResolveBfe(k, op);
    case AluCode::kBfi: return ResolveBfi(k, op);
    case AluCode::kFns: return k.type == Type::kB32 && Fill(op, &Ternary<Fns>, 3, k.type, k.type, Type::kU32, Type::kS32);
    case AluCode::kBmsk:
      return k.type == Type::kB32 && Fill(op, k.clamp ? &Binary<Bmsk<true>> : &Binary<Bmsk<false>>, 2, k.type, Type::kU32, Type::kU32);
    case AluCode::kSzext: {
      if (k.type != Type::kS32 && k.type != Type::kU32) return false;
      LaneFn fn = k.type == Type::kS32 ? (k.clamp ? &Binary<Szext<s32, true>> : &Binary<Szext<s32, false>>)
                                       : (k.clamp ? &Binary<Szext<u32, true>> : &Binary<Szext<u32, false>>);
      return Fill(op, fn, 2, k.type, k.type, Type::kU32);
    }
    case AluCode::kPrmt: return ResolvePermute(k, op);
    case AluCode::kSetp: case AluCode::kSet: return ResolveComparison(k, op);
    case AluCode::kSelp: return ResolveSelect(k, op);
    case AluCode::kSlct: return ResolveSlct(k, op);
    default: return false;
  }
}

}  // namespace softgpu::exec::SOFTGPU_ISA
