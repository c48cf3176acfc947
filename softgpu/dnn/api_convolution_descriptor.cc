// Descriptors of convolutions.
#include <algorithm>

#include "softgpu/dnn/algorithms.h"
#include "softgpu/dnn/descriptors.h"

using softgpu::dnn::CreateDescriptor;
using softgpu::dnn::DestroyDescriptor;
using softgpu::dnn::IsComputeType;
using softgpu::dnn::Shape;

namespace {

using Convolution = cudnnConvolutionStruct;

bool IsMode(cudnnConvolutionMode_t mode) {
  return mode == CUDNN_CONVOLUTION || mode == CUDNN_CROSS_CORRELATION;
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* convDesc) {
  return CreateDescriptor(__func__, convDesc);
}

cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convDesc) {
  return DestroyDescriptor(convDesc);
}

cudnnStatus_t cudnnSetConvolutionNdDescriptor(cudnnConvolutionDescriptor_t convDesc, int arrayLength,
                                              const int padA[], const int filterStrideA[],
                                              const int dilationA[], cudnnConvolutionMode_t mode,
                                              cudnnDataType_t computeType) {
  DNN_REQUIRE(convDesc != nullptr && padA != nullptr && filterStrideA != nullptr && dilationA != nullptr);
  DNN_SUPPORT(arrayLength <= Convolution::kMaxLength);
  DNN_REQUIRE(arrayLength >= 0);
  DNN_REQUIRE(IsMode(mode));
  DNN_REQUIRE(IsComputeType(computeType) || computeType == CUDNN_DATA_INT32);
  for (int i = 0; i < arrayLength; ++i) {
    DNN_REQUIRE(padA[i] >= 0 && filterStrideA[i] > 0 && dilationA[i] > 0);
  }
  convDesc->length = arrayLength;
  std::copy_n(padA, arrayLength, convDesc->pad);
  std::copy_n(filterStrideA, arrayLength, convDesc->stride);
  std::copy_n(dilationA, arrayLength, convDesc->dilation);
  convDesc->mode = mode;
  convDesc->compute_type = computeType;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t convDesc, int pad_h, int pad_w,
                                              int u, int v, int dilation_h, int dilation_w,
                                              cudnnConvolutionMode_t mode, cudnnDataType_t computeType) {
  const int pad[] = {pad_h, pad_w};
  const int stride[] = {u, v};
  const int dilation[] = {dilation_h, dilation_w};
  return cudnnSetConvolutionNdDescriptor(convDesc, 2, pad, stride, dilation, mode, computeType);
}

cudnnStatus_t cudnnGetConvolution2dDescriptor(const cudnnConvolutionDescriptor_t convDesc, int* pad_h,
                                              int* pad_w, int* u, int* v, int* dilation_h, int* dilation_w,
                                              cudnnConvolutionMode_t* mode, cudnnDataType_t* computeType) {
  DNN_REQUIRE(convDesc != nullptr && mode != nullptr && computeType != nullptr);
  DNN_REQUIRE(pad_h != nullptr && pad_w != nullptr && u != nullptr && v != nullptr);
  DNN_REQUIRE(dilation_h != nullptr && dilation_w != nullptr);
  *pad_h = convDesc->pad[0];
  *pad_w = convDesc->pad[1];
  *u = convDesc->stride[0];
  *v = convDesc->stride[1];
  *dilation_h = convDesc->dilation[0];
  *dilation_w = convDesc->dilation[1];
  *mode = convDesc->mode;
  *computeType = convDesc->compute_type;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionNdDescriptor(const cudnnConvolutionDescriptor_t convDesc,
                                              int arrayLengthRequested, int* arrayLength, int padA[],
                                              int strideA[], int dilationA[], cudnnConvolutionMode_t* mode,
                                              cudnnDataType_t* computeType) {
  DNN_REQUIRE(convDesc != nullptr && arrayLength != nullptr && mode != nullptr && computeType != nullptr);
  DNN_REQUIRE(arrayLengthRequested >= 0);
  DNN_SUPPORT(arrayLengthRequested <= Convolution::kMaxLength);
  const int count = std::min(arrayLengthRequested, convDesc->length);
  DNN_REQUIRE(count == 0 || (padA != nullptr && strideA != nullptr && dilationA != nullptr));
  *arrayLength = convDesc->length;
  std::copy_n(convDesc->pad, count, padA);
  std::copy_n(convDesc->stride, count, strideA);
  std::copy_n(convDesc->dilation, count, dilationA);
  *mode = convDesc->mode;
  *computeType = convDesc->compute_type;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convDesc, cudnnMathType_t mathType) {
  DNN_REQUIRE(convDesc != nullptr);
  DNN_REQUIRE(mathType >= CUDNN_DEFAULT_MATH && mathType <= CUDNN_FMA_MATH);
  convDesc->math_type = mathType;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionMathType(cudnnConvolutionDescriptor_t convDesc, cudnnMathType_t* mathType) {
  DNN_REQUIRE(convDesc != nullptr && mathType != nullptr);
  *mathType = convDesc->math_type;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t convDesc, int groupCount) {
  DNN_REQUIRE(convDesc != nullptr);
  DNN_REQUIRE(groupCount > 0);
  convDesc->groups = groupCount;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionGroupCount(cudnnConvolutionDescriptor_t convDesc, int* groupCount) {
  DNN_REQUIRE(convDesc != nullptr && groupCount != nullptr);
  *groupCount = convDesc->groups;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionReorderType(cudnnConvolutionDescriptor_t convDesc,
                                             cudnnReorderType_t reorderType) {
  DNN_REQUIRE(convDesc != nullptr);
  DNN_REQUIRE(reorderType == CUDNN_DEFAULT_REORDER || reorderType == CUDNN_NO_REORDER);
  convDesc->reorder = reorderType;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionReorderType(cudnnConvolutionDescriptor_t convDesc,
                                             cudnnReorderType_t* reorderType) {
  DNN_REQUIRE(convDesc != nullptr && reorderType != nullptr);
  *reorderType = convDesc->reorder;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionNdForwardOutputDim(const cudnnConvolutionDescriptor_t convDesc,
                                                    const cudnnTensorDescriptor_t inputTensorDesc,
                                                    const cudnnFilterDescriptor_t filterDesc, int nbDims,
                                                    int tensorOuputDimA[]) {
  DNN_REQUIRE(convDesc != nullptr && inputTensorDesc != nullptr && filterDesc != nullptr);
  DNN_REQUIRE(tensorOuputDimA != nullptr);
  DNN_REQUIRE(nbDims == inputTensorDesc->shape.rank);
  DNN_SUPPORT(convDesc->length <= softgpu::dnn::kMaxSpace);
  Shape out;
  DNN_REQUIRE(softgpu::dnn::ForwardShape(softgpu::dnn::ParamsOf(*convDesc), inputTensorDesc->shape,
                                         filterDesc->shape, &out));
  std::copy_n(out.dim, nbDims, tensorOuputDimA);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolution2dForwardOutputDim(const cudnnConvolutionDescriptor_t convDesc,
                                                    const cudnnTensorDescriptor_t inputTensorDesc,
                                                    const cudnnFilterDescriptor_t filterDesc, int* n, int* c,
                                                    int* h, int* w) {
  int* const dims[] = {n, c, h, w};
  for (int* dim : dims) DNN_REQUIRE(dim != nullptr);
  int out[4];
  DNN_RETURN_IF_ERROR(cudnnGetConvolutionNdForwardOutputDim(convDesc, inputTensorDesc, filterDesc, 4, out));
  for (int i = 0; i < 4; ++i) *dims[i] = out[i];
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
