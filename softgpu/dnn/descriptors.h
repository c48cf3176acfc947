// What stands behind the program's descriptors: memory of the host alone.
#ifndef SOFTGPU_DNN_DESCRIPTORS_H_
#define SOFTGPU_DNN_DESCRIPTORS_H_

#include <cudnn.h>

#include <new>

#include "softgpu/dnn/activation.h"
#include "softgpu/dnn/convolution.h"
#include "softgpu/dnn/norm.h"
#include "softgpu/dnn/pointwise.h"
#include "softgpu/dnn/pooling.h"
#include "softgpu/dnn/status.h"
#include "softgpu/dnn/tensor.h"

struct cudnnTensorStruct {
  softgpu::dnn::Shape shape;
};

struct cudnnFilterStruct {
  softgpu::dnn::Shape shape;
  cudnnTensorFormat_t format = CUDNN_TENSOR_NCHW;
};

struct cudnnConvolutionStruct {
  static constexpr int kMaxLength = CUDNN_DIM_MAX - 2;
  int length = 0;  // dimensions of space
  int pad[kMaxLength] = {};
  int stride[kMaxLength] = {};
  int dilation[kMaxLength] = {};
  cudnnConvolutionMode_t mode = CUDNN_CONVOLUTION;
  cudnnDataType_t compute_type = CUDNN_DATA_FLOAT;
  cudnnMathType_t math_type = CUDNN_DEFAULT_MATH;
  cudnnReorderType_t reorder = CUDNN_DEFAULT_REORDER;
  int groups = 1;
};

struct cudnnPoolingStruct {
  static constexpr int kMaxLength = CUDNN_DIM_MAX - 2;
  cudnnPoolingMode_t mode = CUDNN_POOLING_MAX;
  cudnnNanPropagation_t nan = CUDNN_NOT_PROPAGATE_NAN;
  int length = 0;
  int window[kMaxLength] = {};
  int pad[kMaxLength] = {};
  int stride[kMaxLength] = {};
};

struct cudnnActivationStruct {
  softgpu::dnn::ActivationParams params;
};

struct cudnnLRNStruct {
  softgpu::dnn::LrnParams params;
};

struct cudnnOpTensorStruct {
  cudnnOpTensorOp_t op = CUDNN_OP_TENSOR_ADD;
  cudnnDataType_t compute_type = CUDNN_DATA_FLOAT;
  cudnnNanPropagation_t nan = CUDNN_NOT_PROPAGATE_NAN;
};

struct cudnnReduceTensorStruct {
  cudnnReduceTensorOp_t op = CUDNN_REDUCE_TENSOR_ADD;
  cudnnDataType_t compute_type = CUDNN_DATA_FLOAT;
  cudnnNanPropagation_t nan = CUDNN_NOT_PROPAGATE_NAN;
  cudnnReduceTensorIndices_t indices = CUDNN_REDUCE_TENSOR_NO_INDICES;
  cudnnIndicesType_t indices_type = CUDNN_32BIT_INDICES;
};

struct cudnnDropoutStruct {
  float dropout = 0;
  void* states = nullptr;  // device memory of the program
  unsigned long long seed = 0;
};

namespace softgpu::dnn {

template <typename T>
cudnnStatus_t CreateDescriptor(const char* function, T** descriptor) {
  if (descriptor == nullptr) return Refuse(CUDNN_STATUS_BAD_PARAM, function, "a place for the descriptor");
  *descriptor = new (std::nothrow) T;
  if (*descriptor == nullptr) {
    return Refuse(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, function, "enough memory");
  }
  return CUDNN_STATUS_SUCCESS;
}

template <typename T>
cudnnStatus_t DestroyDescriptor(T* descriptor) {
  delete descriptor;
  return CUDNN_STATUS_SUCCESS;
}

inline bool IsNanOption(cudnnNanPropagation_t nan) {
  return nan == CUDNN_NOT_PROPAGATE_NAN || nan == CUDNN_PROPAGATE_NAN;
}

// A type that calls may name as the one to compute in.
inline bool IsComputeType(cudnnDataType_t type) {
  return type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_DOUBLE || type == CUDNN_DATA_HALF ||
         type == CUDNN_DATA_BFLOAT16;
}

}  // namespace softgpu::dnn

#endif  // SOFTGPU_DNN_DESCRIPTORS_H_
