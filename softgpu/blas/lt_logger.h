// cuBLASLt's log: failed calls, for the callback or file that the program asked for.
#ifndef SOFTGPU_BLAS_LT_LOGGER_H_
#define SOFTGPU_BLAS_LT_LOGGER_H_

#include <cublasLt.h>

namespace softgpu::blas {

// Says that `function` failed with `status`; nothing for SUCCESS, below level 1, or when nobody listens.
void LogCall(const char* function, cublasStatus_t status);

}  // namespace softgpu::blas

#endif  // SOFTGPU_BLAS_LT_LOGGER_H_
