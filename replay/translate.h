// Handles as the program sees them (visible) and as the driver below knows them now (real).
//
// The program sees the value the driver gave when the object was created, for ever. Until the first rebuild
// the two are equal and nothing is looked up. All functions may be called by any thread inside the gate; they
// take no lock. A handle that the table does not know (null, the special streams, a stale one) is passed on.
#ifndef REPLAY_TRANSLATE_H_
#define REPLAY_TRANSLATE_H_

#include <atomic>
#include <cstdint>

namespace stasis::replay {

namespace internal {
extern std::atomic<bool> g_translating;
uint64_t LookUpReal(uint64_t visible);
uint64_t LookUpVisible(uint64_t real);
}  // namespace internal

inline bool Translating() { return internal::g_translating.load(std::memory_order_relaxed); }

// For every handle of the driver that is a pointer: CUcontext, CUmodule, CUlibrary, CUkernel, CUfunction,
// CUstream, CUevent, CUgraph, CUgraphNode, CUgraphExec, CUmemoryPool, CUarray, CUmipmappedArray, CUuserObject
// ...
template <typename Handle>
__attribute__((always_inline)) inline Handle* ToReal(Handle* visible) {
  if (__builtin_expect(!Translating(), 1)) return visible;
  return reinterpret_cast<Handle*>(internal::LookUpReal(reinterpret_cast<uint64_t>(visible)));
}
template <typename Handle>
__attribute__((always_inline)) inline Handle* ToVisible(Handle* real) {
  if (__builtin_expect(!Translating(), 1)) return real;
  return reinterpret_cast<Handle*>(internal::LookUpVisible(reinterpret_cast<uint64_t>(real)));
}

}  // namespace stasis::replay

#endif  // REPLAY_TRANSLATE_H_
