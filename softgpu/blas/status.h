// Results of the driver as results of these libraries.
#ifndef SOFTGPU_BLAS_STATUS_H_
#define SOFTGPU_BLAS_STATUS_H_

#include <cublas_v2.h>
#include <cuda.h>

namespace softgpu::blas {

// Of launches and waits.
inline cublasStatus_t StatusOf(CUresult result) {
  switch (result) {
    case CUDA_SUCCESS:
      return CUBLAS_STATUS_SUCCESS;
    case CUDA_ERROR_OUT_OF_MEMORY:
      return CUBLAS_STATUS_ALLOC_FAILED;
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_DEINITIALIZED:
      return CUBLAS_STATUS_NOT_INITIALIZED;
    default:
      return CUBLAS_STATUS_EXECUTION_FAILED;
  }
}

// "CUBLAS_STATUS_SUCCESS", "success"; of unknown numbers a text that says so.
const char* StatusName(cublasStatus_t status);
const char* StatusText(cublasStatus_t status);
// INVALID_VALUE for properties that library_types.h does not have.
cublasStatus_t Property(libraryPropertyType type, int* value);

}  // namespace softgpu::blas

#endif  // SOFTGPU_BLAS_STATUS_H_
