// What the integer instructions share: arithmetic without undefined results, and the choice of a rule's type.
// Included only by per-variant files.
#ifndef SOFTGPU_PTX_EXEC_ALU_INTEGER_H_
#define SOFTGPU_PTX_EXEC_ALU_INTEGER_H_

#include "softgpu/ptx/exec/alu_lanes.h"

namespace softgpu::exec::SOFTGPU_ISA {
namespace {

using ptx::Type;

template <typename T>
struct Wider;
template <>
struct Wider<u16> {
  using type = u32;
};
template <>
struct Wider<s16> {
  using type = s32;
};
template <>
struct Wider<u32> {
  using type = u64;
};
template <>
struct Wider<s32> {
  using type = s64;
};
template <>
struct Wider<u64> {
  using type = unsigned __int128;
};
template <>
struct Wider<s64> {
  using type = __int128;
};
template <typename T>
struct Unsigned {
  using type = T;
};
template <>
struct Unsigned<s16> {
  using type = u16;
};
template <>
struct Unsigned<s32> {
  using type = u32;
};
template <>
struct Unsigned<s64> {
  using type = u64;
};
template <typename T>
using U = typename Unsigned<T>::type;
template <typename T>
inline constexpr bool kSigned = T(-1) < T(0);
template <typename T>
inline constexpr unsigned kBits = 8 * sizeof(T);
template <typename T>
inline constexpr T kMost = static_cast<T>(kSigned<T> ? U<T>(-1) >> 1 : U<T>(-1));
template <typename T>
inline constexpr T kLeast = static_cast<T>(kSigned<T> ? U<T>(1) << (kBits<T> - 1) : 0);

// Products are computed in a type wide enough that no promotion to signed int can overflow.
template <typename T>
inline T MulLow(T a, T b) {
  return static_cast<T>(static_cast<u64>(a) * static_cast<u64>(b));
}
template <typename T>
inline T MulHigh(T a, T b) {
  using W = typename Wider<T>::type;
  return static_cast<T>(static_cast<W>(static_cast<W>(a) * b) >> kBits<T>);
}
template <typename T>
inline T AddWrap(T a, T b) {
  return static_cast<T>(static_cast<U<T>>(static_cast<U<T>>(a) + static_cast<U<T>>(b)));
}
template <typename T>
inline T SubWrap(T a, T b) {
  return static_cast<T>(static_cast<U<T>>(static_cast<U<T>>(a) - static_cast<U<T>>(b)));
}
inline s32 Saturated(s64 v) {
  return static_cast<s32>(v > kMost<s32> ? kMost<s32> : v < kLeast<s32> ? kLeast<s32> : v);
}

// --- Choice by type.

inline bool IsSigned(Type t) {
  return t == Type::kS8 || t == Type::kS16 || t == Type::kS32 || t == Type::kS64;
}
inline unsigned Width(Type t) {
  switch (t) {
    case Type::kU8:
    case Type::kS8:
    case Type::kB8:
    case Type::kU16:
    case Type::kS16:
    case Type::kB16:
    case Type::kF16:
    case Type::kBF16:
      return 2;
    case Type::kU64:
    case Type::kS64:
    case Type::kB64:
    case Type::kF64:
      return 8;
    default:
      return 4;
  }
}

enum Arity { kOne = 1, kTwo = 2, kThree = 3 };
template <Arity kArity, typename R>
constexpr LaneFn FnOf() {
  if constexpr (kArity == kOne)
    return &Unary<R>;
  else if constexpr (kArity == kTwo)
    return &Binary<R>;
  else
    return &Ternary<R>;
}
// A rule whose meaning depends on the sign.
template <template <typename> class R, Arity kArity>
bool BySign(const AluKey& k, AluOp* op, Type dest = Type::kNone) {
  if (dest == Type::kNone) dest = k.type;
  LaneFn fn = nullptr;
  switch (k.type) {
    case Type::kU16:
      fn = FnOf<kArity, R<u16>>();
      break;
    case Type::kS16:
      fn = FnOf<kArity, R<s16>>();
      break;
    case Type::kU32:
      fn = FnOf<kArity, R<u32>>();
      break;
    case Type::kS32:
      fn = FnOf<kArity, R<s32>>();
      break;
    case Type::kU64:
      fn = FnOf<kArity, R<u64>>();
      break;
    case Type::kS64:
      fn = FnOf<kArity, R<s64>>();
      break;
    default:
      return false;
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
  LaneFn fn = Width(k.type) == 2   ? FnOf<kArity, R<u16>>()
              : Width(k.type) == 4 ? FnOf<kArity, R<u32>>()
                                   : FnOf<kArity, R<u64>>();
  return Fill(op, fn, kArity, dest, k.type, second, k.type);
}
inline bool IsInteger(Type t) {
  switch (t) {
    case Type::kU16:
    case Type::kU32:
    case Type::kU64:
    case Type::kS16:
    case Type::kS32:
    case Type::kS64:
      return true;
    default:
      return false;
  }
}
inline bool IsBits(Type t) { return t == Type::kB16 || t == Type::kB32 || t == Type::kB64; }

inline Type WideOf(Type t) {
  switch (t) {
    case Type::kU16:
      return Type::kU32;
    case Type::kS16:
      return Type::kS32;
    case Type::kU32:
      return Type::kU64;
    case Type::kS32:
      return Type::kS64;
    default:
      return Type::kNone;
  }
}

template <typename T, Compare kCompare>
struct Order : Same3<T> {
  static bool Do(T a, T b) {
    switch (kCompare) {
      case Compare::kEq:
        return a == b;
      case Compare::kNe:
        return a != b;
      case Compare::kLt:
        return a < b;
      case Compare::kLe:
        return a <= b;
      case Compare::kGt:
        return a > b;
      default:
        return a >= b;
    }
  }
};

}  // namespace
}  // namespace softgpu::exec::SOFTGPU_ISA

#endif  // SOFTGPU_PTX_EXEC_ALU_INTEGER_H_
