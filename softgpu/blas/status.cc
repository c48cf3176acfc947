#include "softgpu/blas/status.h"

namespace softgpu::blas {

namespace {

struct Row {
  cublasStatus_t status;
  const char* name;
  const char* text;
};
#define STATUS(name, text) \
  { name, #name, text }
constexpr Row kRows[] = {
    STATUS(CUBLAS_STATUS_SUCCESS, "success"),
    STATUS(CUBLAS_STATUS_NOT_INITIALIZED, "the library was not initialized"),
    STATUS(CUBLAS_STATUS_ALLOC_FAILED, "the resource allocation failed"),
    STATUS(CUBLAS_STATUS_INVALID_VALUE, "an unsupported value or parameter was passed to the function"),
    STATUS(CUBLAS_STATUS_ARCH_MISMATCH, "the device lacks a feature that the function requires"),
    STATUS(CUBLAS_STATUS_MAPPING_ERROR, "an access to GPU memory space failed"),
    STATUS(CUBLAS_STATUS_EXECUTION_FAILED, "the function failed to launch on the GPU"),
    STATUS(CUBLAS_STATUS_INTERNAL_ERROR, "an internal operation failed"),
    STATUS(CUBLAS_STATUS_NOT_SUPPORTED, "the functionality is not supported"),
    STATUS(CUBLAS_STATUS_LICENSE_ERROR, "an error was detected when checking the license"),
};
#undef STATUS

const Row* Find(cublasStatus_t status) {
  for (const Row& row : kRows) {
    if (row.status == status) return &row;
  }
  return nullptr;
}

}  // namespace

const char* StatusName(cublasStatus_t status) {
  const Row* row = Find(status);
  return row == nullptr ? "unknown status" : row->name;
}

const char* StatusText(cublasStatus_t status) {
  const Row* row = Find(status);
  return row == nullptr ? "unknown status" : row->text;
}

cublasStatus_t Property(libraryPropertyType type, int* value) {
  if (value == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  switch (type) {
    case MAJOR_VERSION:
      *value = CUBLAS_VER_MAJOR;
      return CUBLAS_STATUS_SUCCESS;
    case MINOR_VERSION:
      *value = CUBLAS_VER_MINOR;
      return CUBLAS_STATUS_SUCCESS;
    case PATCH_LEVEL:
      *value = CUBLAS_VER_PATCH;
      return CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

}  // namespace softgpu::blas
