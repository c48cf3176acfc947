// The real functions behind the wrappers of the libraries. Thread-safe.
#ifndef INTERCEPT_LIBRARIES_REAL_FUNCTIONS_H_
#define INTERCEPT_LIBRARIES_REAL_FUNCTIONS_H_

#include <atomic>

#include "library_functions.h"

namespace stasis::libraries {

namespace internal {
extern std::atomic<void*> g_real_functions[kLibraryFnCount];
// Null, with one line in the log, when the process has no such function.
void* ResolveFunction(LibraryFn function);
}  // namespace internal

inline void* RealAddress(LibraryFn function) {
  void* address = internal::g_real_functions[static_cast<uint32_t>(function)].load(std::memory_order_relaxed);
  return __builtin_expect(address != nullptr, 1) ? address : internal::ResolveFunction(function);
}

// The library that the program has loaded, wherever it has put it; found at the first call and held from then
// on. Null when there is none.
template <typename Function>
Function* RealFunction(LibraryFn function) {
  return reinterpret_cast<Function*>(RealAddress(function));
}

// Whether the address lies in the code of a library of ours to wrap that was found by its own name. A
// library that is linked into something else is none: that code is the program's as well.
// Takes no lock.
bool IsLibraryCode(const void* address);
// The same by the name of the object that holds the address, the parts that cuDNN is made of included. Takes
// the loader's lock.
bool IsInALibrary(const void* address);

}  // namespace stasis::libraries

#endif  // INTERCEPT_LIBRARIES_REAL_FUNCTIONS_H_
