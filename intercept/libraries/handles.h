// Handles of the libraries as the program sees them (visible) and as the library knows them now (real): what
// replay/translate.h is for the driver's.
//
// The program sees the value that the library gave when the object was made, for ever, unless that value is
// the visible one of another living object; then it sees one of our making. One table serves all kinds of
// handles, as libraries take each other's: a cublasHandle_t is a cublasLtHandle_t too. A value that the table
// does not know is passed on.
#ifndef INTERCEPT_LIBRARIES_HANDLES_H_
#define INTERCEPT_LIBRARIES_HANDLES_H_

#include <atomic>
#include <cstdint>

namespace stasis::libraries {

namespace internal {
extern std::atomic<bool> g_translating;
uint64_t LookUpReal(uint64_t visible);
uint64_t LookUpVisible(uint64_t real);
uint64_t AddHandle(uint64_t real);
void SetRealHandle(uint64_t visible, uint64_t real);
uint64_t ForgetHandle(uint64_t visible);
void RestoreHandle(uint64_t visible, uint64_t real);
void EndHandle(uint64_t visible);
}  // namespace internal

// Any thread, no lock. Null for an object that could not be made again: the library then answers as it does
// to a null handle.
template <typename Handle>
__attribute__((always_inline)) inline Handle* ToReal(Handle* visible) {
  if (__builtin_expect(!internal::g_translating.load(std::memory_order_relaxed), 1)) return visible;
  return reinterpret_cast<Handle*>(internal::LookUpReal(reinterpret_cast<uint64_t>(visible)));
}

// The functions below take a short lock.

template <typename Handle>
Handle* ToVisible(Handle* real) {
  return reinterpret_cast<Handle*>(internal::LookUpVisible(reinterpret_cast<uint64_t>(real)));
}

// Takes in an object that the library has just made as `real`; returns the handle to show to the program.
template <typename Handle>
Handle* AddHandle(Handle* real) {
  return reinterpret_cast<Handle*>(internal::AddHandle(reinterpret_cast<uint64_t>(real)));
}

// The object was made again as `real`; null: it is not there.
template <typename Handle>
void SetReal(Handle* visible, Handle* real) {
  internal::SetRealHandle(reinterpret_cast<uint64_t>(visible), reinterpret_cast<uint64_t>(real));
}

// The object's real handle, which means nothing from now on. To be called before the library destroys the
// object, since afterwards it may give the value to a new one. Then comes EndHandle(), or RestoreHandle()
// when the object lives on.
template <typename Handle>
Handle* ForgetHandle(Handle* visible) {
  return reinterpret_cast<Handle*>(internal::ForgetHandle(reinterpret_cast<uint64_t>(visible)));
}
template <typename Handle>
void RestoreHandle(Handle* visible, Handle* real) {
  internal::RestoreHandle(reinterpret_cast<uint64_t>(visible), reinterpret_cast<uint64_t>(real));
}
template <typename Handle>
void EndHandle(Handle* visible) {
  internal::EndHandle(reinterpret_cast<uint64_t>(visible));
}

// Of a child after fork(2): the lock may have been held by another thread.
void ResetHandlesAfterFork();

}  // namespace stasis::libraries

#endif  // INTERCEPT_LIBRARIES_HANDLES_H_
