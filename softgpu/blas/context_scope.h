// Makes the context of a handle current for one call.
#ifndef SOFTGPU_BLAS_CONTEXT_SCOPE_H_
#define SOFTGPU_BLAS_CONTEXT_SCOPE_H_

#include "softgpu/native/driver.h"

namespace softgpu::blas {

// A handle works in the context that was current when it was made, whatever is current at a call.
class ContextScope {
 public:
  explicit ContextScope(CUcontext context) {
    CUcontext current = nullptr;
    result_ = native::Driver().cuCtxGetCurrent(&current);
    if (result_ != CUDA_SUCCESS || current == context) return;
    result_ = native::Driver().cuCtxPushCurrent_v2(context);
    pushed_ = result_ == CUDA_SUCCESS;
  }
  ~ContextScope() {
    CUcontext ignored = nullptr;
    if (pushed_) native::Driver().cuCtxPopCurrent_v2(&ignored);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  CUresult result() const { return result_; }

 private:
  CUresult result_ = CUDA_SUCCESS;
  bool pushed_ = false;
};

}  // namespace softgpu::blas

#endif  // SOFTGPU_BLAS_CONTEXT_SCOPE_H_
