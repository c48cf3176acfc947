// Arithmetic wrappers, moves, predicates and other instructions that only touch registers.
#include <algorithm>
#include <cstring>

#include "softgpu/ptx/exec/memory.h"
#include "softgpu/ptx/exec/ops.h"

namespace softgpu::exec {
namespace {

void SetPredicate(Warp& w, uint32_t offset, uint32_t value) {
  if (offset == kNoPredicate) return;
  uint32_t& p = w.Pred(offset);
  p = (p & ~w.mask) | (value & w.mask);
}

template <typename T>
const Inst* OpCopy(Warp& w, const Inst* i) {
  auto* d = reinterpret_cast<T*>(w.Row(i->d));
  const auto* a = reinterpret_cast<const T*>(w.Row(i->a));
  if (w.mask == kAllLanes) {
    std::memcpy(d, a, sizeof(T) * kWarpSize);
  } else {
    ForEachLane(w.mask, [&](unsigned l) { d[l] = a[l]; });
  }
  return i + 1;
}

template <typename From, typename To>
const Inst* OpResize(Warp& w, const Inst* i) {
  auto* d = reinterpret_cast<To*>(w.Row(i->d));
  const auto* a = reinterpret_cast<const From*>(w.Row(i->a));
  if (w.mask == kAllLanes) {
    // The rows may be the same memory: all values are read before any is written.
    To values[kWarpSize];
    for (unsigned l = 0; l < kWarpSize; ++l) values[l] = static_cast<To>(a[l]);
    std::memcpy(d, values, sizeof values);
  } else {
    From values[kWarpSize];
    std::memcpy(values, a, sizeof values);
    ForEachLane(w.mask, [&](unsigned l) { d[l] = static_cast<To>(values[l]); });
  }
  return i + 1;
}

template <typename From>
Handler ResizeFrom(unsigned to) {
  switch (to) {
    case 2:
      return &OpResize<From, uint16_t>;
    case 4:
      return &OpResize<From, uint32_t>;
    case 8:
      return &OpResize<From, uint64_t>;
  }
  return nullptr;
}

// One value for all active lanes of row d, of 4 or 8 bytes a lane.
void Broadcast(Warp& w, Ref d, unsigned lane_bytes, uint64_t value) {
  std::byte* row = w.Row(d);
  ForEachLane(w.mask, [&](unsigned l) {
    if (lane_bytes == 8) {
      reinterpret_cast<uint64_t*>(row)[l] = value;
    } else {
      reinterpret_cast<uint32_t*>(row)[l] = static_cast<uint32_t>(value);
    }
  });
}

uint32_t Combined(const Warp& w, const Inst* i, uint32_t value, uint32_t* complement) {
  *complement = ~value;
  if (i->x == kNoCombine) return value;
  uint32_t other = w.PredOr(static_cast<uint32_t>(i->imm), i->y & kNegateCombined);
  switch (i->x) {
    case kAnd:
      *complement = ~value & other;
      return value & other;
    case kOr:
      *complement = ~value | other;
      return value | other;
    default:
      *complement = ~value ^ other;
      return value ^ other;
  }
}

}  // namespace

const Inst* OpLane0(Warp& w, const Inst* i) {
  i->lane(w.Row(i->d), nullptr, nullptr, nullptr, w.mask);
  return i + 1;
}

const Inst* OpLane1(Warp& w, const Inst* i) {
  i->lane(w.Row(i->d), w.Row(i->a), nullptr, nullptr, w.mask);
  return i + 1;
}

const Inst* OpLane2(Warp& w, const Inst* i) {
  i->lane(w.Row(i->d), w.Row(i->a), w.Row(i->b), nullptr, w.mask);
  return i + 1;
}

const Inst* OpLane3(Warp& w, const Inst* i) {
  i->lane(w.Row(i->d), w.Row(i->a), w.Row(i->b), w.Row(i->c), w.mask);
  return i + 1;
}

const Inst* OpLane4(Warp& w, const Inst* i) {
  i->lane4(w.Row(i->d), w.Row(i->a), w.Row(i->b), w.Row(i->c), w.Row(i->refs[0]), w.mask);
  return i + 1;
}

const Inst* OpCompare(Warp& w, const Inst* i) {
  uint32_t complement, value = Combined(w, i, i->compare(w.Row(i->a), w.Row(i->b)), &complement);
  SetPredicate(w, i->p, value);
  SetPredicate(w, i->q, complement);
  return i + 1;
}

const Inst* OpTest(Warp& w, const Inst* i) {
  SetPredicate(w, i->p, i->test(w.Row(i->a)));
  return i + 1;
}

const Inst* OpSelect(Warp& w, const Inst* i) {
  i->select(w.Row(i->d), w.Row(i->a), w.Row(i->b), w.PredOr(i->p, i->y), w.mask);
  return i + 1;
}

const Inst* OpCarry(Warp& w, const Inst* i) {
  i->carry(w.Row(i->d), w.Row(i->a), w.Row(i->b), w.Row(i->c), w.mask, &w.Pred(i->p));
  return i + 1;
}

Handler CopyHandler(unsigned lane_bytes) {
  switch (lane_bytes) {
    case 2:
      return &OpCopy<uint16_t>;
    case 4:
      return &OpCopy<uint32_t>;
    case 8:
      return &OpCopy<uint64_t>;
    default:
      return &OpCopy<unsigned __int128>;
  }
}

Handler ResizeHandler(unsigned from, unsigned to, bool sign) {
  switch (from) {
    case 1:
      return sign ? nullptr : nullptr;
    case 2:
      return sign ? ResizeFrom<int16_t>(to) : ResizeFrom<uint16_t>(to);
    case 4:
      return sign ? ResizeFrom<int32_t>(to) : ResizeFrom<uint32_t>(to);
    case 8:
      return ResizeFrom<uint64_t>(to);
  }
  return nullptr;
}

const Inst* OpPack(Warp& w, const Inst* i) {
  alignas(16) uint8_t values[kWarpSize * 16];
  for (unsigned e = 0; e < i->count; ++e) {
    const auto* part = reinterpret_cast<const uint8_t*>(w.Row(i->refs[e]));
    unsigned lane_bytes = std::max<unsigned>(i->x, 2);
    ForEachLane(w.mask,
                [&](unsigned l) { std::memcpy(values + l * i->y + e * i->x, part + l * lane_bytes, i->x); });
  }
  auto* whole = reinterpret_cast<uint8_t*>(w.Row(i->d));
  ForEachLane(w.mask, [&](unsigned l) { std::memcpy(whole + l * i->y, values + l * i->y, i->y); });
  return i + 1;
}

const Inst* OpUnpack(Warp& w, const Inst* i) {
  alignas(16) uint8_t values[kWarpSize * 16];
  std::memcpy(values, w.Row(i->a), size_t{kWarpSize} * i->y);
  for (unsigned e = 0; e < i->count; ++e) {
    if (i->refs[e] == kNoPredicate) continue;
    auto* part = reinterpret_cast<uint8_t*>(w.Row(i->refs[e]));
    unsigned lane_bytes = std::max<unsigned>(i->x, 2);
    ForEachLane(w.mask, [&](unsigned l) {
      uint8_t* at = part + l * lane_bytes;
      if (i->x == 1) at[1] = 0;
      std::memcpy(at, values + l * i->y + e * i->x, i->x);
    });
  }
  return i + 1;
}

const Inst* OpPredicate(Warp& w, const Inst* i) {
  uint32_t a = w.PredOr(i->q, i->y & 1);
  uint32_t b = i->x >= kPredAnd ? w.PredOr(i->d, i->y & 2) : 0;
  switch (i->x) {
    case kPredMov:
      break;
    case kPredNot:
      a = ~a;
      break;
    case kPredAnd:
      a &= b;
      break;
    case kPredOr:
      a |= b;
      break;
    case kPredXor:
      a ^= b;
      break;
  }
  SetPredicate(w, i->p, a);
  return i + 1;
}

const Inst* OpPredicateConst(Warp& w, const Inst* i) {
  SetPredicate(w, i->p, i->imm ? kAllLanes : 0);
  return i + 1;
}

const Inst* OpGuard(Warp& w, const Inst* i) {
  uint32_t all = w.mask, some = all & w.PredOr(i->p, i->y);
  if (some == 0) return i + 2;
  w.mask = some;
  const Inst* next = i[1].fn(w, i + 1);
  w.mask = all;
  return next;
}

const Inst* OpLocalAddress(Warp& w, const Inst* i) {
  Broadcast(w, i->d, i->x, w.frame->local_base + static_cast<uint64_t>(i->imm));
  return i + 1;
}

const Inst* OpDynamicShared(Warp& w, const Inst* i) {
  Broadcast(w, i->d, i->x, w.block->dynamic_base + static_cast<uint64_t>(i->imm));
  return i + 1;
}

const Inst* OpAdd64(Warp& w, const Inst* i) {
  auto* d = reinterpret_cast<uint64_t*>(w.Row(i->d));
  const auto* a = reinterpret_cast<const uint64_t*>(w.Row(i->a));
  ForEachLane(w.mask, [&](unsigned l) { d[l] = a[l] + static_cast<uint64_t>(i->imm); });
  return i + 1;
}

const Inst* OpMask64(Warp& w, const Inst* i) {
  auto* d = reinterpret_cast<uint64_t*>(w.Row(i->d));
  const auto* a = reinterpret_cast<const uint64_t*>(w.Row(i->a));
  ForEachLane(w.mask, [&](unsigned l) { d[l] = a[l] & static_cast<uint64_t>(i->imm); });
  return i + 1;
}

const Inst* OpOr64(Warp& w, const Inst* i) {
  auto* d = reinterpret_cast<uint64_t*>(w.Row(i->d));
  const auto* a = reinterpret_cast<const uint64_t*>(w.Row(i->a));
  ForEachLane(w.mask, [&](unsigned l) { d[l] = a[l] | static_cast<uint64_t>(i->imm); });
  return i + 1;
}

const Inst* OpIsSpace(Warp& w, const Inst* i) {
  const auto* a = reinterpret_cast<const uint64_t*>(w.Row(i->a));
  uint32_t result = 0;
  for (unsigned l = 0; l < kWarpSize; ++l) {
    result |= uint32_t{(a[l] & ~kOffsetMask) == static_cast<uint64_t>(i->imm)} << l;
  }
  SetPredicate(w, i->p, result);
  return i + 1;
}

const Inst* OpClock(Warp& w, const Inst* i) {
  uint64_t value = i->x < 2 ? w.grid->Clock() : NowNanoseconds();
  if (i->x == 1 || i->x == 4) value >>= 32;
  Broadcast(w, i->d, i->y, value);
  return i + 1;
}

const Inst* OpNop(Warp&, const Inst* i) { return i + 1; }

const Inst* OpFence(Warp&, const Inst* i) {
  FullFence();
  return i + 1;
}

const Inst* OpNanosleep(Warp& w, const Inst* i) {
  // The manual bounds a sleep by a millisecond.
  const auto* a = reinterpret_cast<const uint32_t*>(w.Row(i->a));
  uint32_t longest = 0;
  ForEachLane(w.mask, [&](unsigned l) { longest = std::max(longest, std::min(a[l], 1000000u)); });
  w.wake = NowNanoseconds() + longest;
  w.pc = i + 1;
  w.reason = Stop::kSleep;
  return kStopPc;
}

const Inst* OpAlloca(Warp& w, const Inst* i) {
  const std::byte* sizes = w.Row(i->a);
  uint64_t most = 0, align = std::max<uint64_t>(static_cast<uint64_t>(i->imm), 16);
  ForEachLane(w.mask, [&](unsigned l) {
    most = std::max<uint64_t>(most, i->x == 8 ? reinterpret_cast<const uint64_t*>(sizes)[l]
                                              : reinterpret_cast<const uint32_t*>(sizes)[l]);
  });
  uint64_t at = (w.frame->local_top + align - 1) & ~(align - 1);
  unsigned lane = static_cast<unsigned>(std::countr_zero(w.mask));
  if (most > w.local_bytes || at + most > w.local_bytes) {
    return w.Fault(FaultKind::kStackOverflow, i, lane, "alloca beyond the local memory of a thread");
  }
  w.frame->local_top = static_cast<uint32_t>((at + most + 15) & ~uint64_t{15});
  Broadcast(w, i->d, i->y, at);
  return i + 1;
}

}  // namespace softgpu::exec
