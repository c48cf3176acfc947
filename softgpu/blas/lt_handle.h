// The handle of cuBLASLt: a token with a little device memory of its own, which matrix products use when the
// caller gives them no workspace. A handle of cuBLAS is also one of these, as NVIDIA's is.
#ifndef SOFTGPU_BLAS_LT_HANDLE_H_
#define SOFTGPU_BLAS_LT_HANDLE_H_

#include <cublasLt.h>
#include <cuda.h>

#include <memory>

#include "softgpu/blas/scratch.h"

struct cublasLtContext {
  CUcontext context = nullptr;  // current when it was made
  softgpu::blas::Workspace own;
};

namespace softgpu::blas {

// Of a live handle, or null. Thread-safe.
std::shared_ptr<cublasLtContext> FindLtHandle(cublasLtHandle_t handle);

}  // namespace softgpu::blas

#endif  // SOFTGPU_BLAS_LT_HANDLE_H_
