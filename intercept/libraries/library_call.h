// What a hook knows about the library's call that it answers: which exact function the program called.
#ifndef INTERCEPT_LIBRARIES_LIBRARY_CALL_H_
#define INTERCEPT_LIBRARIES_LIBRARY_CALL_H_

#include "intercept/libraries/real_functions.h"

namespace stasis::libraries {

class LibraryCall {
 public:
  // `caller`: an address in the code that calls.
  constexpr LibraryCall(LibraryFn function, const void* caller) : fn(function), caller_(caller) {}

  // The real function: call.Real<decltype(&::ncclAllReduce)>()(...). Never null.
  template <typename Function>
  Function Real() const {
    return reinterpret_cast<Function>(RealAddress(fn));
  }
  const char* name() const { return LibraryFnName(fn); }
  // A library called, in a function of its own that no wrapper stands before. What it makes is not the
  // program's.
  bool OfALibrary() const { return IsInALibrary(caller_); }

  const LibraryFn fn;

 private:
  const void* const caller_;
};

}  // namespace stasis::libraries

#endif  // INTERCEPT_LIBRARIES_LIBRARY_CALL_H_
