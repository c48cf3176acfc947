#include "softgpu/nccl/reduce.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "softgpu/nccl/small_float.h"

namespace softgpu::nccl {

namespace {

struct TypeFacts {
  const char* name;
  size_t bytes;
};
constexpr TypeFacts kTypes[ncclNumTypes] = {
    {"int8", 1},    {"uint8", 1},   {"int32", 4},   {"uint32", 4},   {"int64", 8},      {"uint64", 8},
    {"float16", 2}, {"float32", 4}, {"float64", 8}, {"bfloat16", 2}, {"float8e4m3", 1}, {"float8e5m2", 1}};

// Stored: what memory holds. Value: what is computed with.
template <typename T>
struct Number {
  using Stored = T;
  using Value = T;
  static Value Load(Stored stored) { return stored; }
  static Stored Store(Value value) { return value; }
};
template <typename Small>
struct SmallNumber {
  using Stored = decltype(Small::bits);
  using Value = float;
  static Value Load(Stored stored) { return Small::ToFloat(stored); }
  static Stored Store(Value value) { return Small::FromFloat(value); }
};

template <typename T>
T WrapAdd(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return a + b;
  }
}
template <typename T>
T WrapMultiply(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  } else {
    return a * b;
  }
}

template <typename T>
bool IsNan([[maybe_unused]] T value) {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(value);
  return false;
}

template <Reduction kOp, typename T>
T Combine(T sum, T value) {
  if constexpr (kOp == Reduction::kProd) return WrapMultiply(sum, value);
  if constexpr (kOp == Reduction::kMax) return IsNan(sum) || value > sum ? value : sum;
  if constexpr (kOp == Reduction::kMin) return IsNan(sum) || value < sum ? value : sum;
  return WrapAdd(sum, value);
}

// Elements combined at a time: small enough for the first-level cache, long enough for vector instructions.
constexpr size_t kBlock = 256;

template <typename Type, Reduction kOp>
void ReduceBlock(const Part* parts, int ranks, size_t first, size_t count, typename Type::Stored* out) {
  using Value = typename Type::Value;
  Value sums[kBlock];
  for (int rank = 0; rank < ranks; rank++) {
    const auto* data = static_cast<const typename Type::Stored*>(parts[rank].data) + first;
    typename Type::Stored stored_factor;
    std::memcpy(&stored_factor, &parts[rank].scalar, sizeof stored_factor);
    const Value factor = kOp == Reduction::kPreMulSum ? Type::Load(stored_factor) : Value(1);
    for (size_t i = 0; i < count; i++) {
      Value value = Type::Load(data[i]);
      if constexpr (kOp == Reduction::kPreMulSum) value = WrapMultiply(value, factor);
      sums[i] = rank == 0 ? value : Combine<kOp>(sums[i], value);
    }
  }
  for (size_t i = 0; i < count; i++) {
    if constexpr (kOp == Reduction::kAvg) sums[i] = static_cast<Value>(sums[i] / ranks);
    out[first + i] = Type::Store(sums[i]);
  }
}

template <typename Type, Reduction kOp>
void ReduceAll(const Part* parts, int ranks, void* out, size_t count) {
  for (size_t first = 0; first < count; first += kBlock) {
    ReduceBlock<Type, kOp>(parts, ranks, first, std::min(kBlock, count - first),
                           static_cast<typename Type::Stored*>(out));
  }
}

template <typename Type>
void ReduceType(Reduction op, const Part* parts, int ranks, void* out, size_t count) {
  switch (op) {
    case Reduction::kSum:
      return ReduceAll<Type, Reduction::kSum>(parts, ranks, out, count);
    case Reduction::kProd:
      return ReduceAll<Type, Reduction::kProd>(parts, ranks, out, count);
    case Reduction::kMax:
      return ReduceAll<Type, Reduction::kMax>(parts, ranks, out, count);
    case Reduction::kMin:
      return ReduceAll<Type, Reduction::kMin>(parts, ranks, out, count);
    case Reduction::kAvg:
      return ReduceAll<Type, Reduction::kAvg>(parts, ranks, out, count);
    case Reduction::kPreMulSum:
      return ReduceAll<Type, Reduction::kPreMulSum>(parts, ranks, out, count);
    case Reduction::kNone:
      break;
  }
}

}  // namespace

size_t ElementBytes(int type) { return type < 0 || type >= ncclNumTypes ? 0 : kTypes[type].bytes; }

const char* TypeName(int type) { return type < 0 || type >= ncclNumTypes ? "?" : kTypes[type].name; }

void Reduce(ncclDataType_t type, Reduction op, const Part* parts, int ranks, void* out, size_t count) {
  switch (type) {
    case ncclInt8:
      return ReduceType<Number<int8_t>>(op, parts, ranks, out, count);
    case ncclUint8:
      return ReduceType<Number<uint8_t>>(op, parts, ranks, out, count);
    case ncclInt32:
      return ReduceType<Number<int32_t>>(op, parts, ranks, out, count);
    case ncclUint32:
      return ReduceType<Number<uint32_t>>(op, parts, ranks, out, count);
    case ncclInt64:
      return ReduceType<Number<int64_t>>(op, parts, ranks, out, count);
    case ncclUint64:
      return ReduceType<Number<uint64_t>>(op, parts, ranks, out, count);
    case ncclFloat16:
      return ReduceType<SmallNumber<Half>>(op, parts, ranks, out, count);
    case ncclFloat32:
      return ReduceType<Number<float>>(op, parts, ranks, out, count);
    case ncclFloat64:
      return ReduceType<Number<double>>(op, parts, ranks, out, count);
    case ncclBfloat16:
      return ReduceType<SmallNumber<Bfloat16>>(op, parts, ranks, out, count);
    case ncclFloat8e4m3:
      return ReduceType<SmallNumber<Float8E4M3>>(op, parts, ranks, out, count);
    case ncclFloat8e5m2:
      return ReduceType<SmallNumber<Float8E5M2>>(op, parts, ranks, out, count);
    case ncclNumTypes:
      break;
  }
}

}  // namespace softgpu::nccl
