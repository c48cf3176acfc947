// Pooling: descriptors and calls.
#include <algorithm>

#include "softgpu/dnn/descriptors.h"
#include "softgpu/dnn/handle.h"

namespace softgpu::dnn {
namespace {

PoolingParams ParamsOf(const cudnnPoolingStruct& pooling) {
  PoolingParams params;
  params.mode = pooling.mode;
  params.propagate_nan = pooling.nan == CUDNN_PROPAGATE_NAN ? 1 : 0;
  params.space = pooling.length;
  const int count = std::min(pooling.length, kMaxPoolingSpace);
  std::copy_n(pooling.window, count, params.window);
  std::copy_n(pooling.pad, count, params.pad);
  std::copy_n(pooling.stride, count, params.stride);
  return params;
}

struct ForwardCall {
  PoolingParams params;
  Blend blend;
  Operand x, y;
};

void RunForward(const ForwardCall& call, native::Device& device) {
  Memory memory(device);
  const Source x = memory.Read(call.x);
  const Target y = memory.Write(call.y);
  Arena arena;
  if (memory.ok()) PoolingForward(call.params, call.blend, x, y, &arena);
}

struct BackwardCall {
  PoolingParams params;
  Blend blend;
  Operand dy, x, dx;
};

void RunBackward(const BackwardCall& call, native::Device& device) {
  Memory memory(device);
  const Source dy = memory.Read(call.dy);
  const Source x = memory.Read(call.x);
  const Target dx = memory.Write(call.dx);
  Arena arena;
  if (memory.ok()) PoolingBackward(call.params, call.blend, dy, x, dx, &arena);
}

// Whether `y` is what pooling `x` gives, and both have a type that is offered.
cudnnStatus_t CheckPooling(const char* function, const cudnnPoolingStruct& pooling, const Shape& x,
                           const Shape& y) {
  if (pooling.length < 2 || pooling.length > kMaxPoolingSpace) {
    return Refuse(CUDNN_STATUS_NOT_SUPPORTED, function, "two or three dimensions of space");
  }
  Shape expected;
  if (!PooledShape(ParamsOf(pooling), x, &expected) || !SameDims(expected, y)) {
    return Refuse(CUDNN_STATUS_BAD_PARAM, function, "sizes that fit together");
  }
  if (!IsFloating(x.type) || x.type != y.type) {
    return Refuse(CUDNN_STATUS_NOT_SUPPORTED, function, "one floating-point type for all tensors");
  }
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace
}  // namespace softgpu::dnn

using namespace softgpu::dnn;

extern "C" {

cudnnStatus_t cudnnCreatePoolingDescriptor(cudnnPoolingDescriptor_t* poolingDesc) {
  return CreateDescriptor(__func__, poolingDesc);
}

cudnnStatus_t cudnnDestroyPoolingDescriptor(cudnnPoolingDescriptor_t poolingDesc) {
  return DestroyDescriptor(poolingDesc);
}

cudnnStatus_t cudnnSetPoolingNdDescriptor(cudnnPoolingDescriptor_t poolingDesc, const cudnnPoolingMode_t mode,
                                          const cudnnNanPropagation_t maxpoolingNanOpt, int nbDims,
                                          const int windowDimA[], const int paddingA[], const int strideA[]) {
  DNN_REQUIRE(poolingDesc != nullptr && windowDimA != nullptr && paddingA != nullptr && strideA != nullptr);
  DNN_REQUIRE(mode >= CUDNN_POOLING_MAX && mode <= CUDNN_POOLING_MAX_DETERMINISTIC);
  DNN_REQUIRE(IsNanOption(maxpoolingNanOpt));
  DNN_REQUIRE(nbDims > 0);
  DNN_SUPPORT(nbDims <= cudnnPoolingStruct::kMaxLength);
  for (int i = 0; i < nbDims; ++i) DNN_REQUIRE(windowDimA[i] > 0 && strideA[i] > 0);
  poolingDesc->mode = mode;
  poolingDesc->nan = maxpoolingNanOpt;
  poolingDesc->length = nbDims;
  std::copy_n(windowDimA, nbDims, poolingDesc->window);
  std::copy_n(paddingA, nbDims, poolingDesc->pad);
  std::copy_n(strideA, nbDims, poolingDesc->stride);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetPooling2dDescriptor(cudnnPoolingDescriptor_t poolingDesc, cudnnPoolingMode_t mode,
                                          cudnnNanPropagation_t maxpoolingNanOpt, int windowHeight,
                                          int windowWidth, int verticalPadding, int horizontalPadding,
                                          int verticalStride, int horizontalStride) {
  const int window[] = {windowHeight, windowWidth};
  const int pad[] = {verticalPadding, horizontalPadding};
  const int stride[] = {verticalStride, horizontalStride};
  return cudnnSetPoolingNdDescriptor(poolingDesc, mode, maxpoolingNanOpt, 2, window, pad, stride);
}

cudnnStatus_t cudnnGetPooling2dDescriptor(const cudnnPoolingDescriptor_t poolingDesc,
                                          cudnnPoolingMode_t* mode, cudnnNanPropagation_t* maxpoolingNanOpt,
                                          int* windowHeight, int* windowWidth, int* verticalPadding,
                                          int* horizontalPadding, int* verticalStride,
                                          int* horizontalStride) {
  DNN_REQUIRE(poolingDesc != nullptr && mode != nullptr && maxpoolingNanOpt != nullptr);
  int* const places[] = {windowHeight,      windowWidth,    verticalPadding,
                         horizontalPadding, verticalStride, horizontalStride};
  for (int* place : places) DNN_REQUIRE(place != nullptr);
  *mode = poolingDesc->mode;
  *maxpoolingNanOpt = poolingDesc->nan;
  for (int i = 0; i < 2; ++i) {
    *places[i] = poolingDesc->window[i];
    *places[2 + i] = poolingDesc->pad[i];
    *places[4 + i] = poolingDesc->stride[i];
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetPoolingNdDescriptor(const cudnnPoolingDescriptor_t poolingDesc, int nbDimsRequested,
                                          cudnnPoolingMode_t* mode, cudnnNanPropagation_t* maxpoolingNanOpt,
                                          int* nbDims, int windowDimA[], int paddingA[], int strideA[]) {
  DNN_REQUIRE(poolingDesc != nullptr && mode != nullptr && maxpoolingNanOpt != nullptr && nbDims != nullptr);
  const int count = std::clamp(nbDimsRequested, 0, poolingDesc->length);
  DNN_REQUIRE(count == 0 || (windowDimA != nullptr && paddingA != nullptr && strideA != nullptr));
  *mode = poolingDesc->mode;
  *maxpoolingNanOpt = poolingDesc->nan;
  *nbDims = poolingDesc->length;
  std::copy_n(poolingDesc->window, count, windowDimA);
  std::copy_n(poolingDesc->pad, count, paddingA);
  std::copy_n(poolingDesc->stride, count, strideA);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetPoolingNdForwardOutputDim(const cudnnPoolingDescriptor_t poolingDesc,
                                                const cudnnTensorDescriptor_t inputTensorDesc, int nbDims,
                                                int outputTensorDimA[]) {
  DNN_REQUIRE(poolingDesc != nullptr && inputTensorDesc != nullptr && outputTensorDimA != nullptr);
  DNN_SUPPORT(poolingDesc->length <= kMaxPoolingSpace);
  DNN_REQUIRE(nbDims == inputTensorDesc->shape.rank);
  Shape out;
  DNN_REQUIRE(PooledShape(ParamsOf(*poolingDesc), inputTensorDesc->shape, &out));
  std::copy_n(out.dim, nbDims, outputTensorDimA);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetPooling2dForwardOutputDim(const cudnnPoolingDescriptor_t poolingDesc,
                                                const cudnnTensorDescriptor_t inputTensorDesc, int* n, int* c,
                                                int* h, int* w) {
  int* const dims[] = {n, c, h, w};
  for (int* dim : dims) DNN_REQUIRE(dim != nullptr);
  int out[4];
  DNN_RETURN_IF_ERROR(cudnnGetPoolingNdForwardOutputDim(poolingDesc, inputTensorDesc, 4, out));
  for (int i = 0; i < 4; ++i) *dims[i] = out[i];
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnPoolingForward(cudnnHandle_t handle, const cudnnPoolingDescriptor_t poolingDesc,
                                  const void* alpha, const cudnnTensorDescriptor_t xDesc, const void* x,
                                  const void* beta, const cudnnTensorDescriptor_t yDesc, void* y) {
  DNN_REQUIRE(handle != nullptr && poolingDesc != nullptr && alpha != nullptr && beta != nullptr);
  DNN_REQUIRE(xDesc != nullptr && x != nullptr && yDesc != nullptr && y != nullptr);
  DNN_RETURN_IF_ERROR(CheckPooling(__func__, *poolingDesc, xDesc->shape, yDesc->shape));
  const ForwardCall call = {ParamsOf(*poolingDesc), BlendOf(alpha, beta, yDesc->shape.type),
                            OperandOf(xDesc->shape, x), OperandOf(yDesc->shape, y)};
  return Launch<&RunForward>(handle, __func__, call);
}

cudnnStatus_t cudnnPoolingBackward(cudnnHandle_t handle, const cudnnPoolingDescriptor_t poolingDesc,
                                   const void* alpha, const cudnnTensorDescriptor_t yDesc, const void* y,
                                   const cudnnTensorDescriptor_t dyDesc, const void* dy,
                                   const cudnnTensorDescriptor_t xDesc, const void* x, const void* beta,
                                   const cudnnTensorDescriptor_t dxDesc, void* dx) {
  DNN_REQUIRE(handle != nullptr && poolingDesc != nullptr && alpha != nullptr && beta != nullptr);
  DNN_REQUIRE(yDesc != nullptr && dyDesc != nullptr && xDesc != nullptr && dxDesc != nullptr);
  DNN_REQUIRE(y != nullptr && dy != nullptr && x != nullptr && dx != nullptr);
  DNN_RETURN_IF_ERROR(CheckPooling(__func__, *poolingDesc, xDesc->shape, yDesc->shape));
  DNN_REQUIRE(SameDims(yDesc->shape, dyDesc->shape) && SameDims(xDesc->shape, dxDesc->shape));
  DNN_SUPPORT(dyDesc->shape.type == yDesc->shape.type && dxDesc->shape.type == xDesc->shape.type);
  const BackwardCall call = {ParamsOf(*poolingDesc), BlendOf(alpha, beta, dxDesc->shape.type),
                             OperandOf(dyDesc->shape, dy), OperandOf(xDesc->shape, x),
                             OperandOf(dxDesc->shape, dx)};
  return Launch<&RunBackward>(handle, __func__, call);
}

}  // extern "C"
