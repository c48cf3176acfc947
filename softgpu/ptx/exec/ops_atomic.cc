// Atomic operations: host atomics in every space, since other processes may map the same memory.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "softgpu/ptx/exec/atomics.h"
#include "softgpu/ptx/exec/memory.h"

namespace softgpu::exec {
namespace {

using stasis::StatusCode;

template <typename T>
T At(const std::byte* row, unsigned lane) {
  return reinterpret_cast<const T*>(row)[lane];
}

template <typename T>
void Give(std::byte* row, unsigned lane, T value) {
  if (row) reinterpret_cast<T*>(row)[lane] = value;
}

// old -> Next(old, b), by compare and swap.
template <typename T, typename Next>
T Exchange(uint8_t* p, Next next) {
  T* at = reinterpret_cast<T*>(p);
  T old = __atomic_load_n(at, __ATOMIC_SEQ_CST);
  while (!__atomic_compare_exchange_n(at, &old, next(old), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
  return old;
}

template <typename T>
struct Add {
  static T Run(uint8_t* p, T b) { return __atomic_fetch_add(reinterpret_cast<T*>(p), b, __ATOMIC_SEQ_CST); }
};
template <typename T>
struct And {
  static T Run(uint8_t* p, T b) { return __atomic_fetch_and(reinterpret_cast<T*>(p), b, __ATOMIC_SEQ_CST); }
};
template <typename T>
struct Or {
  static T Run(uint8_t* p, T b) { return __atomic_fetch_or(reinterpret_cast<T*>(p), b, __ATOMIC_SEQ_CST); }
};
template <typename T>
struct Xor {
  static T Run(uint8_t* p, T b) { return __atomic_fetch_xor(reinterpret_cast<T*>(p), b, __ATOMIC_SEQ_CST); }
};
template <typename T>
struct Exch {
  static T Run(uint8_t* p, T b) { return __atomic_exchange_n(reinterpret_cast<T*>(p), b, __ATOMIC_SEQ_CST); }
};
template <typename T>
struct Min {
  static T Run(uint8_t* p, T b) {
    return Exchange<T>(p, [b](T old) { return std::min(old, b); });
  }
};
template <typename T>
struct Max {
  static T Run(uint8_t* p, T b) {
    return Exchange<T>(p, [b](T old) { return std::max(old, b); });
  }
};
template <typename T>
struct Inc {
  static T Run(uint8_t* p, T b) {
    return Exchange<T>(p, [b](T old) { return old >= b ? T{0} : static_cast<T>(old + 1); });
  }
};
template <typename T>
struct Dec {
  static T Run(uint8_t* p, T b) {
    return Exchange<T>(p, [b](T old) { return old == 0 || old > b ? b : static_cast<T>(old - 1); });
  }
};

template <typename T, template <typename> class Op>
void Apply(const AtomicOp&, uint8_t* p, const std::byte* b, const std::byte*, std::byte* d, unsigned lane) {
  Give<T>(d, lane, Op<T>::Run(p, At<T>(b, lane)));
}

template <typename T>
void ApplyCas(const AtomicOp&, uint8_t* p, const std::byte* b, const std::byte* c, std::byte* d,
              unsigned lane) {
  T expected = At<T>(b, lane);
  __atomic_compare_exchange_n(reinterpret_cast<T*>(p), &expected, At<T>(c, lane), false, __ATOMIC_SEQ_CST,
                              __ATOMIC_SEQ_CST);
  Give<T>(d, lane, expected);
}

struct Wide {
  uint64_t low, high;
};

// The compiler's own 16-byte atomics call a library that may take a lock; other processes would not see it.
bool CompareAndSwapWide(uint8_t* p, Wide* expected, Wide desired) {
  bool same;
  asm volatile("lock cmpxchg16b %1"
               : "=@ccz"(same), "+m"(*reinterpret_cast<Wide*>(p)), "+a"(expected->low), "+d"(expected->high)
               : "b"(desired.low), "c"(desired.high)
               : "memory");
  return same;
}

void ApplyCasWide(const AtomicOp&, uint8_t* p, const std::byte* b, const std::byte* c, std::byte* d,
                  unsigned lane) {
  Wide expected = At<Wide>(b, lane);
  CompareAndSwapWide(p, &expected, At<Wide>(c, lane));
  Give<Wide>(d, lane, expected);
}

void ApplyExchWide(const AtomicOp&, uint8_t* p, const std::byte* b, const std::byte*, std::byte* d,
                   unsigned lane) {
  Wide old{0, 0}, desired = At<Wide>(b, lane);
  while (!CompareAndSwapWide(p, &old, desired)) {
  }
  Give<Wide>(d, lane, old);
}

// Subnormal inputs and results of f32 additions to global memory are flushed to zero, with their sign.
float Flush(float value) {
  return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
}
double Flush(double value) { return value; }

template <typename Float, typename Bits, bool flush>
void ApplyFloatAdd(const AtomicOp&, uint8_t* p, const std::byte* b, const std::byte*, std::byte* d,
                   unsigned lane) {
  Float addend = At<Float>(b, lane);
  Bits old = Exchange<Bits>(p, [addend](Bits bits) {
    Float value;
    std::memcpy(&value, &bits, sizeof value);
    value = flush ? Flush(Flush(value) + Flush(addend)) : value + addend;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
  });
  Give<Bits>(d, lane, old);
}

// Half precision and pairs of it: the arithmetic is that of the instruction of the same name.
template <typename Bits>
void ApplyCombine(const AtomicOp& op, uint8_t* p, const std::byte* b, const std::byte*, std::byte* d,
                  unsigned lane) {
  alignas(64) Bits value[kWarpSize] = {};
  alignas(64) Bits result[kWarpSize] = {};
  Bits old = Exchange<Bits>(p, [&](Bits bits) {
    value[lane] = bits;
    op.combine(result, value, b, nullptr, uint32_t{1} << lane);
    return result[lane];
  });
  Give<Bits>(d, lane, old);
}

template <typename T>
AtomicOp::Apply FindInteger(std::string_view op) {
  if (op == "add") return &Apply<T, Add>;
  if (op == "min") return &Apply<T, Min>;
  if (op == "max") return &Apply<T, Max>;
  if (op == "inc" && std::is_same_v<T, uint32_t>) return &Apply<T, Inc>;
  if (op == "dec" && std::is_same_v<T, uint32_t>) return &Apply<T, Dec>;
  return nullptr;
}

template <typename T>
AtomicOp::Apply FindBits(std::string_view op) {
  if (op == "and") return &Apply<T, And>;
  if (op == "or") return &Apply<T, Or>;
  if (op == "xor") return &Apply<T, Xor>;
  if (op == "exch") return &Apply<T, Exch>;
  if (op == "cas") return &ApplyCas<T>;
  return nullptr;
}

AtomicOp::Apply FindApply(std::string_view op, ptx::Type type) {
  using ptx::Type;
  AtomicOp::Apply found = nullptr;
  switch (type) {
    case Type::kU32:
      found = FindInteger<uint32_t>(op);
      return found ? found : FindBits<uint32_t>(op);
    case Type::kS32:
      found = FindInteger<int32_t>(op);
      return found ? found : FindBits<uint32_t>(op);
    case Type::kU64:
      found = FindInteger<uint64_t>(op);
      return found ? found : FindBits<uint64_t>(op);
    case Type::kS64:
      found = FindInteger<int64_t>(op);
      return found ? found : FindBits<uint64_t>(op);
    case Type::kB16:
    case Type::kU16:
    case Type::kS16:
      return FindBits<uint16_t>(op);
    case Type::kB32:
      return FindBits<uint32_t>(op);
    case Type::kB64:
      return FindBits<uint64_t>(op);
    case Type::kB128:
      return op == "cas" ? &ApplyCasWide : op == "exch" ? &ApplyExchWide : nullptr;
    case Type::kF32:
      if (op == "add") return &ApplyFloatAdd<float, uint32_t, true>;
      return op == "exch" ? FindBits<uint32_t>(op) : nullptr;
    case Type::kF64:
      if (op == "add") return &ApplyFloatAdd<double, uint64_t, false>;
      return op == "exch" ? FindBits<uint64_t>(op) : nullptr;
    default:
      return nullptr;
  }
}

bool IsHalf(ptx::Type type) {
  using ptx::Type;
  return type == Type::kF16 || type == Type::kBF16 || type == Type::kF16x2 || type == Type::kBF16x2;
}

}  // namespace

stasis::Result<AtomicOp> FindAtomic(std::string_view operation, ptx::Type type) {
  AtomicOp op;
  op.bytes = ptx::SizeOf(type);
  if (IsHalf(type) && (operation == "add" || operation == "min" || operation == "max")) {
    ptx::Instruction arithmetic;
    arithmetic.opcode = std::string(operation);
    arithmetic.words.emplace_back(ptx::NameOf(type));
    if (operation == "add") arithmetic.words.insert(arithmetic.words.begin(), "rn");
    arithmetic.types.push_back(type);
    arithmetic.operands.resize(3);
    ASSIGN_OR_RETURN(AluOp alu, FindAlu(arithmetic));
    op.combine = alu.lane;
    op.apply = op.apply_shared = op.bytes == 2 ? &ApplyCombine<uint16_t> : &ApplyCombine<uint32_t>;
    return op;
  }
  op.apply = FindApply(operation, type);
  if (!op.apply) return stasis::Status(StatusCode::kUnsupported, "no such atomic operation");
  bool float_add = type == ptx::Type::kF32 && operation == "add";
  op.apply_shared = float_add ? &ApplyFloatAdd<float, uint32_t, false> : op.apply;
  return op;
}

const Inst* OpAtomic(Warp& w, const Inst* i) {
  const AtomicOp& op = *i->atomic;
  LaneAddresses at;
  if (!ResolveAddresses(w, i, op.space, op.bytes, true, &at)) return kStopPc;
  const std::byte* b = w.Row(i->b);
  const std::byte* c = w.Row(i->c);
  std::byte* d = i->d == kNoPredicate ? nullptr : w.Row(i->d);
  // The old value may land in the row that holds an operand; a lane reads its operands before.
  ForEachLane(w.mask, [&](unsigned lane) {
    uint8_t* p = at.Of(lane);
    bool shared = p >= w.shared && p < w.shared + w.shared_bytes;
    (shared ? op.apply_shared : op.apply)(op, p, b, c, d, lane);
  });
  w.budget -= 64;
  return i + 1;
}

}  // namespace softgpu::exec
