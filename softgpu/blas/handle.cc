#include "softgpu/blas/handle.h"

#include <cublasLt.h>

#include <new>

#include "softgpu/blas/live_handles.h"
#include "softgpu/native/driver.h"

namespace softgpu::blas {

namespace {

// Never destroyed: handles may be used until the process is gone.
LiveHandles<cublasHandle_t, Handle>& Handles() {
  static auto* const handles = new LiveHandles<cublasHandle_t, Handle>;
  return *handles;
}

CUresult AllocateHidden(Handle* handle) {
  CUdeviceptr memory = 0;
  CUresult result = native::Driver().cuCtxGetCurrent(&handle->context);
  if (result == CUDA_SUCCESS)
    result = native::Driver().cuMemAlloc_v2(&memory, kWorkspaceBytes + kResults * kResultBytes);
  handle->hidden = memory;
  handle->workspace = {memory, kWorkspaceBytes};
  return result;
}

}  // namespace

std::shared_ptr<Handle> FindHandle(cublasHandle_t handle) { return Handles().Find(handle); }

Call::Call(cublasHandle_t handle) : handle_(FindHandle(handle)) {
  if (handle_ == nullptr) {
    status_ = CUBLAS_STATUS_NOT_INITIALIZED;
    return;
  }
  scope_.emplace(handle_->context);
  status_ = StatusOf(scope_->result());
}

// Calls of several threads at once get places of their own.
uint64_t Call::PlaceOfResult() const {
  unsigned place = handle_->next_result.fetch_add(1, std::memory_order_relaxed) % kResults;
  return handle_->hidden + kWorkspaceBytes + place * kResultBytes;
}

cublasStatus_t Call::Fetch(void* to, uint64_t from, size_t bytes) const {
  CUresult result = native::Driver().cuMemcpyDtoHAsync_v2(to, from, bytes, handle_->stream);
  if (result == CUDA_SUCCESS) result = native::Driver().cuStreamSynchronize(handle_->stream);
  return StatusOf(result);
}

}  // namespace softgpu::blas

using namespace softgpu::blas;
using softgpu::native::Driver;

extern "C" {

// The value of a handle is that of a cuBLASLt handle, as which it may be used too.
cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  if (handle == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  std::shared_ptr<Handle> state(new (std::nothrow) Handle);
  if (state == nullptr) return CUBLAS_STATUS_ALLOC_FAILED;
  cublasLtHandle_t light = nullptr;
  cublasStatus_t status = cublasLtCreate(&light);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  CUresult result = AllocateHidden(state.get());
  if (result != CUDA_SUCCESS) {
    cublasLtDestroy(light);
    return StatusOf(result);
  }
  *handle = reinterpret_cast<cublasHandle_t>(light);
  Handles().Add(*handle, std::move(state));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  std::shared_ptr<Handle> state = Handles().Remove(handle);
  if (state == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  ContextScope scope(state->context);
  // Waits for what still uses it. Fails only where the context, and the memory with it, is gone already.
  if (scope.result() == CUDA_SUCCESS) Driver().cuMemFree_v2(state->hidden);
  return cublasLtDestroy(reinterpret_cast<cublasLtHandle_t>(handle));
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t, int* version) {
  if (version == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *version = CUBLAS_VERSION;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetProperty(libraryPropertyType type, int* value) { return Property(type, value); }
size_t cublasGetCudartVersion(void) { return CUDA_VERSION; }
const char* cublasGetStatusName(cublasStatus_t status) { return StatusName(status); }
const char* cublasGetStatusString(cublasStatus_t status) { return StatusText(status); }

}  // extern "C"
