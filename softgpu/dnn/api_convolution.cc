// Descriptors of convolutions, and the convolutions.
#include <algorithm>

#include "softgpu/dnn/algorithms.h"
#include "softgpu/dnn/descriptors.h"
#include "softgpu/dnn/handle.h"

namespace softgpu::dnn {
namespace {

// One convolution of any direction as kernel argument: data, filter and output, one of which is written.
struct ConvolutionCall {
  ConvolutionParams params;
  Blend blend;
  Operand x, w, y;
  Workspace workspace;
};

void RunForward(const ConvolutionCall& call, native::Device& device) {
  Memory memory(device);
  const Source x = memory.Read(call.x);
  const Source w = memory.Read(call.w);
  const Target y = memory.Write(call.y);
  Scratch scratch(call.workspace, &memory);
  if (memory.ok()) ConvolutionForward(call.params, call.blend, x, w, y, scratch.arena());
}

void RunBackwardData(const ConvolutionCall& call, native::Device& device) {
  Memory memory(device);
  const Source w = memory.Read(call.w);
  const Source dy = memory.Read(call.y);
  const Target dx = memory.Write(call.x);
  Scratch scratch(call.workspace, &memory);
  if (memory.ok()) ConvolutionBackwardData(call.params, call.blend, w, dy, dx, scratch.arena());
}

void RunBackwardFilter(const ConvolutionCall& call, native::Device& device) {
  Memory memory(device);
  const Source x = memory.Read(call.x);
  const Source dy = memory.Read(call.y);
  const Target dw = memory.Write(call.w);
  Scratch scratch(call.workspace, &memory);
  if (memory.ok()) ConvolutionBackwardFilter(call.params, call.blend, x, dy, dw, scratch.arena());
}

struct BiasCall {
  Blend blend;
  Operand dy, db;
};

void RunBackwardBias(const BiasCall& call, native::Device& device) {
  Memory memory(device);
  const Source dy = memory.Read(call.dy);
  const Target db = memory.Write(call.db);
  Arena arena;
  if (memory.ok()) ConvolutionBackwardBias(call.blend, dy, db, &arena);
}

// y = activation(alpha1 * convolution + alpha2 * z + bias)
struct FusedCall {
  ConvolutionCall convolution;  // its blend is alpha1 and alpha2
  ActivationParams activation;
  Operand z, bias;
};

void RunFused(const FusedCall& call, native::Device& device) {
  Memory memory(device);
  const ConvolutionCall& convolution = call.convolution;
  const Source x = memory.Read(convolution.x);
  const Source w = memory.Read(convolution.w);
  const Source z = memory.Read(call.z);
  const Source bias = memory.Read(call.bias);
  const Target y = memory.Write(convolution.y);
  Scratch scratch(convolution.workspace, &memory);
  if (!memory.ok()) return;
  ConvolutionFused(convolution.params, convolution.blend, call.activation, x, w, z, bias, y, scratch.arena());
}

// Everything that all directions ask of their tensors; fills in the call but for its blend.
cudnnStatus_t PrepareTensors(const char* function, const cudnnConvolutionStruct& conv, const Operand& x,
                             const Operand& w, const Operand& y, ConvolutionCall* call) {
  DNN_RETURN_IF_ERROR(CheckConvolution(function, conv, x.shape, w.shape, y.shape));
  if (x.address == 0 || w.address == 0 || y.address == 0) {
    return Refuse(CUDNN_STATUS_BAD_PARAM, function, "all of the tensors' data");
  }
  call->params = ParamsOf(conv);
  call->x = x;
  call->w = w;
  call->y = y;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t PrepareWorkspace(const char* function, cudnnHandle_t handle, const Algorithms& algorithms,
                               int algo, const void* workspace, size_t bytes, ConvolutionCall* call) {
  size_t needed = 0;
  DNN_RETURN_IF_ERROR(
      WorkspaceBytes(function, algorithms, algo, call->params, call->x.shape, call->w.shape, &needed));
  if (needed > 0 && (workspace == nullptr || bytes < needed)) {
    return Refuse(CUDNN_STATUS_BAD_PARAM, function, "a workspace of the size that the algorithm needs");
  }
  call->workspace = WorkspaceOf(handle, workspace, bytes);
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

ConvolutionParams ParamsOf(const cudnnConvolutionStruct& conv) {
  ConvolutionParams params;
  params.space = conv.length;
  for (int i = 0; i < std::min(conv.length, kMaxSpace); ++i) {
    params.pad[i] = conv.pad[i];
    params.stride[i] = conv.stride[i];
    params.dilation[i] = conv.dilation[i];
  }
  params.groups = conv.groups;
  params.mirrored = conv.mode == CUDNN_CONVOLUTION ? 1 : 0;
  return params;
}

cudnnStatus_t CheckConvolution(const char* function, const cudnnConvolutionStruct& conv, const Shape& x,
                               const Shape& w, const Shape& y) {
  if (x.rank != w.rank || x.rank != y.rank || x.rank != conv.length + 2) {
    return Refuse(CUDNN_STATUS_BAD_PARAM, function, "the same number of dimensions in all descriptors");
  }
  if (conv.length < 2 || conv.length > kMaxSpace) {
    return Refuse(CUDNN_STATUS_NOT_SUPPORTED, function, "two or three dimensions of space");
  }
  if (!IsFloating(x.type) || x.type != w.type || x.type != y.type) {
    return Refuse(CUDNN_STATUS_NOT_SUPPORTED, function, "one floating-point type for all tensors");
  }
  if ((x.type == CUDNN_DATA_DOUBLE) != (conv.compute_type == CUDNN_DATA_DOUBLE)) {
    return Refuse(CUDNN_STATUS_NOT_SUPPORTED, function, "a type to compute in that goes with the tensors'");
  }
  Shape expected;
  if (!ForwardShape(ParamsOf(conv), x, w, &expected) || !SameDims(expected, y)) {
    return Refuse(CUDNN_STATUS_BAD_PARAM, function, "sizes that fit together");
  }
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace softgpu::dnn

using namespace softgpu::dnn;

extern "C" {

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha,
                                      const cudnnTensorDescriptor_t xDesc, const void* x,
                                      const cudnnFilterDescriptor_t wDesc, const void* w,
                                      const cudnnConvolutionDescriptor_t convDesc,
                                      cudnnConvolutionFwdAlgo_t algo, void* workSpace,
                                      size_t workSpaceSizeInBytes, const void* beta,
                                      const cudnnTensorDescriptor_t yDesc, void* y) {
  DNN_REQUIRE(handle != nullptr && alpha != nullptr && beta != nullptr);
  DNN_REQUIRE(xDesc != nullptr && wDesc != nullptr && convDesc != nullptr && yDesc != nullptr);
  ConvolutionCall call;
  DNN_RETURN_IF_ERROR(PrepareTensors(__func__, *convDesc, OperandOf(xDesc->shape, x),
                                     OperandOf(wDesc->shape, w), OperandOf(yDesc->shape, y), &call));
  DNN_RETURN_IF_ERROR(
      PrepareWorkspace(__func__, handle, kForwardAlgorithms, algo, workSpace, workSpaceSizeInBytes, &call));
  call.blend = BlendOf(alpha, beta, yDesc->shape.type);
  return Launch<&RunForward>(handle, __func__, call);
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void* alpha,
                                           const cudnnFilterDescriptor_t wDesc, const void* w,
                                           const cudnnTensorDescriptor_t dyDesc, const void* dy,
                                           const cudnnConvolutionDescriptor_t convDesc,
                                           cudnnConvolutionBwdDataAlgo_t algo, void* workSpace,
                                           size_t workSpaceSizeInBytes, const void* beta,
                                           const cudnnTensorDescriptor_t dxDesc, void* dx) {
  DNN_REQUIRE(handle != nullptr && alpha != nullptr && beta != nullptr);
  DNN_REQUIRE(wDesc != nullptr && dyDesc != nullptr && convDesc != nullptr && dxDesc != nullptr);
  ConvolutionCall call;
  DNN_RETURN_IF_ERROR(PrepareTensors(__func__, *convDesc, OperandOf(dxDesc->shape, dx),
                                     OperandOf(wDesc->shape, w), OperandOf(dyDesc->shape, dy), &call));
  DNN_RETURN_IF_ERROR(PrepareWorkspace(__func__, handle, kBackwardDataAlgorithms, algo, workSpace,
                                       workSpaceSizeInBytes, &call));
  call.blend = BlendOf(alpha, beta, dxDesc->shape.type);
  return Launch<&RunBackwardData>(handle, __func__, call);
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void* alpha,
                                             const cudnnTensorDescriptor_t xDesc, const void* x,
                                             const cudnnTensorDescriptor_t dyDesc, const void* dy,
                                             const cudnnConvolutionDescriptor_t convDesc,
                                             cudnnConvolutionBwdFilterAlgo_t algo, void* workSpace,
                                             size_t workSpaceSizeInBytes, const void* beta,
                                             const cudnnFilterDescriptor_t dwDesc, void* dw) {
  DNN_REQUIRE(handle != nullptr && alpha != nullptr && beta != nullptr);
  DNN_REQUIRE(xDesc != nullptr && dyDesc != nullptr && convDesc != nullptr && dwDesc != nullptr);
  ConvolutionCall call;
  DNN_RETURN_IF_ERROR(PrepareTensors(__func__, *convDesc, OperandOf(xDesc->shape, x),
                                     OperandOf(dwDesc->shape, dw), OperandOf(dyDesc->shape, dy), &call));
  DNN_RETURN_IF_ERROR(PrepareWorkspace(__func__, handle, kBackwardFilterAlgorithms, algo, workSpace,
                                       workSpaceSizeInBytes, &call));
  call.blend = BlendOf(alpha, beta, dwDesc->shape.type);
  return Launch<&RunBackwardFilter>(handle, __func__, call);
}

cudnnStatus_t cudnnConvolutionBackwardBias(cudnnHandle_t handle, const void* alpha,
                                           const cudnnTensorDescriptor_t dyDesc, const void* dy,
                                           const void* beta, const cudnnTensorDescriptor_t dbDesc, void* db) {
  DNN_REQUIRE(handle != nullptr && alpha != nullptr && beta != nullptr);
  DNN_REQUIRE(dyDesc != nullptr && dy != nullptr && dbDesc != nullptr && db != nullptr);
  const Shape& slope = dyDesc->shape;
  const Shape& bias = dbDesc->shape;
  DNN_SUPPORT(IsFloating(slope.type) && slope.type == bias.type);
  DNN_REQUIRE(slope.rank >= 3 && bias.rank == slope.rank);
  DNN_REQUIRE(bias.dim[1] == slope.dim[1] && bias.Count() == static_cast<size_t>(bias.dim[1]));
  const BiasCall call = {BlendOf(alpha, beta, slope.type), OperandOf(slope, dy), OperandOf(bias, db)};
  return Launch<&RunBackwardBias>(handle, __func__, call);
}

cudnnStatus_t cudnnConvolutionBiasActivationForward(
    cudnnHandle_t handle, const void* alpha1, const cudnnTensorDescriptor_t xDesc, const void* x,
    const cudnnFilterDescriptor_t wDesc, const void* w, const cudnnConvolutionDescriptor_t convDesc,
    cudnnConvolutionFwdAlgo_t algo, void* workSpace, size_t workSpaceSizeInBytes, const void* alpha2,
    const cudnnTensorDescriptor_t zDesc, const void* z, const cudnnTensorDescriptor_t biasDesc,
    const void* bias, const cudnnActivationDescriptor_t activationDesc, const cudnnTensorDescriptor_t yDesc,
    void* y) {
  DNN_REQUIRE(handle != nullptr && alpha1 != nullptr && alpha2 != nullptr);
  DNN_REQUIRE(xDesc != nullptr && wDesc != nullptr && convDesc != nullptr && yDesc != nullptr);
  DNN_REQUIRE(zDesc != nullptr && biasDesc != nullptr && activationDesc != nullptr && bias != nullptr);
  FusedCall call;
  DNN_RETURN_IF_ERROR(PrepareTensors(__func__, *convDesc, OperandOf(xDesc->shape, x),
                                     OperandOf(wDesc->shape, w), OperandOf(yDesc->shape, y),
                                     &call.convolution));
  const int mode = activationDesc->params.mode;
  DNN_SUPPORT(mode == CUDNN_ACTIVATION_RELU || mode == CUDNN_ACTIVATION_IDENTITY);
  DNN_SUPPORT(mode == CUDNN_ACTIVATION_RELU || algo == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM);
  DNN_REQUIRE(SameDims(zDesc->shape, yDesc->shape));
  DNN_REQUIRE(biasDesc->shape.Count() == static_cast<size_t>(yDesc->shape.dim[1]));
  DNN_SUPPORT(IsFloating(zDesc->shape.type) && IsFloating(biasDesc->shape.type));
  DNN_RETURN_IF_ERROR(PrepareWorkspace(__func__, handle, kForwardAlgorithms, algo, workSpace,
                                       workSpaceSizeInBytes, &call.convolution));
  call.convolution.blend = BlendOf(alpha1, alpha2, yDesc->shape.type);
  DNN_REQUIRE(z != nullptr || call.convolution.blend.beta == 0);
  call.activation = activationDesc->params;
  call.z = OperandOf(zDesc->shape, call.convolution.blend.beta == 0 ? nullptr : z);
  call.bias = OperandOf(biasDesc->shape, bias);
  return Launch<&RunFused>(handle, __func__, call);
}

}  // extern "C"
