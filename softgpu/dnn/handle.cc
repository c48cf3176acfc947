#include "softgpu/dnn/handle.h"

#include <atomic>
#include <new>

#include "softgpu/native/driver.h"

namespace softgpu::dnn {
namespace {

constexpr size_t kHeaderBytes = 64;  // of the hidden workspace: its busy word

CUresult MakeWorkspace(CUdeviceptr* workspace) {
  const CUresult result = native::Driver().cuMemAlloc_v2(workspace, kHiddenBytes);
  if (result != CUDA_SUCCESS) return result;
  const uint64_t free = 0;
  return native::Driver().cuMemcpyHtoD_v2(*workspace, &free, sizeof free);
}

cudnnStatus_t CreationError(CUresult result) {
  const bool memory = result == CUDA_ERROR_OUT_OF_MEMORY;
  return Refuse(memory ? CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED : CUDNN_STATUS_NOT_INITIALIZED,
                "cudnnCreate", memory ? "enough device memory" : "a usable driver and device");
}

}  // namespace

CUresult UseContext(cudnnHandle_t handle) {
  CUcontext current = nullptr;
  if (native::Driver().cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != nullptr) return CUDA_SUCCESS;
  return native::Driver().cuCtxSetCurrent(handle->context);
}

Workspace WorkspaceOf(cudnnHandle_t handle, const void* given, size_t bytes) {
  Workspace workspace;
  if (given != nullptr && bytes > 0) {
    workspace.given = {reinterpret_cast<uint64_t>(given), bytes};
    return workspace;
  }
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = native::Driver().cuStreamIsCapturing(handle->stream, &capture);
  if (result != CUDA_SUCCESS || capture != CU_STREAM_CAPTURE_STATUS_NONE) return workspace;
  workspace.hidden = {handle->workspace, kHiddenBytes};
  return workspace;
}

Scratch::Space Scratch::Find(const Workspace& workspace, Memory* memory) {
  if (workspace.given.address != 0) {
    return {memory->Write<void>(workspace.given.address, workspace.given.bytes), workspace.given.bytes,
            nullptr};
  }
  if (workspace.hidden.address == 0) return {};
  char* hidden = memory->Write<char>(workspace.hidden.address, workspace.hidden.bytes);
  if (hidden == nullptr) return {};
  uint32_t* busy = reinterpret_cast<uint32_t*>(hidden);
  if (std::atomic_ref(*busy).exchange(1, std::memory_order_acquire) != 0) return {};
  return {hidden + kHeaderBytes, workspace.hidden.bytes - kHeaderBytes, busy};
}

Scratch::Scratch(const Workspace& workspace, Memory* memory)
    : space_(Find(workspace, memory)), arena_(space_.data, space_.bytes) {}

Scratch::~Scratch() {
  if (space_.busy != nullptr) std::atomic_ref(*space_.busy).store(0, std::memory_order_release);
}

}  // namespace softgpu::dnn

using softgpu::dnn::FromDriver;
using softgpu::native::Driver;

extern "C" {

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  DNN_REQUIRE(handle != nullptr);
  *handle = nullptr;
  cudnnContext made{};
  CUresult result = softgpu::native::EnsureContext();
  if (result == CUDA_SUCCESS) result = Driver().cuCtxGetCurrent(&made.context);
  if (result == CUDA_SUCCESS) result = softgpu::dnn::MakeWorkspace(&made.workspace);
  cudnnHandle_t kept = result == CUDA_SUCCESS ? new (std::nothrow) cudnnContext(made) : nullptr;
  if (kept == nullptr) {
    if (made.workspace != 0) Driver().cuMemFree_v2(made.workspace);
    return softgpu::dnn::CreationError(result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result);
  }
  *handle = kept;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  if (handle == nullptr) return CUDNN_STATUS_SUCCESS;
  // Whatever context is current, memory is freed where it was made.
  CUresult result = Driver().cuCtxPushCurrent_v2(handle->context);
  if (result == CUDA_SUCCESS) {
    // Launches that are still to come use the workspace. An error of theirs is not this call's.
    Driver().cuCtxSynchronize();
    result = Driver().cuMemFree_v2(handle->workspace);
    CUcontext popped = nullptr;
    Driver().cuCtxPopCurrent_v2(&popped);
  }
  delete handle;
  return FromDriver(result, __func__, "cuMemFree");
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t streamId) {
  DNN_REQUIRE(handle != nullptr);
  CUcontext context = nullptr;
  const bool named = streamId != nullptr && streamId != CU_STREAM_LEGACY && streamId != CU_STREAM_PER_THREAD;
  if (named && Driver().cuStreamGetCtx(streamId, &context) == CUDA_SUCCESS && context != handle->context) {
    return softgpu::dnn::Refuse(CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH, __func__,
                                "a stream of the handle's context");
  }
  handle->stream = streamId;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* streamId) {
  DNN_REQUIRE(handle != nullptr);
  DNN_REQUIRE(streamId != nullptr);
  *streamId = handle->stream;
  return CUDNN_STATUS_SUCCESS;
}

// Errors of kernels are the driver's, and come with the calls that wait for them.
cudnnStatus_t cudnnQueryRuntimeError(cudnnHandle_t handle, cudnnStatus_t* rstatus, cudnnErrQueryMode_t mode,
                                     cudnnRuntimeTag_t* tag) {
  DNN_REQUIRE(handle != nullptr);
  DNN_REQUIRE(rstatus != nullptr);
  DNN_REQUIRE(tag == nullptr);
  DNN_REQUIRE(mode == CUDNN_ERRQUERY_RAWCODE || mode == CUDNN_ERRQUERY_NONBLOCKING ||
              mode == CUDNN_ERRQUERY_BLOCKING);
  *rstatus = CUDNN_STATUS_SUCCESS;
  if (mode != CUDNN_ERRQUERY_BLOCKING) return CUDNN_STATUS_SUCCESS;
  const CUresult result = Driver().cuStreamSynchronize(handle->stream);
  if (result != CUDA_SUCCESS) *rstatus = CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER;
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
