// How calls answer: the status, the text of the last error, the program's callback.
#ifndef SOFTGPU_DNN_STATUS_H_
#define SOFTGPU_DNN_STATUS_H_

#include <cuda.h>
#include <cudnn.h>

namespace softgpu::dnn {

// Keeps "function: condition" as the thread's last error, tells the program's callback, and returns `status`.
cudnnStatus_t Refuse(cudnnStatus_t status, const char* function, const char* condition);

// CUDNN_STATUS_SUCCESS, or what stands for a driver's error at a launch.
cudnnStatus_t FromDriver(CUresult result, const char* function, const char* call);

}  // namespace softgpu::dnn

// Leave the function with BAD_PARAM (NOT_SUPPORTED) unless the condition holds.
#define DNN_REQUIRE(condition) \
  if (!(condition)) return ::softgpu::dnn::Refuse(CUDNN_STATUS_BAD_PARAM, __func__, #condition)
#define DNN_SUPPORT(condition) \
  if (!(condition)) return ::softgpu::dnn::Refuse(CUDNN_STATUS_NOT_SUPPORTED, __func__, #condition)
#define DNN_RETURN_IF_ERROR(call) \
  if (const cudnnStatus_t status_ = (call); status_ != CUDNN_STATUS_SUCCESS) return status_

#endif  // SOFTGPU_DNN_STATUS_H_
