// Activations and softmax: descriptors and calls.
#include "softgpu/dnn/descriptors.h"
#include "softgpu/dnn/handle.h"

namespace softgpu::dnn {
namespace {

template <typename Params>
struct ForwardCall {
  Params params;
  Blend blend;
  Operand x, y;
};

// x is absent for softmax.
template <typename Params>
struct BackwardCall {
  Params params;
  Blend blend;
  Operand y, dy, x, dx;
};

void RunActivation(const ForwardCall<ActivationParams>& call, native::Device& device) {
  Memory memory(device);
  const Source x = memory.Read(call.x);
  const Target y = memory.Write(call.y);
  Arena arena;
  if (memory.ok()) ActivationForward(call.params, call.blend, x, y, &arena);
}

void RunActivationBackward(const BackwardCall<ActivationParams>& call, native::Device& device) {
  Memory memory(device);
  const Source y = memory.Read(call.y);
  const Source dy = memory.Read(call.dy);
  const Source x = memory.Read(call.x);
  const Target dx = memory.Write(call.dx);
  Arena arena;
  if (memory.ok()) ActivationBackward(call.params, call.blend, y, dy, x, dx, &arena);
}

void RunSoftmax(const ForwardCall<SoftmaxParams>& call, native::Device& device) {
  Memory memory(device);
  const Source x = memory.Read(call.x);
  const Target y = memory.Write(call.y);
  Arena arena;
  if (memory.ok()) SoftmaxForward(call.params, call.blend, x, y, &arena);
}

void RunSoftmaxBackward(const BackwardCall<SoftmaxParams>& call, native::Device& device) {
  Memory memory(device);
  const Source y = memory.Read(call.y);
  const Source dy = memory.Read(call.dy);
  const Target dx = memory.Write(call.dx);
  Arena arena;
  if (memory.ok()) SoftmaxBackward(call.params, call.blend, y, dy, dx, &arena);
}

// Whether two tensors have the same dimensions and one type that is offered.
cudnnStatus_t CheckPair(const char* function, const Shape& a, const Shape& b) {
  if (!SameDims(a, b))
    return Refuse(CUDNN_STATUS_BAD_PARAM, function, "the same dimensions in all descriptors");
  if (!IsFloating(a.type) || a.type != b.type) {
    return Refuse(CUDNN_STATUS_NOT_SUPPORTED, function, "one floating-point type for all tensors");
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CheckSoftmax(const char* function, const SoftmaxParams& params) {
  const bool known =
      params.algorithm >= CUDNN_SOFTMAX_FAST && params.algorithm <= CUDNN_SOFTMAX_LOG &&
      (params.mode == CUDNN_SOFTMAX_MODE_INSTANCE || params.mode == CUDNN_SOFTMAX_MODE_CHANNEL);
  return known ? CUDNN_STATUS_SUCCESS : Refuse(CUDNN_STATUS_BAD_PARAM, function, "an algorithm and a mode");
}

}  // namespace
}  // namespace softgpu::dnn

using namespace softgpu::dnn;

extern "C" {

cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t* activationDesc) {
  return CreateDescriptor(__func__, activationDesc);
}

cudnnStatus_t cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t activationDesc) {
  return DestroyDescriptor(activationDesc);
}

cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t activationDesc,
                                           cudnnActivationMode_t mode, cudnnNanPropagation_t reluNanOpt,
                                           double coef) {
  DNN_REQUIRE(activationDesc != nullptr);
  DNN_REQUIRE(mode >= CUDNN_ACTIVATION_SIGMOID && mode <= CUDNN_ACTIVATION_SWISH);
  DNN_REQUIRE(IsNanOption(reluNanOpt));
  activationDesc->params.mode = mode;
  activationDesc->params.propagate_nan = reluNanOpt == CUDNN_PROPAGATE_NAN ? 1 : 0;
  activationDesc->params.coefficient = coef;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetActivationDescriptor(const cudnnActivationDescriptor_t activationDesc,
                                           cudnnActivationMode_t* mode, cudnnNanPropagation_t* reluNanOpt,
                                           double* coef) {
  DNN_REQUIRE(activationDesc != nullptr && mode != nullptr && reluNanOpt != nullptr && coef != nullptr);
  *mode = static_cast<cudnnActivationMode_t>(activationDesc->params.mode);
  *reluNanOpt = activationDesc->params.propagate_nan != 0 ? CUDNN_PROPAGATE_NAN : CUDNN_NOT_PROPAGATE_NAN;
  *coef = activationDesc->params.coefficient;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetActivationDescriptorSwishBeta(cudnnActivationDescriptor_t activationDesc,
                                                    double swish_beta) {
  DNN_REQUIRE(activationDesc != nullptr);
  activationDesc->params.swish_beta = swish_beta;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetActivationDescriptorSwishBeta(cudnnActivationDescriptor_t activationDesc,
                                                    double* swish_beta) {
  DNN_REQUIRE(activationDesc != nullptr && swish_beta != nullptr);
  *swish_beta = activationDesc->params.swish_beta;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnActivationForward(cudnnHandle_t handle, cudnnActivationDescriptor_t activationDesc,
                                     const void* alpha, const cudnnTensorDescriptor_t xDesc, const void* x,
                                     const void* beta, const cudnnTensorDescriptor_t yDesc, void* y) {
  DNN_REQUIRE(handle != nullptr && activationDesc != nullptr && alpha != nullptr && beta != nullptr);
  DNN_REQUIRE(xDesc != nullptr && x != nullptr && yDesc != nullptr && y != nullptr);
  DNN_REQUIRE(activationDesc->params.mode != CUDNN_ACTIVATION_IDENTITY);
  DNN_RETURN_IF_ERROR(CheckPair(__func__, xDesc->shape, yDesc->shape));
  const ForwardCall<ActivationParams> call = {activationDesc->params, BlendOf(alpha, beta, yDesc->shape.type),
                                              OperandOf(xDesc->shape, x), OperandOf(yDesc->shape, y)};
  return Launch<&RunActivation>(handle, __func__, call);
}

cudnnStatus_t cudnnActivationBackward(cudnnHandle_t handle, cudnnActivationDescriptor_t activationDesc,
                                      const void* alpha, const cudnnTensorDescriptor_t yDesc, const void* y,
                                      const cudnnTensorDescriptor_t dyDesc, const void* dy,
                                      const cudnnTensorDescriptor_t xDesc, const void* x, const void* beta,
                                      const cudnnTensorDescriptor_t dxDesc, void* dx) {
  DNN_REQUIRE(handle != nullptr && activationDesc != nullptr && alpha != nullptr && beta != nullptr);
  DNN_REQUIRE(yDesc != nullptr && dyDesc != nullptr && xDesc != nullptr && dxDesc != nullptr);
  DNN_REQUIRE(y != nullptr && dy != nullptr && x != nullptr && dx != nullptr);
  DNN_REQUIRE(activationDesc->params.mode != CUDNN_ACTIVATION_IDENTITY);
  DNN_RETURN_IF_ERROR(CheckPair(__func__, xDesc->shape, yDesc->shape));
  DNN_RETURN_IF_ERROR(CheckPair(__func__, xDesc->shape, dyDesc->shape));
  DNN_RETURN_IF_ERROR(CheckPair(__func__, xDesc->shape, dxDesc->shape));
  const BackwardCall<ActivationParams> call = {
      activationDesc->params,     BlendOf(alpha, beta, dxDesc->shape.type),
      OperandOf(yDesc->shape, y), OperandOf(dyDesc->shape, dy),
      OperandOf(xDesc->shape, x), OperandOf(dxDesc->shape, dx)};
  return Launch<&RunActivationBackward>(handle, __func__, call);
}

cudnnStatus_t cudnnSoftmaxForward(cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algo, cudnnSoftmaxMode_t mode,
                                  const void* alpha, const cudnnTensorDescriptor_t xDesc, const void* x,
                                  const void* beta, const cudnnTensorDescriptor_t yDesc, void* y) {
  DNN_REQUIRE(handle != nullptr && alpha != nullptr && beta != nullptr);
  DNN_REQUIRE(xDesc != nullptr && x != nullptr && yDesc != nullptr && y != nullptr);
  const SoftmaxParams params = {algo, mode};
  DNN_RETURN_IF_ERROR(CheckSoftmax(__func__, params));
  DNN_RETURN_IF_ERROR(CheckPair(__func__, xDesc->shape, yDesc->shape));
  const ForwardCall<SoftmaxParams> call = {params, BlendOf(alpha, beta, yDesc->shape.type),
                                           OperandOf(xDesc->shape, x), OperandOf(yDesc->shape, y)};
  return Launch<&RunSoftmax>(handle, __func__, call);
}

cudnnStatus_t cudnnSoftmaxBackward(cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algo,
                                   cudnnSoftmaxMode_t mode, const void* alpha,
                                   const cudnnTensorDescriptor_t yDesc, const void* y,
                                   const cudnnTensorDescriptor_t dyDesc, const void* dy, const void* beta,
                                   const cudnnTensorDescriptor_t dxDesc, void* dx) {
  DNN_REQUIRE(handle != nullptr && alpha != nullptr && beta != nullptr);
  DNN_REQUIRE(yDesc != nullptr && dyDesc != nullptr && dxDesc != nullptr);
  DNN_REQUIRE(y != nullptr && dy != nullptr && dx != nullptr);
  const SoftmaxParams params = {algo, mode};
  DNN_RETURN_IF_ERROR(CheckSoftmax(__func__, params));
  DNN_RETURN_IF_ERROR(CheckPair(__func__, yDesc->shape, dyDesc->shape));
  DNN_RETURN_IF_ERROR(CheckPair(__func__, yDesc->shape, dxDesc->shape));
  const BackwardCall<SoftmaxParams> call = {params,
                                            BlendOf(alpha, beta, dxDesc->shape.type),
                                            OperandOf(yDesc->shape, y),
                                            OperandOf(dyDesc->shape, dy),
                                            {},
                                            OperandOf(dxDesc->shape, dx)};
  return Launch<&RunSoftmaxBackward>(handle, __func__, call);
}

}  // extern "C"
