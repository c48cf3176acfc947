// Loads and stores.
#include <immintrin.h>

#include <atomic>
#include <cstring>
#include <type_traits>

#include "softgpu/ptx/exec/memory.h"
#include "softgpu/ptx/exec/ops.h"

#if defined(__SANITIZE_THREAD__)
#define STASIS_UNDER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define STASIS_UNDER_TSAN 1
#endif
#endif

namespace softgpu::exec {
namespace {

const char* SpaceName(MemSpace space) {
  switch (space) {
    case MemSpace::kGlobal:
      return "global";
    case MemSpace::kShared:
      return "shared";
    case MemSpace::kLocal:
      return "local";
    case MemSpace::kKernelParam:
      return "param";
    case MemSpace::kGeneric:
      return "generic";
  }
  return "?";
}

bool AddressFault(Warp& w, const Inst* i, unsigned lane, FaultKind kind, MemSpace space, uint64_t address,
                  unsigned bytes, bool write) {
  char text[128];
  std::snprintf(text, sizeof text, "%s %s %s of %u bytes at 0x%llx",
                kind == FaultKind::kMisalignedAddress ? "misaligned" : "illegal", SpaceName(space),
                write ? "write" : "read", bytes, static_cast<unsigned long long>(address));
  w.Fault(kind, i, lane, text);
  return false;
}

uint64_t LaneAddress(const Warp& w, const Inst* i, unsigned lane) {
  uint64_t imm = static_cast<uint64_t>(i->imm);
  switch (static_cast<AddressMode>(i->y)) {
    case AddressMode::kNone:
      return imm;
    case AddressMode::k32:
      return static_cast<uint32_t>(reinterpret_cast<const uint32_t*>(w.Row(i->a))[lane] + imm);
    case AddressMode::k64:
      return reinterpret_cast<const uint64_t*>(w.Row(i->a))[lane] + imm;
    case AddressMode::kFrame:
      return w.frame->local_base + imm;
  }
  return 0;
}

// The general way: lane by lane, every case, precise faults.
bool ResolveEach(Warp& w, const Inst* i, MemSpace space, unsigned bytes, bool write, LaneAddresses* at) {
  at->kind = LaneAddresses::Kind::kScattered;
  for (uint32_t m = w.mask; m != 0; m &= m - 1) {
    unsigned lane = static_cast<unsigned>(std::countr_zero(m));
    uint64_t address = LaneAddress(w, i, lane);
    if (address & (bytes - 1)) {
      return AddressFault(w, i, lane, FaultKind::kMisalignedAddress, space, address, bytes, write);
    }
    at->host[lane] = Translate(w, lane, space, address, bytes, write);
    if (!at->host[lane]) {
      return AddressFault(w, i, lane, FaultKind::kIllegalAddress, space, address, bytes, write);
    }
  }
  return true;
}

// What the addresses of all 32 lanes have in common.
template <typename T>
struct Pattern {
  bool same, dense;  // equal, or each `bytes` behind the one before
  bool misaligned;
  T low, high;
};

template <typename T>
inline Pattern<T> FindPattern(const T* row, unsigned bytes) {
  T first = row[0], equal = 0, follows = 0, bits = 0;
  for (unsigned l = 0; l < kWarpSize; ++l) {
    T delta = row[l] - first;
    equal |= delta;
    follows |= delta - static_cast<T>(l * bytes);
    bits |= row[l];
  }
  Pattern<T> p{equal == 0, follows == 0, (bits & (bytes - 1)) != 0, first, first};
  if (p.dense) p.high = first + (kWarpSize - 1) * bytes;
  if (p.same || p.dense) return p;
  for (unsigned l = 0; l < kWarpSize; ++l) {
    p.low = row[l] < p.low ? row[l] : p.low;
    p.high = row[l] > p.high ? row[l] : p.high;
  }
  return p;
}

// Fast way for a full warp whose addresses lie in one accessible stretch. False when the general way has to
// look.
bool TryGlobal(const Warp& w, const Inst* i, unsigned bytes, bool write, LaneAddresses* at) {
  const auto* row = reinterpret_cast<const uint64_t*>(w.Row(i->a));
  uint64_t imm = static_cast<uint64_t>(i->imm);
  Pattern<uint64_t> p = FindPattern(row, bytes);
  if (p.misaligned || (imm & (bytes - 1)) != 0) return false;
  uint64_t span = p.high - p.low;
  if (span > (1u << 20) || !w.access->Allows(p.low + imm, static_cast<unsigned>(span) + bytes, write))
    return false;
  if (p.same || p.dense) {
    at->kind = LaneAddresses::Kind::kStride;
    at->step = p.same ? 0 : bytes;
    at->first = reinterpret_cast<uint8_t*>(row[0] + imm);
    return true;
  }
  at->kind = LaneAddresses::Kind::kScattered;
  for (unsigned l = 0; l < kWarpSize; ++l) at->host[l] = reinterpret_cast<uint8_t*>(row[l] + imm);
  return true;
}

template <typename T>
bool TryShared(const Warp& w, const Inst* i, unsigned bytes, LaneAddresses* at) {
  const auto* row = reinterpret_cast<const T*>(w.Row(i->a));
  Pattern<T> p = FindPattern(row, bytes);
  int64_t imm = i->imm;
  if (p.misaligned || (static_cast<uint64_t>(imm) & (bytes - 1)) != 0 || p.high > INT32_MAX) return false;
  if (p.low > p.high || static_cast<int64_t>(p.low) + imm < 0) return false;
  if (static_cast<int64_t>(p.high) + imm + bytes > w.shared_bytes) return false;
  uint8_t* base = w.shared + imm;
  if (p.same || p.dense) {
    at->kind = LaneAddresses::Kind::kStride;
    at->step = p.same ? 0 : bytes;
    at->first = base + row[0];
    return true;
  }
  at->kind = LaneAddresses::Kind::kScattered;
  for (unsigned l = 0; l < kWarpSize; ++l) at->host[l] = base + row[l];
  return true;
}

// The same address in every lane's local memory, as for variables that are not indexed.
bool TryLocal(const Warp& w, const Inst* i, unsigned bytes, LaneAddresses* at) {
  uint64_t address = LaneAddress(w, i, static_cast<unsigned>(std::countr_zero(w.mask)));
  if (static_cast<AddressMode>(i->y) == AddressMode::k64) {
    const auto* row = reinterpret_cast<const uint64_t*>(w.Row(i->a));
    uint64_t different = 0;
    for (unsigned l = 0; l < kWarpSize; ++l) different |= row[l] ^ row[0];
    if (different != 0) return false;
  } else if (static_cast<AddressMode>(i->y) == AddressMode::k32) {
    return false;
  }
  if ((address & (bytes - 1)) || address > w.local_bytes || address + bytes > w.local_bytes) return false;
  at->kind = LaneAddresses::Kind::kStride;
  at->step = static_cast<uint32_t>(w.local_stride);
  at->first = w.local + address;
  return true;
}

template <MemSpace space>
inline bool Resolve(Warp& w, const Inst* i, unsigned bytes, bool write, LaneAddresses* at) {
  bool full = w.mask == kAllLanes;
  auto mode = static_cast<AddressMode>(i->y);
  if constexpr (space == MemSpace::kGlobal) {
    if (full && mode == AddressMode::k64 && TryGlobal(w, i, bytes, write, at)) return true;
  } else if constexpr (space == MemSpace::kShared) {
    if (full && mode == AddressMode::k32 && TryShared<uint32_t>(w, i, bytes, at)) return true;
    if (full && mode == AddressMode::k64 && TryShared<uint64_t>(w, i, bytes, at)) return true;
  } else if constexpr (space == MemSpace::kLocal) {
    if (full && TryLocal(w, i, bytes, at)) return true;
  } else if constexpr (space == MemSpace::kGeneric) {
    // Tagged addresses are never in the access map, so this is right for them too.
    if (full && mode == AddressMode::k64 && TryGlobal(w, i, bytes, write, at)) return true;
  }
  return ResolveEach(w, i, space, bytes, write, at);
}

template <typename T, bool strong>
inline T Read(const uint8_t* p) {
  if constexpr (strong) {
    return __atomic_load_n(reinterpret_cast<const T*>(p), __ATOMIC_ACQUIRE);
  } else {
    T value;
    std::memcpy(&value, p, sizeof value);
    return value;
  }
}

template <typename T, bool strong>
inline void Write(uint8_t* p, T value) {
  if constexpr (strong) {
    __atomic_store_n(reinterpret_cast<T*>(p), value, __ATOMIC_RELEASE);
  } else {
    std::memcpy(p, &value, sizeof value);
  }
}

template <typename M, typename R, bool strong>
void LoadLanes(void* row, const LaneAddresses& at, unsigned offset, uint32_t mask) {
  R* d = static_cast<R*>(row);
  if (mask != kAllLanes) {
    ForEachLane(mask, [&](unsigned l) { d[l] = static_cast<R>(Read<M, strong>(at.Of(l) + offset)); });
    return;
  }
  if (at.kind == LaneAddresses::Kind::kScattered) {
    for (unsigned l = 0; l < kWarpSize; ++l) d[l] = static_cast<R>(Read<M, strong>(at.host[l] + offset));
    return;
  }
  const uint8_t* p = at.first + offset;
  if (at.step == 0 && !strong) {
    R value = static_cast<R>(Read<M, strong>(p));
    for (unsigned l = 0; l < kWarpSize; ++l) d[l] = value;
  } else if (at.step == sizeof(M) && sizeof(M) == sizeof(R) && !strong) {
    std::memcpy(d, p, sizeof(R) * kWarpSize);
  } else {
    for (unsigned l = 0; l < kWarpSize; ++l, p += at.step) d[l] = static_cast<R>(Read<M, strong>(p));
  }
}

template <typename R, typename M, bool strong>
void StoreLanes(const void* row, const LaneAddresses& at, unsigned offset, uint32_t mask) {
  const R* s = static_cast<const R*>(row);
  if (mask == kAllLanes && at.kind == LaneAddresses::Kind::kStride && at.step != 0) {
    uint8_t* p = at.first + offset;
    if (at.step == sizeof(M) && sizeof(M) == sizeof(R) && !strong) {
      std::memcpy(p, s, sizeof(R) * kWarpSize);
    } else {
      for (unsigned l = 0; l < kWarpSize; ++l, p += at.step) Write<M, strong>(p, static_cast<M>(s[l]));
    }
    return;
  }
  ForEachLane(mask, [&](unsigned l) { Write<M, strong>(at.Of(l) + offset, static_cast<M>(s[l])); });
}

// Four 32-bit elements a lane, all lanes: lanes are read 16 bytes at a time and turned into rows four by
// four.
void LoadQuads(const Warp& w, const Ref* refs, const LaneAddresses& at) {
  float* rows[4];
  for (unsigned e = 0; e < 4; ++e) rows[e] = reinterpret_cast<float*>(w.Row(refs[e]));
  for (unsigned l = 0; l < kWarpSize; l += 4) {
    __m128 a = _mm_loadu_ps(reinterpret_cast<const float*>(at.Of(l)));
    __m128 b = _mm_loadu_ps(reinterpret_cast<const float*>(at.Of(l + 1)));
    __m128 c = _mm_loadu_ps(reinterpret_cast<const float*>(at.Of(l + 2)));
    __m128 d = _mm_loadu_ps(reinterpret_cast<const float*>(at.Of(l + 3)));
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_store_ps(rows[0] + l, a);
    _mm_store_ps(rows[1] + l, b);
    _mm_store_ps(rows[2] + l, c);
    _mm_store_ps(rows[3] + l, d);
  }
}

void StoreQuads(const Warp& w, const Ref* refs, const LaneAddresses& at) {
  const float* rows[4];
  for (unsigned e = 0; e < 4; ++e) rows[e] = reinterpret_cast<const float*>(w.Row(refs[e]));
  for (unsigned l = 0; l < kWarpSize; l += 4) {
    __m128 a = _mm_load_ps(rows[0] + l), b = _mm_load_ps(rows[1] + l);
    __m128 c = _mm_load_ps(rows[2] + l), d = _mm_load_ps(rows[3] + l);
    _MM_TRANSPOSE4_PS(a, b, c, d);
    _mm_storeu_ps(reinterpret_cast<float*>(at.Of(l)), a);
    _mm_storeu_ps(reinterpret_cast<float*>(at.Of(l + 1)), b);
    _mm_storeu_ps(reinterpret_cast<float*>(at.Of(l + 2)), c);
    _mm_storeu_ps(reinterpret_cast<float*>(at.Of(l + 3)), d);
  }
}

// The instruction moves four plain 32-bit elements that fill their registers.
bool IsQuad(const Warp& w, const Inst* i) { return i->count == 4 && i->x == 4 && w.mask == kAllLanes; }

// Whole vectors of up to 16 bytes as one host access: programs rely on it for flag-and-value pairs.
#if defined(__clang__)
__attribute__((no_sanitize("thread", "alignment")))
#else
__attribute__((no_sanitize("thread"), no_sanitize("alignment")))
#endif
void ReadWhole(const uint8_t* p, unsigned bytes, void* out) {
  if (bytes == 16) {
    __m128i v = _mm_load_si128(reinterpret_cast<const __m128i*>(p));
    _mm_storeu_si128(static_cast<__m128i*>(out), v);
  } else if (bytes == 8) {
    uint64_t v = __atomic_load_n(reinterpret_cast<const uint64_t*>(p), __ATOMIC_ACQUIRE);
    std::memcpy(out, &v, 8);
  } else if (bytes == 4) {
    uint32_t v = __atomic_load_n(reinterpret_cast<const uint32_t*>(p), __ATOMIC_ACQUIRE);
    std::memcpy(out, &v, 4);
  } else {
    uint16_t v = __atomic_load_n(reinterpret_cast<const uint16_t*>(p), __ATOMIC_ACQUIRE);
    std::memcpy(out, &v, 2);
  }
}

#if defined(__clang__)
__attribute__((no_sanitize("thread", "alignment")))
#else
__attribute__((no_sanitize("thread"), no_sanitize("alignment")))
#endif
void WriteWhole(uint8_t* p, unsigned bytes, const void* in) {
  if (bytes == 16) {
    _mm_store_si128(reinterpret_cast<__m128i*>(p), _mm_loadu_si128(static_cast<const __m128i*>(in)));
  } else if (bytes == 8) {
    uint64_t v;
    std::memcpy(&v, in, 8);
    __atomic_store_n(reinterpret_cast<uint64_t*>(p), v, __ATOMIC_RELEASE);
  } else if (bytes == 4) {
    uint32_t v;
    std::memcpy(&v, in, 4);
    __atomic_store_n(reinterpret_cast<uint32_t*>(p), v, __ATOMIC_RELEASE);
  } else {
    uint16_t v;
    std::memcpy(&v, in, 2);
    __atomic_store_n(reinterpret_cast<uint16_t*>(p), v, __ATOMIC_RELEASE);
  }
}

// A strong access costs more of the quantum, so that loops which spin on memory give way early.
constexpr int64_t kStrongCost = 256;

template <MemSpace space>
const Inst* OpLoad(Warp& w, const Inst* i) {
  LaneAddresses at;
  if (!Resolve<space>(w, i, i->x * i->count, false, &at)) return kStopPc;
  if (i->count == 1) {
    i->load(w.Row(i->d), at, 0, w.mask);
  } else if (IsQuad(w, i) && i->load == &LoadLanes<uint32_t, uint32_t, false>) {
    LoadQuads(w, i->refs, at);
  } else {
    for (unsigned e = 0; e < i->count; ++e) {
      if (i->refs[e] != kNoPredicate) i->load(w.Row(i->refs[e]), at, e * i->x, w.mask);
    }
  }
  if (i->z) w.budget -= kStrongCost;
  return i + 1;
}

template <MemSpace space>
const Inst* OpStore(Warp& w, const Inst* i) {
  LaneAddresses at;
  if (!Resolve<space>(w, i, i->x * i->count, true, &at)) return kStopPc;
  if (i->count == 1) {
    i->store(w.Row(i->d), at, 0, w.mask);
  } else if (IsQuad(w, i) && i->store == &StoreLanes<uint32_t, uint32_t, false>) {
    StoreQuads(w, i->refs, at);
  } else {
    for (unsigned e = 0; e < i->count; ++e) i->store(w.Row(i->refs[e]), at, e * i->x, w.mask);
  }
  return i + 1;
}

template <MemSpace space>
const Inst* OpLoadWhole(Warp& w, const Inst* i) {
  LaneAddresses at;
  unsigned bytes = i->x * i->count;
  if (!Resolve<space>(w, i, bytes, false, &at)) return kStopPc;
  alignas(16) uint8_t whole[kWarpSize * 16];
  ForEachLane(w.mask, [&](unsigned l) { ReadWhole(at.Of(l), bytes, whole + 16 * l); });
  LaneAddresses copy;
  copy.kind = LaneAddresses::Kind::kStride;
  copy.step = 16;
  copy.first = whole;
  for (unsigned e = 0; e < i->count; ++e) {
    if (i->refs[e] != kNoPredicate) i->load(w.Row(i->refs[e]), copy, e * i->x, w.mask);
  }
  w.budget -= kStrongCost;
  return i + 1;
}

template <MemSpace space>
const Inst* OpStoreWhole(Warp& w, const Inst* i) {
  LaneAddresses at;
  unsigned bytes = i->x * i->count;
  if (!Resolve<space>(w, i, bytes, true, &at)) return kStopPc;
  alignas(16) uint8_t whole[kWarpSize * 16];
  LaneAddresses copy;
  copy.kind = LaneAddresses::Kind::kStride;
  copy.step = 16;
  copy.first = whole;
  for (unsigned e = 0; e < i->count; ++e) i->store(w.Row(i->refs[e]), copy, e * i->x, w.mask);
  ForEachLane(w.mask, [&](unsigned l) { WriteWhole(at.Of(l), bytes, whole + 16 * l); });
  return i + 1;
}

template <typename M, typename R>
LoadFn PickLoad(bool strong) {
  return strong ? &LoadLanes<M, R, true> : &LoadLanes<M, R, false>;
}

template <typename R, typename M>
StoreFn PickStore(bool strong) {
  return strong ? &StoreLanes<R, M, true> : &StoreLanes<R, M, false>;
}

template <typename M>
LoadFn PickLoadWidth(unsigned register_bytes, bool strong) {
  // Signedness of M decides how a wider register is filled.
  switch (register_bytes) {
    case 2:
      if constexpr (sizeof(M) <= 2) return PickLoad<M, uint16_t>(strong);
      return nullptr;
    case 4:
      if constexpr (sizeof(M) <= 4) return PickLoad<M, uint32_t>(strong);
      return nullptr;
    case 8:
      return PickLoad<M, uint64_t>(strong);
  }
  return nullptr;
}

template <typename M>
StoreFn PickStoreWidth(unsigned register_bytes, bool strong) {
  switch (register_bytes) {
    case 2:
      if constexpr (sizeof(M) <= 2) return PickStore<uint16_t, M>(strong);
      return nullptr;
    case 4:
      if constexpr (sizeof(M) <= 4) return PickStore<uint32_t, M>(strong);
      return nullptr;
    case 8:
      return PickStore<uint64_t, M>(strong);
  }
  return nullptr;
}

}  // namespace

LoadFn LoadElement(unsigned memory_bytes, unsigned register_bytes, bool sign, bool strong) {
  switch (memory_bytes) {
    case 1:
      return sign ? PickLoadWidth<int8_t>(register_bytes, strong)
                  : PickLoadWidth<uint8_t>(register_bytes, strong);
    case 2:
      return sign ? PickLoadWidth<int16_t>(register_bytes, strong)
                  : PickLoadWidth<uint16_t>(register_bytes, strong);
    case 4:
      return sign ? PickLoadWidth<int32_t>(register_bytes, strong)
                  : PickLoadWidth<uint32_t>(register_bytes, strong);
    case 8:
      return PickLoadWidth<uint64_t>(register_bytes, strong);
    case 16:
      return register_bytes == 16 ? &LoadLanes<unsigned __int128, unsigned __int128, false> : nullptr;
  }
  return nullptr;
}

StoreFn StoreElement(unsigned memory_bytes, unsigned register_bytes, bool strong) {
  switch (memory_bytes) {
    case 1:
      return PickStoreWidth<uint8_t>(register_bytes, strong);
    case 2:
      return PickStoreWidth<uint16_t>(register_bytes, strong);
    case 4:
      return PickStoreWidth<uint32_t>(register_bytes, strong);
    case 8:
      return PickStoreWidth<uint64_t>(register_bytes, strong);
    case 16:
      return register_bytes == 16 ? &StoreLanes<unsigned __int128, unsigned __int128, false> : nullptr;
  }
  return nullptr;
}

Handler LoadHandler(MemSpace space, bool strong_vector) {
  switch (space) {
    case MemSpace::kGlobal:
      return strong_vector ? &OpLoadWhole<MemSpace::kGlobal> : &OpLoad<MemSpace::kGlobal>;
    case MemSpace::kShared:
      return strong_vector ? &OpLoadWhole<MemSpace::kShared> : &OpLoad<MemSpace::kShared>;
    case MemSpace::kLocal:
      return strong_vector ? &OpLoadWhole<MemSpace::kLocal> : &OpLoad<MemSpace::kLocal>;
    case MemSpace::kKernelParam:
      return &OpLoad<MemSpace::kKernelParam>;
    case MemSpace::kGeneric:
      return strong_vector ? &OpLoadWhole<MemSpace::kGeneric> : &OpLoad<MemSpace::kGeneric>;
  }
  return nullptr;
}

Handler StoreHandler(MemSpace space, bool strong_vector) {
  switch (space) {
    case MemSpace::kGlobal:
      return strong_vector ? &OpStoreWhole<MemSpace::kGlobal> : &OpStore<MemSpace::kGlobal>;
    case MemSpace::kShared:
      return strong_vector ? &OpStoreWhole<MemSpace::kShared> : &OpStore<MemSpace::kShared>;
    case MemSpace::kLocal:
      return strong_vector ? &OpStoreWhole<MemSpace::kLocal> : &OpStore<MemSpace::kLocal>;
    case MemSpace::kGeneric:
      return strong_vector ? &OpStoreWhole<MemSpace::kGeneric> : &OpStore<MemSpace::kGeneric>;
    case MemSpace::kKernelParam:
      return nullptr;
  }
  return nullptr;
}

bool ResolveAddresses(Warp& w, const Inst* i, MemSpace space, unsigned bytes, bool write, LaneAddresses* at) {
  switch (space) {
    case MemSpace::kGlobal:
      return Resolve<MemSpace::kGlobal>(w, i, bytes, write, at);
    case MemSpace::kShared:
      return Resolve<MemSpace::kShared>(w, i, bytes, write, at);
    case MemSpace::kLocal:
      return Resolve<MemSpace::kLocal>(w, i, bytes, write, at);
    case MemSpace::kKernelParam:
      return Resolve<MemSpace::kKernelParam>(w, i, bytes, write, at);
    case MemSpace::kGeneric:
      return Resolve<MemSpace::kGeneric>(w, i, bytes, write, at);
  }
  return false;
}

uint8_t* Translate(const Warp& w, unsigned lane, MemSpace space, uint64_t address, uint64_t bytes,
                   bool write) {
  auto within = [&](uint64_t limit) { return address <= limit && bytes <= limit - address; };
  switch (space) {
    case MemSpace::kShared:
      return within(w.shared_bytes) ? w.shared + address : nullptr;
    case MemSpace::kLocal:
      return within(w.local_bytes) ? w.LocalOf(lane) + address : nullptr;
    case MemSpace::kKernelParam: {
      const std::vector<uint8_t>& params = w.grid->config().params;
      if (write || !within(params.size())) return nullptr;
      return const_cast<uint8_t*>(params.data()) + address;
    }
    case MemSpace::kGlobal:
      if (!w.access->Allows(address, static_cast<unsigned>(bytes), write)) return nullptr;
      return reinterpret_cast<uint8_t*>(address);
    case MemSpace::kGeneric:
      break;
  }
  switch (address & ~kOffsetMask) {
    case 0:
      return Translate(w, lane, MemSpace::kGlobal, address, bytes, write);
    case kSharedTag:
      return Translate(w, lane, MemSpace::kShared, address & kOffsetMask, bytes, write);
    case kLocalTag:
      return Translate(w, lane, MemSpace::kLocal, address & kOffsetMask, bytes, write);
    case kParamTag:
      return Translate(w, lane, MemSpace::kKernelParam, address & kOffsetMask, bytes, write);
  }
  return nullptr;
}

const Inst* OpCopyAsync(Warp& w, const Inst* i) {
  const uint32_t* read = i->count ? reinterpret_cast<const uint32_t*>(w.Row(i->refs[0])) : nullptr;
  Inst to = *i;
  to.a = i->b;
  to.y = i->z;
  to.imm = static_cast<int64_t>(i->number);
  LaneAddresses at;
  if (!ResolveAddresses(w, &to, MemSpace::kShared, i->x, true, &at)) {
    w.pc = i;
    return kStopPc;
  }
  for (uint32_t m = w.mask; m != 0; m &= m - 1) {
    unsigned lane = static_cast<unsigned>(std::countr_zero(m));
    uint64_t from = LaneAddress(w, i, lane);
    unsigned bytes = read ? std::min<uint32_t>(read[lane], i->x) : i->x;
    uint8_t* p = bytes ? Translate(w, lane, MemSpace::kGlobal, from, bytes, false) : nullptr;
    bool misaligned = bytes != 0 && (from & (i->x - 1u)) != 0;
    if (misaligned || (bytes != 0 && !p)) {
      FaultKind kind = misaligned ? FaultKind::kMisalignedAddress : FaultKind::kIllegalAddress;
      AddressFault(w, i, lane, kind, MemSpace::kGlobal, from, bytes, false);
      return kStopPc;
    }
    uint8_t* d = at.Of(lane);
    if (bytes != 0) std::memcpy(d, p, bytes);
    std::memset(d + bytes, 0, i->x - bytes);
  }
  return i + 1;
}

void FullFence() {
#ifdef STASIS_UNDER_TSAN
  // The sanitizer does not model fences; a read-modify-write of one variable gives the same order.
  static std::atomic<unsigned> order{0};
  order.fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

bool ReadGuestString(const Warp& w, unsigned lane, uint64_t address, size_t limit, std::string* out) {
  out->clear();
  for (; out->size() < limit; ++address) {
    const uint8_t* p = Translate(w, lane, MemSpace::kGeneric, address, 1, false);
    if (!p) return false;
    if (*p == 0) return true;
    out->push_back(static_cast<char>(*p));
  }
  return true;
}

}  // namespace softgpu::exec
