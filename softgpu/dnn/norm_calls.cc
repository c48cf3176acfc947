#include "softgpu/dnn/norm_calls.h"

namespace softgpu::dnn {
namespace {

// Kernel arguments. Scale, bias and the statistics share one shape; address 0: absent.
struct ForwardCall {
  BatchNormParams params;
  Blend blend;
  Operand x, z, y;
  Shape param;
  uint64_t scale, bias;
  uint64_t running_mean, running_variance;
  uint64_t saved_mean, saved_inverse;
  uint64_t mask;
};

struct BackwardCall {
  BatchNormParams params;
  Blend data_blend, param_blend;
  Operand x, dy, dz, dx;
  Shape param;
  uint64_t scale, dscale, dbias;
  uint64_t saved_mean, saved_inverse;
  uint64_t mask;
  Workspace workspace;
};

uint64_t AddressOf(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

BatchNormForward ForwardOf(const ForwardCall& call, Memory* memory) {
  BatchNormForward norm;
  norm.params = call.params;
  norm.blend = call.blend;
  norm.x = memory->Read(call.x);
  norm.z = memory->Read(call.z);
  norm.scale = memory->Read({call.param, call.scale});
  norm.bias = memory->Read({call.param, call.bias});
  norm.y = memory->Write(call.y);
  return norm;
}

void RunTraining(const ForwardCall& call, native::Device& device) {
  Memory memory(device);
  BatchNormForward norm = ForwardOf(call, &memory);
  norm.running_mean = memory.Write({call.param, call.running_mean});
  norm.running_variance = memory.Write({call.param, call.running_variance});
  norm.saved_mean = memory.Write({call.param, call.saved_mean});
  norm.saved_inverse = memory.Write({call.param, call.saved_inverse});
  norm.mask = memory.Write<uint8_t>(call.mask, MaskBytes(call.x.shape));
  Arena arena;
  if (memory.ok()) ForwardTraining(norm, &arena);
}

void RunInference(const ForwardCall& call, native::Device& device) {
  Memory memory(device);
  const BatchNormForward norm = ForwardOf(call, &memory);
  const Source mean = memory.Read({call.param, call.running_mean});
  const Source variance = memory.Read({call.param, call.running_variance});
  Arena arena;
  if (memory.ok()) ForwardInference(norm, mean, variance, &arena);
}

void RunBackward(const BackwardCall& call, native::Device& device) {
  Memory memory(device);
  BatchNormBackward norm;
  norm.params = call.params;
  norm.data_blend = call.data_blend;
  norm.param_blend = call.param_blend;
  norm.x = memory.Read(call.x);
  norm.dy = memory.Read(call.dy);
  norm.scale = memory.Read({call.param, call.scale});
  norm.saved_mean = memory.Read({call.param, call.saved_mean});
  norm.saved_inverse = memory.Read({call.param, call.saved_inverse});
  norm.dx = memory.Write(call.dx);
  norm.dz = memory.Write(call.dz);
  norm.dscale = memory.Write({call.param, call.dscale});
  norm.dbias = memory.Write({call.param, call.dbias});
  norm.mask = memory.Write<uint8_t>(call.mask, MaskBytes(call.x.shape));
  Scratch scratch(call.workspace, &memory);
  if (memory.ok()) Backward(norm, scratch.arena());
}

// Whether a tensor of data goes with x.
bool Goes(const Shape& data, const Shape& x) { return SameDims(data, x) && data.type == x.type; }

// What all functions ask of x, the parameters and how they are normalised.
cudnnStatus_t CheckNorm(const char* function, const NormKind& kind, cudnnTensorDescriptor_t x_desc,
                        cudnnTensorDescriptor_t param_desc, double epsilon) {
  if (!kind.known) return Refuse(CUDNN_STATUS_BAD_PARAM, function, "a mode and an operation");
  if (x_desc == nullptr || param_desc == nullptr) {
    return Refuse(CUDNN_STATUS_BAD_PARAM, function, "descriptors of the data and the parameters");
  }
  const Shape& x = x_desc->shape;
  const Shape& param = param_desc->shape;
  if (x.rank < 4 || x.rank > 5)
    return Refuse(CUDNN_STATUS_NOT_SUPPORTED, function, "four or five dimensions");
  if (!IsFloating(x.type))
    return Refuse(CUDNN_STATUS_NOT_SUPPORTED, function, "data of a floating-point type");
  const Shape expected = NormShape(kind.per_channel, x);
  if (!SameDims(param, expected))
    return Refuse(CUDNN_STATUS_BAD_PARAM, function, "the derived parameters' shape");
  if (param.type != expected.type)
    return Refuse(CUDNN_STATUS_NOT_SUPPORTED, function, "the derived parameters' type");
  if (!(epsilon >= CUDNN_BN_MIN_EPSILON))
    return Refuse(CUDNN_STATUS_BAD_PARAM, function, "an epsilon from 0 on");
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CheckActivation(const char* function, const NormKind& kind,
                              cudnnActivationDescriptor_t activation, BatchNormParams* params) {
  params->per_channel = kind.per_channel ? 1 : 0;
  params->activates = kind.activates ? 1 : 0;
  if (!kind.activates) return CUDNN_STATUS_SUCCESS;
  if (activation == nullptr) return Refuse(CUDNN_STATUS_BAD_PARAM, function, "an activation");
  const int mode = activation->params.mode;
  if (mode != CUDNN_ACTIVATION_RELU && mode != CUDNN_ACTIVATION_IDENTITY) {
    return Refuse(CUDNN_STATUS_NOT_SUPPORTED, function, "ReLU or identity");
  }
  params->activation = activation->params;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t Prepare(const char* function, const NormForwardArguments& a, ForwardCall* call) {
  DNN_RETURN_IF_ERROR(CheckNorm(function, a.kind, a.x_desc, a.param_desc, a.epsilon));
  DNN_RETURN_IF_ERROR(CheckActivation(function, a.kind, a.activation, &call->params));
  const bool all = a.handle != nullptr && a.alpha != nullptr && a.beta != nullptr && a.x != nullptr &&
                   a.y_desc != nullptr && a.y != nullptr && a.scale != nullptr && a.bias != nullptr;
  if (!all) return Refuse(CUDNN_STATUS_BAD_PARAM, function, "all of the pointers");
  if (!Goes(a.y_desc->shape, a.x_desc->shape)) return Refuse(CUDNN_STATUS_BAD_PARAM, function, "y like x");
  if (a.kind.adds) {
    if (a.z_desc == nullptr || a.z == nullptr || !Goes(a.z_desc->shape, a.x_desc->shape)) {
      return Refuse(CUDNN_STATUS_BAD_PARAM, function, "z like x");
    }
    call->z = OperandOf(a.z_desc->shape, a.z);
  }
  call->params.epsilon = a.epsilon;
  call->params.factor = a.factor;
  call->blend = BlendOf(a.alpha, a.beta, a.x_desc->shape.type);
  call->x = OperandOf(a.x_desc->shape, a.x);
  call->y = OperandOf(a.y_desc->shape, a.y);
  call->param = a.param_desc->shape;
  call->scale = AddressOf(a.scale);
  call->bias = AddressOf(a.bias);
  call->running_mean = AddressOf(a.running_mean);
  call->running_variance = AddressOf(a.running_variance);
  call->saved_mean = AddressOf(a.saved_mean);
  call->saved_inverse = AddressOf(a.saved_inverse);
  return CUDNN_STATUS_SUCCESS;
}

bool BothOrNone(const void* a, const void* b) { return (a == nullptr) == (b == nullptr); }

}  // namespace

NormKind KindOf(cudnnBatchNormMode_t mode, cudnnBatchNormOps_t ops) {
  NormKind kind;
  kind.known = mode >= CUDNN_BATCHNORM_PER_ACTIVATION && mode <= CUDNN_BATCHNORM_SPATIAL_PERSISTENT &&
               ops >= CUDNN_BATCHNORM_OPS_BN && ops <= CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION;
  kind.per_channel = mode != CUDNN_BATCHNORM_PER_ACTIVATION;
  kind.activates = ops != CUDNN_BATCHNORM_OPS_BN;
  kind.adds = ops == CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION;
  return kind;
}

NormKind KindOf(cudnnNormMode_t mode, cudnnNormOps_t ops) {
  NormKind kind;
  kind.known = mode >= CUDNN_NORM_PER_ACTIVATION && mode <= CUDNN_NORM_PER_CHANNEL &&
               ops >= CUDNN_NORM_OPS_NORM && ops <= CUDNN_NORM_OPS_NORM_ADD_ACTIVATION;
  kind.per_channel = mode == CUDNN_NORM_PER_CHANNEL;
  kind.activates = ops != CUDNN_NORM_OPS_NORM;
  kind.adds = ops == CUDNN_NORM_OPS_NORM_ADD_ACTIVATION;
  return kind;
}

cudnnStatus_t LaunchForwardTraining(const char* function, const NormForwardArguments& a) {
  ForwardCall call{};
  DNN_RETURN_IF_ERROR(Prepare(function, a, &call));
  if (!BothOrNone(a.running_mean, a.running_variance) || !BothOrNone(a.saved_mean, a.saved_inverse)) {
    return Refuse(CUDNN_STATUS_BAD_PARAM, function, "means together with variances");
  }
  if (a.kind.activates) {
    if (a.reserve == nullptr || a.reserve_bytes < NormReserveBytes(a.kind, a.x_desc->shape)) {
      return Refuse(CUDNN_STATUS_BAD_PARAM, function, "a reserve space of the size that is asked for");
    }
    call.mask = AddressOf(a.reserve);
  }
  return Launch<&RunTraining>(a.handle, function, call);
}

cudnnStatus_t LaunchForwardInference(const char* function, const NormForwardArguments& a) {
  ForwardCall call{};
  DNN_RETURN_IF_ERROR(Prepare(function, a, &call));
  if (a.running_mean == nullptr || a.running_variance == nullptr) {
    return Refuse(CUDNN_STATUS_BAD_PARAM, function, "the estimated mean and variance");
  }
  return Launch<&RunInference>(a.handle, function, call);
}

cudnnStatus_t LaunchBackward(const char* function, const NormBackwardArguments& a) {
  BackwardCall call{};
  DNN_RETURN_IF_ERROR(CheckNorm(function, a.kind, a.x_desc, a.param_desc, a.epsilon));
  DNN_RETURN_IF_ERROR(CheckActivation(function, a.kind, a.activation, &call.params));
  const bool all = a.handle != nullptr && a.data_alpha != nullptr && a.data_beta != nullptr &&
                   a.param_alpha != nullptr && a.param_beta != nullptr && a.x != nullptr &&
                   a.dy_desc != nullptr && a.dy != nullptr && a.dx_desc != nullptr && a.dx != nullptr &&
                   a.scale != nullptr && a.dscale != nullptr && a.dbias != nullptr;
  if (!all) return Refuse(CUDNN_STATUS_BAD_PARAM, function, "all of the pointers");
  const Shape& x = a.x_desc->shape;
  if (!Goes(a.dy_desc->shape, x) || !Goes(a.dx_desc->shape, x)) {
    return Refuse(CUDNN_STATUS_BAD_PARAM, function, "dy and dx like x");
  }
  if (!BothOrNone(a.saved_mean, a.saved_inverse)) {
    return Refuse(CUDNN_STATUS_BAD_PARAM, function, "the saved mean together with the variance");
  }
  if (a.kind.adds) {
    if (a.dz_desc == nullptr || a.dz == nullptr || !Goes(a.dz_desc->shape, x)) {
      return Refuse(CUDNN_STATUS_BAD_PARAM, function, "dz like x");
    }
    call.dz = OperandOf(a.dz_desc->shape, a.dz);
  }
  if (a.kind.activates) {
    if (a.reserve == nullptr || a.reserve_bytes < NormReserveBytes(a.kind, x)) {
      return Refuse(CUDNN_STATUS_BAD_PARAM, function, "the forward call's reserve space");
    }
    if (a.workspace == nullptr || a.workspace_bytes < NormBackwardWorkspaceBytes(a.kind, x)) {
      return Refuse(CUDNN_STATUS_BAD_PARAM, function, "a workspace of the size that is asked for");
    }
    call.mask = AddressOf(a.reserve);
  }
  call.params.epsilon = a.epsilon;
  call.data_blend = BlendOf(a.data_alpha, a.data_beta, x.type);
  call.param_blend = BlendOf(a.param_alpha, a.param_beta, x.type);
  call.x = OperandOf(x, a.x);
  call.dy = OperandOf(a.dy_desc->shape, a.dy);
  call.dx = OperandOf(a.dx_desc->shape, a.dx);
  call.param = a.param_desc->shape;
  call.scale = AddressOf(a.scale);
  call.dscale = AddressOf(a.dscale);
  call.dbias = AddressOf(a.dbias);
  call.saved_mean = AddressOf(a.saved_mean);
  call.saved_inverse = AddressOf(a.saved_inverse);
  call.workspace = WorkspaceOf(a.handle, a.workspace, a.workspace_bytes);
  return Launch<&RunBackward>(a.handle, function, call);
}

size_t NormReserveBytes(const NormKind& kind, const Shape& x) { return kind.activates ? MaskBytes(x) : 0; }

size_t NormBackwardWorkspaceBytes(const NormKind& kind, const Shape& x) {
  const size_t size = x.type == CUDNN_DATA_DOUBLE ? sizeof(double) : sizeof(float);
  return kind.activates ? x.Count() * size : 0;
}

}  // namespace softgpu::dnn
