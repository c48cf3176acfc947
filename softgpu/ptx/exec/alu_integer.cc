// The integer instructions that programs spend their time in: arithmetic, logic, shifts, comparison,
// selection, moves. Compiled once per instruction set variant.
#include "softgpu/ptx/exec/alu_integer.h"

namespace softgpu::exec::SOFTGPU_ISA {
namespace {

template <typename T>
struct Add : Same3<T> {
  static T Do(T a, T b) { return AddWrap(a, b); }
};
template <typename T>
struct Sub : Same3<T> {
  static T Do(T a, T b) { return SubWrap(a, b); }
};
struct AddSat : Same3<s32> {
  static s32 Do(s32 a, s32 b) { return Saturated(s64{a} + b); }
};
struct SubSat : Same3<s32> {
  static s32 Do(s32 a, s32 b) { return Saturated(s64{a} - b); }
};
template <typename T>
struct MulLo : Same3<T> {
  static T Do(T a, T b) { return MulLow(a, b); }
};
template <typename T>
struct MulHi : Same3<T> {
  static T Do(T a, T b) { return MulHigh(a, b); }
};
template <typename T>
struct MulWide : Same3<T> {
  using D = typename Wider<T>::type;
  static D Do(T a, T b) { return static_cast<D>(static_cast<D>(a) * static_cast<D>(b)); }
};
template <typename T>
struct MadLo : Same3<T> {
  static T Do(T a, T b, T c) { return AddWrap(MulLow(a, b), c); }
};
template <typename T>
struct MadHi : Same3<T> {
  static T Do(T a, T b, T c) { return AddWrap(MulHigh(a, b), c); }
};
struct MadHiSat : Same3<s32> {
  static s32 Do(s32 a, s32 b, s32 c) { return Saturated(s64{MulHigh(a, b)} + c); }
};
template <typename T>
struct MadWide : Same3<T> {
  using D = typename Wider<T>::type;
  using C = D;
  static D Do(T a, T b, C c) { return AddWrap<D>(static_cast<D>(static_cast<D>(a) * static_cast<D>(b)), c); }
};
// Division by zero gives all ones and must not trap; the most negative number over -1 wraps.
template <typename T>
struct Div : Same3<T> {
  static T Do(T a, T b) {
    if (b == 0) return static_cast<T>(-1);
    if (kSigned<T> && b == static_cast<T>(-1)) return SubWrap<T>(0, a);
    return static_cast<T>(a / b);
  }
};
template <typename T>
struct Rem : Same3<T> {
  static T Do(T a, T b) {
    if (b == 0) return a;
    if (kSigned<T> && b == static_cast<T>(-1)) return 0;
    return static_cast<T>(a % b);
  }
};
template <typename T>
struct Min : Same3<T> {
  static T Do(T a, T b) { return a < b ? a : b; }
};
template <typename T>
struct Max : Same3<T> {
  static T Do(T a, T b) { return a > b ? a : b; }
};
template <typename T>
struct MinRelu : Same3<T> {
  static T Do(T a, T b) {
    T m = a < b ? a : b;
    return m > 0 ? m : T(0);
  }
};
template <typename T>
struct MaxRelu : Same3<T> {
  static T Do(T a, T b) {
    T m = a > b ? a : b;
    return m > 0 ? m : T(0);
  }
};
template <typename T>
struct Abs : Same3<T> {
  static T Do(T a) { return a < 0 ? SubWrap<T>(0, a) : a; }
};
template <typename T>
struct Neg : Same3<T> {
  static T Do(T a) { return SubWrap<T>(0, a); }
};
template <typename T>
struct Sad : Same3<T> {
  static T Do(T a, T b, T c) { return AddWrap<T>(c, a < b ? SubWrap(b, a) : SubWrap(a, b)); }
};

template <typename T>
struct And : Same3<T> {
  static T Do(T a, T b) { return a & b; }
};
template <typename T>
struct Or : Same3<T> {
  static T Do(T a, T b) { return a | b; }
};
template <typename T>
struct Xor : Same3<T> {
  static T Do(T a, T b) { return a ^ b; }
};
template <typename T>
struct Not : Same3<T> {
  static T Do(T a) { return static_cast<T>(~a); }
};
template <typename T>
struct Cnot : Same3<T> {
  static T Do(T a) { return a == 0 ? T(1) : T(0); }
};
template <typename T>
struct Mov : Same3<T> {
  static T Do(T a) { return a; }
};
// Shift amounts are unsigned 32-bit values and clamp at the width.
template <typename T>
struct Shl : Same3<T> {
  using B = u32;
  static T Do(T a, u32 b) { return b >= kBits<T> ? T(0) : static_cast<T>(a << b); }
};
template <typename T>
struct Shr : Same3<T> {
  using B = u32;
  static T Do(T a, u32 b) {
    if constexpr (kSigned<T>)
      return static_cast<T>(a >> (b >= kBits<T> ? kBits<T> - 1 : b));
    else
      return b >= kBits<T> ? T(0) : static_cast<T>(a >> b);
  }
};
// Each byte of the result is one of the eight source bytes, or its sign.
struct Prmt : Same3<u32> {
  static u32 Byte(u64 pool, u32 selector) {
    u32 byte = static_cast<u32>(pool >> (8 * (selector & 7))) & 0xff;
    u32 sign = (byte >> 7) * 0xff;
    return selector & 8 ? sign : byte;
  }
  static u32 Do(u32 a, u32 b, u32 c) {
    u64 pool = u64{b} << 32 | a;
    return Byte(pool, c) | Byte(pool, c >> 4) << 8 | Byte(pool, c >> 8) << 16 | Byte(pool, c >> 12) << 24;
  }
};
// Two 16-bit values in one register.
template <typename Half, template <typename> class Rule>
struct Packed : Same3<u32> {
  static u32 Do(u32 a, u32 b) {
    u32 low = static_cast<u16>(Rule<Half>::Do(static_cast<Half>(a), static_cast<Half>(b)));
    u32 high = static_cast<u16>(Rule<Half>::Do(static_cast<Half>(a >> 16), static_cast<Half>(b >> 16)));
    return high << 16 | low;
  }
};

template <typename T>
void Select(void* d, const void* a, const void* b, uint32_t pred, uint32_t mask) {
  const T* x = static_cast<const T*>(a);
  const T* y = static_cast<const T*>(b);
  Store<T>(
      d, mask, [=](unsigned l) __attribute__((always_inline)) { return pred >> l & 1 ? x[l] : y[l]; });
}

template <template <typename> class R, Arity kArity>
bool Widening(const AluKey& k, AluOp* op) {
  Type wide = WideOf(k.type);
  switch (k.type) {
    case Type::kU16:
      return Fill(op, FnOf<kArity, R<u16>>(), kArity, wide, k.type, k.type, wide);
    case Type::kS16:
      return Fill(op, FnOf<kArity, R<s16>>(), kArity, wide, k.type, k.type, wide);
    case Type::kU32:
      return Fill(op, FnOf<kArity, R<u32>>(), kArity, wide, k.type, k.type, wide);
    case Type::kS32:
      return Fill(op, FnOf<kArity, R<s32>>(), kArity, wide, k.type, k.type, wide);
    default:
      return false;
  }
}

template <typename T>
CompareFn OrderOf(Compare compare) {
  switch (compare) {
    case Compare::kEq:
      return &CompareLanes<Order<T, Compare::kEq>>;
    case Compare::kNe:
      return &CompareLanes<Order<T, Compare::kNe>>;
    case Compare::kLt:
      return &CompareLanes<Order<T, Compare::kLt>>;
    case Compare::kLe:
      return &CompareLanes<Order<T, Compare::kLe>>;
    case Compare::kGt:
      return &CompareLanes<Order<T, Compare::kGt>>;
    case Compare::kGe:
      return &CompareLanes<Order<T, Compare::kGe>>;
    default:
      return nullptr;
  }
}
bool ResolveOrder(const AluKey& k, AluOp* op) {
  bool equality = k.compare == Compare::kEq || k.compare == Compare::kNe;
  if (!IsInteger(k.type) && !(IsBits(k.type) && equality)) return false;
  bool is_signed = IsSigned(k.type);
  Fill(op, nullptr, 2, Type::kPred, k.type, k.type);
  op->shape = AluOp::Shape::kCompare;
  switch (Width(k.type)) {
    case 2:
      op->compare = is_signed ? OrderOf<s16>(k.compare) : OrderOf<u16>(k.compare);
      break;
    case 4:
      op->compare = is_signed ? OrderOf<s32>(k.compare) : OrderOf<u32>(k.compare);
      break;
    default:
      op->compare = is_signed ? OrderOf<s64>(k.compare) : OrderOf<u64>(k.compare);
      break;
  }
  return op->compare != nullptr;
}

template <template <typename> class R>
bool ResolvePacked(const AluKey& k, AluOp* op) {
  if (k.type == Type::kU16x2) return Fill(op, &Binary<Packed<u16, R>>, 2, k.type, k.type, k.type);
  if (k.type == Type::kS16x2) return Fill(op, &Binary<Packed<s16, R>>, 2, k.type, k.type, k.type);
  return false;
}

bool ResolveAddSub(const AluKey& k, AluOp* op) {
  bool add = k.code == AluCode::kAdd;
  if (k.sat) {
    if (k.type != Type::kS32) return false;
    return Fill(op, add ? &Binary<AddSat> : &Binary<SubSat>, 2, k.type, k.type, k.type);
  }
  if (add && ResolvePacked<Add>(k, op)) return true;
  return add ? BySign<Add, kTwo>(k, op) : BySign<Sub, kTwo>(k, op);
}
bool ResolveProduct(const AluKey& k, AluOp* op) {
  bool mad = k.code == AluCode::kMad;
  if (k.sat) {
    return mad && k.part == Part::kHi && k.type == Type::kS32 &&
           Fill(op, &Ternary<MadHiSat>, 3, k.type, k.type, k.type, k.type);
  }
  switch (k.part) {
    case Part::kLo:
      return mad ? BySign<MadLo, kThree>(k, op) : BySign<MulLo, kTwo>(k, op);
    case Part::kHi:
      return mad ? BySign<MadHi, kThree>(k, op) : BySign<MulHi, kTwo>(k, op);
    case Part::kWide:
      return mad ? Widening<MadWide, kThree>(k, op) : Widening<MulWide, kTwo>(k, op);
    default:
      return false;
  }
}
bool ResolveMinMax(const AluKey& k, AluOp* op) {
  bool min = k.code == AluCode::kMin;
  if (k.relu) {
    if (k.type == Type::kS32)
      return Fill(op, min ? &Binary<MinRelu<s32>> : &Binary<MaxRelu<s32>>, 2, k.type, k.type, k.type);
    if (k.type != Type::kS16x2) return false;
    return min ? ResolvePacked<MinRelu>(k, op) : ResolvePacked<MaxRelu>(k, op);
  }
  if (k.type == Type::kU16x2 || k.type == Type::kS16x2)
    return min ? ResolvePacked<Min>(k, op) : ResolvePacked<Max>(k, op);
  return min ? BySign<Min, kTwo>(k, op) : BySign<Max, kTwo>(k, op);
}
bool ResolveSelect(const AluKey& k, AluOp* op) {
  Fill(op, nullptr, 2, k.type, k.type, k.type);
  op->shape = AluOp::Shape::kSelect;
  op->select = Width(k.type) == 2 ? &Select<u16> : Width(k.type) == 4 ? &Select<u32> : &Select<u64>;
  return true;
}
bool ResolveShift(const AluKey& k, AluOp* op) {
  if (k.code == AluCode::kShl) return IsBits(k.type) && ByWidth<Shl, kTwo>(k, op, Type::kU32);
  if (IsBits(k.type)) return ByWidth<Shr, kTwo>(k, op, Type::kU32);
  if (!BySign<Shr, kTwo>(k, op)) return false;
  op->source_type[1] = Type::kU32;
  return true;
}
struct Mov128 {
  using D = unsigned __int128;
  using A = unsigned __int128;
  static D Do(A a) { return a; }
};

}  // namespace

bool ResolveInteger(const AluKey& k, AluOp* op) {
  if (k.carry != Flow::kNone || k.source != Type::kNone) return false;
  switch (k.code) {
    case AluCode::kAdd:
    case AluCode::kSub:
      return ResolveAddSub(k, op);
    case AluCode::kMul:
    case AluCode::kMad:
      return ResolveProduct(k, op);
    case AluCode::kDiv:
      return BySign<Div, kTwo>(k, op);
    case AluCode::kRem:
      return BySign<Rem, kTwo>(k, op);
    case AluCode::kMin:
    case AluCode::kMax:
      return ResolveMinMax(k, op);
    case AluCode::kAbs:
      return IsSigned(k.type) && BySign<Abs, kOne>(k, op);
    case AluCode::kNeg:
      return IsSigned(k.type) && BySign<Neg, kOne>(k, op);
    case AluCode::kSad:
      return BySign<Sad, kThree>(k, op);
    case AluCode::kAnd:
      return IsBits(k.type) && ByWidth<And, kTwo>(k, op);
    case AluCode::kOr:
      return IsBits(k.type) && ByWidth<Or, kTwo>(k, op);
    case AluCode::kXor:
      return IsBits(k.type) && ByWidth<Xor, kTwo>(k, op);
    case AluCode::kNot:
      return IsBits(k.type) && ByWidth<Not, kOne>(k, op);
    case AluCode::kCnot:
      return IsBits(k.type) && ByWidth<Cnot, kOne>(k, op);
    case AluCode::kMov:
      return k.type == Type::kB128 ? Fill(op, &Unary<Mov128>, 1, k.type, k.type) : ByWidth<Mov, kOne>(k, op);
    case AluCode::kShl:
    case AluCode::kShr:
      return ResolveShift(k, op);
    case AluCode::kPrmt:
      return k.type == Type::kB32 && k.permute == Permute::kDefault &&
             Fill(op, &Ternary<Prmt>, 3, k.type, k.type, k.type, k.type);
    case AluCode::kSetp:
      return ResolveOrder(k, op);
    case AluCode::kSelp:
      return ResolveSelect(k, op);
    default:
      return false;
  }
}

}  // namespace softgpu::exec::SOFTGPU_ISA
