#include "softgpu/dnn/status.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <ctime>
#include <mutex>

#include "softgpu/native/driver.h"

namespace softgpu::dnn {
namespace {

constexpr size_t kMaxMessage = 256;
thread_local char t_last_error[kMaxMessage];

struct Callback {
  unsigned mask = 0;
  void* user = nullptr;
  cudnnCallback_t function = nullptr;
};

constinit std::mutex g_mutex;
constinit Callback g_callback;

Callback CurrentCallback() {
  std::lock_guard lock(g_mutex);
  return g_callback;
}

cudnnDebug_t DebugInfo(cudnnStatus_t status) {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  cudnnDebug_t debug{};
  debug.cudnn_version = CUDNN_VERSION;
  debug.cudnnStatus = status;
  debug.time_sec = static_cast<unsigned>(now.tv_sec);
  debug.time_usec = static_cast<unsigned>(now.tv_nsec / 1000);
  debug.pid = static_cast<unsigned long long>(getpid());
  debug.tid = static_cast<unsigned long long>(syscall(SYS_gettid));
  debug.cudaDeviceId = -1;
  return debug;
}

}  // namespace

cudnnStatus_t Refuse(cudnnStatus_t status, const char* function, const char* condition) {
  std::snprintf(t_last_error, sizeof t_last_error, "%s: %s: not %s", function, cudnnGetErrorString(status),
                condition);
  const Callback callback = CurrentCallback();
  if (callback.function != nullptr && (callback.mask & CUDNN_SEV_ERROR_EN) != 0) {
    const cudnnDebug_t debug = DebugInfo(status);
    callback.function(CUDNN_SEV_ERROR, callback.user, &debug, t_last_error);
  }
  return status;
}

cudnnStatus_t FromDriver(CUresult result, const char* function, const char* call) {
  if (result == CUDA_SUCCESS) return CUDNN_STATUS_SUCCESS;
  const char* name = nullptr;
  if (native::Driver().cuGetErrorName(result, &name) != CUDA_SUCCESS) name = "unknown driver error";
  char text[kMaxMessage];
  std::snprintf(text, sizeof text, "done: %s answered %s", call, name);
  return Refuse(CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER, function, text);
}

}  // namespace softgpu::dnn

using softgpu::dnn::g_callback;
using softgpu::dnn::g_mutex;
using softgpu::dnn::t_last_error;

extern "C" {

const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
#define DNN_NAME(name) \
  case name:           \
    return #name;
    DNN_NAME(CUDNN_STATUS_SUCCESS)
    DNN_NAME(CUDNN_STATUS_NOT_INITIALIZED)
    DNN_NAME(CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH)
    DNN_NAME(CUDNN_STATUS_SERIALIZATION_VERSION_MISMATCH)
    DNN_NAME(CUDNN_STATUS_DEPRECATED)
    DNN_NAME(CUDNN_STATUS_LICENSE_ERROR)
    DNN_NAME(CUDNN_STATUS_RUNTIME_IN_PROGRESS)
    DNN_NAME(CUDNN_STATUS_RUNTIME_FP_OVERFLOW)
    DNN_NAME(CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED)
    DNN_NAME(CUDNN_STATUS_BAD_PARAM)
    DNN_NAME(CUDNN_STATUS_INVALID_VALUE)
    DNN_NAME(CUDNN_STATUS_BAD_PARAM_NULL_POINTER)
    DNN_NAME(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER)
    DNN_NAME(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED)
    DNN_NAME(CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND)
    DNN_NAME(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT)
    DNN_NAME(CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH)
    DNN_NAME(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH)
    DNN_NAME(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES)
    DNN_NAME(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE)
    DNN_NAME(CUDNN_STATUS_BAD_PARAM_CUDA_GRAPH_MISMATCH)
    DNN_NAME(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE)
    DNN_NAME(CUDNN_STATUS_NOT_SUPPORTED)
    DNN_NAME(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN)
    DNN_NAME(CUDNN_STATUS_NOT_SUPPORTED_SHAPE)
    DNN_NAME(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE)
    DNN_NAME(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT)
    DNN_NAME(CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER)
    DNN_NAME(CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDART)
    DNN_NAME(CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH)
    DNN_NAME(CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING)
    DNN_NAME(CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE)
    DNN_NAME(CUDNN_STATUS_NOT_SUPPORTED_SHARED_MEMORY_INSUFFICIENT)
    DNN_NAME(CUDNN_STATUS_NOT_SUPPORTED_PADDING)
    DNN_NAME(CUDNN_STATUS_NOT_SUPPORTED_BAD_LAUNCH_PARAM)
    DNN_NAME(CUDNN_STATUS_NOT_SUPPORTED_CUDA_GRAPH_NATIVE_API)
    DNN_NAME(CUDNN_STATUS_NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE)
    DNN_NAME(CUDNN_STATUS_INTERNAL_ERROR)
    DNN_NAME(CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED)
    DNN_NAME(CUDNN_STATUS_INTERNAL_ERROR_UNEXPECTED_VALUE)
    DNN_NAME(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED)
    DNN_NAME(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)
    DNN_NAME(CUDNN_STATUS_INTERNAL_ERROR_BAD_LAUNCH_PARAM)
    DNN_NAME(CUDNN_STATUS_INTERNAL_ERROR_TEXTURE_CREATION_FAILED)
    DNN_NAME(CUDNN_STATUS_EXECUTION_FAILED)
    DNN_NAME(CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER)
    DNN_NAME(CUDNN_STATUS_EXECUTION_FAILED_CUBLAS)
    DNN_NAME(CUDNN_STATUS_EXECUTION_FAILED_CUDART)
    DNN_NAME(CUDNN_STATUS_EXECUTION_FAILED_CURAND)
#undef DNN_NAME
    default:
      return "CUDNN_UNKNOWN_STATUS";
  }
}

void cudnnGetLastErrorString(char* message, size_t max_size) {
  if (message == nullptr || max_size == 0) return;
  std::snprintf(message, max_size, "%s", t_last_error);
  t_last_error[0] = '\0';
}

cudnnStatus_t cudnnSetCallback(unsigned mask, void* udata, cudnnCallback_t fptr) {
  std::lock_guard lock(g_mutex);
  g_callback = {mask, udata, fptr};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetCallback(unsigned* mask, void** udata, cudnnCallback_t* fptr) {
  DNN_REQUIRE(mask != nullptr && udata != nullptr && fptr != nullptr);
  const softgpu::dnn::Callback callback = softgpu::dnn::CurrentCallback();
  *mask = callback.mask;
  *udata = callback.user;
  *fptr = callback.function;
  return CUDNN_STATUS_SUCCESS;
}

size_t cudnnGetVersion(void) { return CUDNN_VERSION; }

size_t cudnnGetMaxDeviceVersion(void) { return CUDNN_MAX_DEVICE_VERSION; }

size_t cudnnGetCudartVersion(void) { return CUDA_VERSION; }

cudnnStatus_t cudnnGetProperty(libraryPropertyType type, int* value) {
  DNN_REQUIRE(value != nullptr);
  DNN_REQUIRE(type == MAJOR_VERSION || type == MINOR_VERSION || type == PATCH_LEVEL);
  const int values[] = {CUDNN_MAJOR, CUDNN_MINOR, CUDNN_PATCHLEVEL};
  *value = values[type];
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGraphVersionCheck(void) { return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnOpsVersionCheck(void) { return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnCnnVersionCheck(void) { return CUDNN_STATUS_SUCCESS; }
cudnnStatus_t cudnnAdvVersionCheck(void) { return CUDNN_STATUS_SUCCESS; }

}  // extern "C"
