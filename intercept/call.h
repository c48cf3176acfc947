// What a hook knows about the call it answers: which exact variant the program called.
#ifndef INTERCEPT_CALL_H_
#define INTERCEPT_CALL_H_

#include "vmm/real_driver.h"

namespace stasis {

class Call {
 public:
  constexpr Call(Fn function, bool per_thread) : fn(function), per_thread_(per_thread) {}

  // The real driver's function of this variant: call.Real<decltype(&::cuMemAlloc_v2)>()(...). Never null.
  template <typename Function>
  Function Real() const {
    return reinterpret_cast<Function>(reinterpret_cast<void* const*>(&Driver())[static_cast<size_t>(fn)]);
  }
  // The _ptsz or _ptds variant, where stream 0 means CU_STREAM_PER_THREAD.
  bool per_thread() const { return per_thread_; }
  // The exact name, e.g. "cuMemAllocAsync_ptsz".
  const char* name() const { return FnName(fn); }

  const Fn fn;

 private:
  const bool per_thread_;
};

}  // namespace stasis

#endif  // INTERCEPT_CALL_H_
