#include "softgpu/blas/lt_handle.h"

#include <new>

#include "softgpu/blas/context_scope.h"
#include "softgpu/blas/live_handles.h"
#include "softgpu/blas/matmul.h"
#include "softgpu/blas/status.h"
#include "softgpu/native/driver.h"

namespace softgpu::blas {

namespace {

// Never destroyed: handles may be used until the process is gone.
LiveHandles<cublasLtHandle_t, cublasLtContext>& Handles() {
  static auto* const handles = new LiveHandles<cublasLtHandle_t, cublasLtContext>;
  return *handles;
}

}  // namespace

std::shared_ptr<cublasLtContext> FindLtHandle(cublasLtHandle_t handle) { return Handles().Find(handle); }

}  // namespace softgpu::blas

using softgpu::blas::Handles;
using softgpu::native::Driver;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* lightHandle) {
  if (lightHandle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  CUresult result = softgpu::native::EnsureContext();
  if (result != CUDA_SUCCESS) return CUBLAS_STATUS_NOT_INITIALIZED;
  std::shared_ptr<cublasLtContext> handle(new (std::nothrow) cublasLtContext);
  if (handle == nullptr) return CUBLAS_STATUS_ALLOC_FAILED;
  handle->own.bytes = softgpu::blas::MatmulWorkspaceBytes();
  CUdeviceptr memory = 0;
  result = Driver().cuCtxGetCurrent(&handle->context);
  if (result == CUDA_SUCCESS) result = Driver().cuMemAlloc_v2(&memory, handle->own.bytes);
  if (result != CUDA_SUCCESS) return softgpu::blas::StatusOf(result);
  handle->own.address = memory;
  *lightHandle = handle.get();
  Handles().Add(handle.get(), handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t lightHandle) {
  std::shared_ptr<cublasLtContext> handle = Handles().Remove(lightHandle);
  if (handle == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  softgpu::blas::ContextScope scope(handle->context);
  // Waits for what still uses it. Fails only where the context, and the memory with it, is gone already.
  if (scope.result() == CUDA_SUCCESS) Driver().cuMemFree_v2(handle->own.address);
  return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }
size_t cublasLtGetCudartVersion(void) { return CUDA_VERSION; }
cublasStatus_t cublasLtGetProperty(libraryPropertyType type, int* value) {
  return softgpu::blas::Property(type, value);
}
const char* cublasLtGetStatusName(cublasStatus_t status) { return softgpu::blas::StatusName(status); }
const char* cublasLtGetStatusString(cublasStatus_t status) { return softgpu::blas::StatusText(status); }

}  // extern "C"
