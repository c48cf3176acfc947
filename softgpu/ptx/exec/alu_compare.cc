// set on all types, setp on halves, testp (PTX ISA: comparison and selection, half precision comparison).
// Compiled for the baseline only.
#include "softgpu/ptx/exec/alu_float.h"
#include "softgpu/ptx/exec/alu_integer.h"

namespace softgpu::exec::SOFTGPU_ISA {
namespace {

template <typename F, bool kFlush>
struct Bits16 {
  u16 bits;
  double Value() const {
    return F::Value(kFlush && (bits & F::kExponentMask) == 0 ? bits & F::kSignBit : bits);
  }
};
template <typename T, bool kFlush>
struct Wide {
  T value;
  T Value() const { return Flushed<kFlush>(value); }
};
template <typename T, Compare kCompare>
struct FloatOrder {
  using A = T;
  static bool Do(T a, T b) { return Holds<kCompare>(a.Value(), b.Value()); }
};

// A row of `yes` where the comparison holds and zeros elsewhere.
template <typename D>
__attribute__((noinline)) void Spread(void* d, uint32_t bits, D yes, uint32_t mask) {
  Store<D>(
      d, mask, [=](unsigned l) __attribute__((always_inline)) { return bits >> l & 1 ? yes : D(0); });
}
template <CompareFn kFn, typename D, D kYes>
void Set(void* d, const void* a, const void* b, const void*, uint32_t mask) {
  Spread<D>(d, kFn(a, b), kYes, mask);
}
// What a true comparison gives depends on the destination: 1.0 for floating point, all ones for integers.
template <CompareFn kFn>
LaneFn SetFor(Type dest) {
  switch (dest) {
    case Type::kU32:
    case Type::kS32:
      return &Set<kFn, u32, 0xffffffff>;
    case Type::kF32:
      return &Set<kFn, u32, 0x3f800000>;
    case Type::kF16:
      return &Set<kFn, u16, 0x3c00>;
    case Type::kBF16:
      return &Set<kFn, u16, 0x3f80>;
    case Type::kU16:
    case Type::kS16:
      return &Set<kFn, u16, 0xffff>;
    default:
      return nullptr;
  }
}
template <typename T>
LaneFn SetOfFloats(Compare compare, Type dest) {
#define FUNCTION(compare, T, dest) SetFor<&CompareLanes<FloatOrder<T, compare>>>(dest)
  SOFTGPU_FOR_COMPARE(compare, FUNCTION, T, dest);
#undef FUNCTION
}
template <typename T>
LaneFn SetOfIntegers(Compare compare, Type dest) {
  switch (compare) {
    case Compare::kEq:
      return SetFor<&CompareLanes<Order<T, Compare::kEq>>>(dest);
    case Compare::kNe:
      return SetFor<&CompareLanes<Order<T, Compare::kNe>>>(dest);
    case Compare::kLt:
      return SetFor<&CompareLanes<Order<T, Compare::kLt>>>(dest);
    case Compare::kLe:
      return SetFor<&CompareLanes<Order<T, Compare::kLe>>>(dest);
    case Compare::kGt:
      return SetFor<&CompareLanes<Order<T, Compare::kGt>>>(dest);
    case Compare::kGe:
      return SetFor<&CompareLanes<Order<T, Compare::kGe>>>(dest);
    default:
      return nullptr;
  }
}
LaneFn SetOfSource(const AluKey& k) {
  switch (k.source) {
    case Type::kB16:
    case Type::kU16:
      return SetOfIntegers<u16>(k.compare, k.type);
    case Type::kS16:
      return SetOfIntegers<s16>(k.compare, k.type);
    case Type::kB32:
    case Type::kU32:
      return SetOfIntegers<u32>(k.compare, k.type);
    case Type::kS32:
      return SetOfIntegers<s32>(k.compare, k.type);
    case Type::kB64:
    case Type::kU64:
      return SetOfIntegers<u64>(k.compare, k.type);
    case Type::kS64:
      return SetOfIntegers<s64>(k.compare, k.type);
    case Type::kF16:
      return k.ftz ? SetOfFloats<Bits16<Half, true>>(k.compare, k.type)
                   : SetOfFloats<Bits16<Half, false>>(k.compare, k.type);
    case Type::kBF16:
      return SetOfFloats<Bits16<Bfloat, false>>(k.compare, k.type);
    case Type::kF32:
      return k.ftz ? SetOfFloats<Wide<float, true>>(k.compare, k.type)
                   : SetOfFloats<Wide<float, false>>(k.compare, k.type);
    case Type::kF64:
      return SetOfFloats<Wide<double, false>>(k.compare, k.type);
    default:
      return nullptr;
  }
}
template <typename T>
CompareFn FloatOrderOf(Compare compare) {
#define FUNCTION(compare, T, unused) &CompareLanes<FloatOrder<T, compare>>
  SOFTGPU_FOR_COMPARE(compare, FUNCTION, T, 0);
#undef FUNCTION
}

// Packed halves: each is compared, and the results are packed.
template <typename H, Compare kCompare, u32 kYes>
struct SetPair : Same3<u32> {
  static u32 Do(u32 a, u32 b) {
    u32 low = Holds<kCompare>(H{static_cast<u16>(a)}.Value(), H{static_cast<u16>(b)}.Value()) ? kYes : 0;
    u32 high = Holds<kCompare>(H{static_cast<u16>(a >> 16)}.Value(), H{static_cast<u16>(b >> 16)}.Value())
                   ? kYes
                   : 0;
    return high << 16 | low;
  }
};
template <typename H, u32 kYes>
LaneFn SetOfPairs(Compare compare) {
#define FUNCTION(compare, H, kYes) &Binary<SetPair<H, compare, kYes>>
  SOFTGPU_FOR_COMPARE(compare, FUNCTION, H, kYes);
#undef FUNCTION
}
template <typename H>
LaneFn PairsFor(const AluKey& k, Type same, Compare compare) {
  if (k.type == Type::kU32 || k.type == Type::kS32) return SetOfPairs<H, 0xffff>(compare);
  if (k.type != same) return nullptr;
  return same == Type::kF16x2 ? SetOfPairs<H, 0x3c00>(compare) : SetOfPairs<H, 0x3f80>(compare);
}
bool ResolveSet(const AluKey& k, AluOp* op) {
  bool can_flush = k.source == Type::kF16 || k.source == Type::kF16x2 || k.source == Type::kF32;
  if (k.ftz && !can_flush) return false;
  LaneFn fn = nullptr;
  if (k.source == Type::kF16x2) {
    fn = k.ftz ? PairsFor<Bits16<Half, true>>(k, k.source, k.compare)
               : PairsFor<Bits16<Half, false>>(k, k.source, k.compare);
  } else if (k.source == Type::kBF16x2) {
    fn = PairsFor<Bits16<Bfloat, false>>(k, k.source, k.compare);
  } else {
    fn = SetOfSource(k);
  }
  return fn != nullptr && Fill(op, fn, 2, k.type, k.source, k.source);
}
bool ResolveSetp(const AluKey& k, AluOp* op) {
  bool half = k.type == Type::kF16;
  if ((!half && k.type != Type::kBF16) || (k.ftz && !half)) return false;
  Fill(op, nullptr, 2, Type::kPred, k.type, k.type);
  op->shape = AluOp::Shape::kCompare;
  op->compare = !half   ? FloatOrderOf<Bits16<Bfloat, false>>(k.compare)
                : k.ftz ? FloatOrderOf<Bits16<Half, true>>(k.compare)
                        : FloatOrderOf<Bits16<Half, false>>(k.compare);
  return op->compare != nullptr;
}

template <typename T>
inline bool TestOf(T v, Test test) {
  constexpr int kMantissa = sizeof(T) == 4 ? 23 : 52;
  auto magnitude = BitsOf(v) & ~SignOf<T>::kMask;
  decltype(magnitude) top = (sizeof(T) == 4 ? 0xff : 0x7ff);
  top <<= kMantissa;
  switch (test) {
    case Test::kFinite:
      return magnitude < top;
    case Test::kInfinite:
      return magnitude == top;
    case Test::kNumber:
      return magnitude <= top;
    case Test::kNotANumber:
      return magnitude > top;
    // The manual counts zeros as normal.
    case Test::kNormal:
      return magnitude < top && (magnitude >> kMantissa != 0 || magnitude == 0);
    default:
      return magnitude != 0 && magnitude >> kMantissa == 0;
  }
}
template <typename T, Test kTest>
uint32_t TestLanes(const void* a) {
  const T* x = static_cast<const T*>(a);
  uint32_t bits = 0;
  for (unsigned l = 0; l < kWarpSize; ++l) bits |= static_cast<uint32_t>(TestOf(x[l], kTest)) << l;
  return bits;
}
template <typename T>
TestFn TestFunction(Test test) {
  switch (test) {
    case Test::kFinite:
      return &TestLanes<T, Test::kFinite>;
    case Test::kInfinite:
      return &TestLanes<T, Test::kInfinite>;
    case Test::kNumber:
      return &TestLanes<T, Test::kNumber>;
    case Test::kNotANumber:
      return &TestLanes<T, Test::kNotANumber>;
    case Test::kNormal:
      return &TestLanes<T, Test::kNormal>;
    default:
      return &TestLanes<T, Test::kSubnormal>;
  }
}

bool ResolveTest(const AluKey& k, AluOp* op) {
  if (k.type != Type::kF32 && k.type != Type::kF64) return false;
  Fill(op, nullptr, 1, Type::kPred, k.type);
  op->shape = AluOp::Shape::kTest;
  op->test = k.type == Type::kF32 ? TestFunction<float>(k.test) : TestFunction<double>(k.test);
  return true;
}

}  // namespace

bool ResolveCompare(const AluKey& k, AluOp* op) {
  switch (k.code) {
    case AluCode::kSet:
      return ResolveSet(k, op);
    case AluCode::kSetp:
      return ResolveSetp(k, op);
    case AluCode::kTestp:
      return ResolveTest(k, op);
    default:
      return false;
  }
}

}  // namespace softgpu::exec::SOFTGPU_ISA
