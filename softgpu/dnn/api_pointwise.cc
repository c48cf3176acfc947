// Operations element by element and reductions: descriptors and calls.
#include <cstring>

#include "softgpu/dnn/descriptors.h"
#include "softgpu/dnn/handle.h"

namespace softgpu::dnn {
namespace {

struct AddCall {
  Blend blend;
  Operand x, y;
};

void RunAdd(const AddCall& call, native::Device& device) {
  Memory memory(device);
  const Source x = memory.Read(call.x);
  const Target y = memory.Write(call.y);
  Arena arena;
  if (memory.ok()) AddTensor(call.blend, x, y, &arena);
}

constexpr size_t kMaxElementBytes = sizeof(double);

struct SetCall {
  Operand y;
  unsigned char value[kMaxElementBytes];
};

void RunSet(const SetCall& call, native::Device& device) {
  Memory memory(device);
  const Target y = memory.Write(call.y);
  if (memory.ok()) SetTensor(y, call.value);
}

struct OpCall {
  OpParams params;
  double beta;
  Operand a, b, c;
};

void RunOp(const OpCall& call, native::Device& device) {
  Memory memory(device);
  const Source a = memory.Read(call.a);
  const Source b = memory.Read(call.b);
  const Target c = memory.Write(call.c);
  Arena arena;
  if (memory.ok()) OpTensor(call.params, call.beta, a, b, c, &arena);
}

struct ReduceCall {
  ReduceParams params;
  Blend blend;
  Operand a, c;
  uint64_t indices;
};

void RunReduce(const ReduceCall& call, native::Device& device) {
  Memory memory(device);
  const Source a = memory.Read(call.a);
  const Target c = memory.Write(call.c);
  uint32_t* indices = memory.Write<uint32_t>(call.indices, call.c.shape.Count() * sizeof(uint32_t));
  Arena arena;
  if (memory.ok()) ReduceTensor(call.params, call.blend, a, c, indices, &arena);
}

bool HasSecondOperand(cudnnOpTensorOp_t op) {
  return op != CUDNN_OP_TENSOR_SQRT && op != CUDNN_OP_TENSOR_NOT;
}

bool IsExtremum(cudnnReduceTensorOp_t op) {
  return op == CUDNN_REDUCE_TENSOR_MIN || op == CUDNN_REDUCE_TENSOR_MAX || op == CUDNN_REDUCE_TENSOR_AMAX;
}

bool WantsIndices(const cudnnReduceTensorStruct& reduce) {
  return IsExtremum(reduce.op) && reduce.indices == CUDNN_REDUCE_TENSOR_FLATTENED_INDICES;
}

// Doubles go with doubles, everything else is computed in float.
bool SameFamily(const Shape& a, const Shape& b) {
  return IsFloating(a.type) && IsFloating(b.type) &&
         (a.type == CUDNN_DATA_DOUBLE) == (b.type == CUDNN_DATA_DOUBLE);
}

}  // namespace
}  // namespace softgpu::dnn

using namespace softgpu::dnn;

extern "C" {

cudnnStatus_t cudnnAddTensor(cudnnHandle_t handle, const void* alpha, const cudnnTensorDescriptor_t aDesc,
                             const void* A, const void* beta, const cudnnTensorDescriptor_t cDesc, void* C) {
  DNN_REQUIRE(handle != nullptr && alpha != nullptr && beta != nullptr);
  DNN_REQUIRE(aDesc != nullptr && A != nullptr && cDesc != nullptr && C != nullptr);
  DNN_REQUIRE(Broadcasts(aDesc->shape, cDesc->shape));
  DNN_SUPPORT(SameFamily(aDesc->shape, cDesc->shape));
  const AddCall call = {BlendOf(alpha, beta, cDesc->shape.type), OperandOf(aDesc->shape, A),
                        OperandOf(cDesc->shape, C)};
  return Launch<&RunAdd>(handle, __func__, call);
}

cudnnStatus_t cudnnTransformTensor(cudnnHandle_t handle, const void* alpha,
                                   const cudnnTensorDescriptor_t xDesc, const void* x, const void* beta,
                                   const cudnnTensorDescriptor_t yDesc, void* y) {
  DNN_REQUIRE(handle != nullptr && alpha != nullptr && beta != nullptr);
  DNN_REQUIRE(xDesc != nullptr && x != nullptr && yDesc != nullptr && y != nullptr);
  DNN_REQUIRE(SameDims(xDesc->shape, yDesc->shape));
  DNN_SUPPORT(SameFamily(xDesc->shape, yDesc->shape));
  const AddCall call = {BlendOf(alpha, beta, yDesc->shape.type), OperandOf(xDesc->shape, x),
                        OperandOf(yDesc->shape, y)};
  return Launch<&RunAdd>(handle, __func__, call);
}

cudnnStatus_t cudnnScaleTensor(cudnnHandle_t handle, const cudnnTensorDescriptor_t yDesc, void* y,
                               const void* alpha) {
  DNN_REQUIRE(handle != nullptr && yDesc != nullptr && y != nullptr && alpha != nullptr);
  DNN_REQUIRE(yDesc->shape.rank > 0);
  DNN_SUPPORT(IsFloating(yDesc->shape.type));
  const Blend blend = {ScalarOf(alpha, yDesc->shape.type), 0};
  const AddCall call = {blend, OperandOf(yDesc->shape, y), OperandOf(yDesc->shape, y)};
  return Launch<&RunAdd>(handle, __func__, call);
}

cudnnStatus_t cudnnSetTensor(cudnnHandle_t handle, const cudnnTensorDescriptor_t yDesc, void* y,
                             const void* valuePtr) {
  DNN_REQUIRE(handle != nullptr && yDesc != nullptr && y != nullptr && valuePtr != nullptr);
  DNN_REQUIRE(yDesc->shape.rank > 0);
  SetCall call = {OperandOf(yDesc->shape, y), {}};
  std::memcpy(call.value, valuePtr, SizeOf(yDesc->shape.type));
  return Launch<&RunSet>(handle, __func__, call);
}

cudnnStatus_t cudnnCreateOpTensorDescriptor(cudnnOpTensorDescriptor_t* opTensorDesc) {
  return CreateDescriptor(__func__, opTensorDesc);
}

cudnnStatus_t cudnnDestroyOpTensorDescriptor(cudnnOpTensorDescriptor_t opTensorDesc) {
  return DestroyDescriptor(opTensorDesc);
}

cudnnStatus_t cudnnSetOpTensorDescriptor(cudnnOpTensorDescriptor_t opTensorDesc, cudnnOpTensorOp_t opTensorOp,
                                         cudnnDataType_t opTensorCompType,
                                         cudnnNanPropagation_t opTensorNanOpt) {
  DNN_REQUIRE(opTensorDesc != nullptr);
  DNN_REQUIRE(opTensorOp >= CUDNN_OP_TENSOR_ADD && opTensorOp <= CUDNN_OP_TENSOR_NOT);
  DNN_REQUIRE(IsComputeType(opTensorCompType));
  DNN_REQUIRE(IsNanOption(opTensorNanOpt));
  *opTensorDesc = {opTensorOp, opTensorCompType, opTensorNanOpt};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetOpTensorDescriptor(const cudnnOpTensorDescriptor_t opTensorDesc,
                                         cudnnOpTensorOp_t* opTensorOp, cudnnDataType_t* opTensorCompType,
                                         cudnnNanPropagation_t* opTensorNanOpt) {
  DNN_REQUIRE(opTensorDesc != nullptr);
  DNN_REQUIRE(opTensorOp != nullptr && opTensorCompType != nullptr && opTensorNanOpt != nullptr);
  *opTensorOp = opTensorDesc->op;
  *opTensorCompType = opTensorDesc->compute_type;
  *opTensorNanOpt = opTensorDesc->nan;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnOpTensor(cudnnHandle_t handle, const cudnnOpTensorDescriptor_t opTensorDesc,
                            const void* alpha1, const cudnnTensorDescriptor_t aDesc, const void* A,
                            const void* alpha2, const cudnnTensorDescriptor_t bDesc, const void* B,
                            const void* beta, const cudnnTensorDescriptor_t cDesc, void* C) {
  DNN_REQUIRE(handle != nullptr && opTensorDesc != nullptr);
  DNN_REQUIRE(alpha1 != nullptr && beta != nullptr);
  DNN_REQUIRE(aDesc != nullptr && A != nullptr && cDesc != nullptr && C != nullptr);
  DNN_REQUIRE(SameDims(aDesc->shape, cDesc->shape));
  DNN_SUPPORT(SameFamily(aDesc->shape, cDesc->shape));
  OpCall call;
  call.params = {opTensorDesc->op, opTensorDesc->nan == CUDNN_PROPAGATE_NAN ? 1 : 0,
                 ScalarOf(alpha1, cDesc->shape.type), 0};
  call.beta = ScalarOf(beta, cDesc->shape.type);
  call.a = OperandOf(aDesc->shape, A);
  call.c = OperandOf(cDesc->shape, C);
  if (HasSecondOperand(opTensorDesc->op)) {
    DNN_REQUIRE(alpha2 != nullptr && bDesc != nullptr && B != nullptr);
    DNN_REQUIRE(Broadcasts(bDesc->shape, cDesc->shape));
    DNN_SUPPORT(SameFamily(bDesc->shape, cDesc->shape));
    call.params.alpha2 = ScalarOf(alpha2, cDesc->shape.type);
    call.b = OperandOf(bDesc->shape, B);
  }
  return Launch<&RunOp>(handle, __func__, call);
}

cudnnStatus_t cudnnCreateReduceTensorDescriptor(cudnnReduceTensorDescriptor_t* reduceTensorDesc) {
  return CreateDescriptor(__func__, reduceTensorDesc);
}

cudnnStatus_t cudnnDestroyReduceTensorDescriptor(cudnnReduceTensorDescriptor_t reduceTensorDesc) {
  return DestroyDescriptor(reduceTensorDesc);
}

cudnnStatus_t cudnnSetReduceTensorDescriptor(cudnnReduceTensorDescriptor_t reduceTensorDesc,
                                             cudnnReduceTensorOp_t reduceTensorOp,
                                             cudnnDataType_t reduceTensorCompType,
                                             cudnnNanPropagation_t reduceTensorNanOpt,
                                             cudnnReduceTensorIndices_t reduceTensorIndices,
                                             cudnnIndicesType_t reduceTensorIndicesType) {
  DNN_REQUIRE(reduceTensorDesc != nullptr);
  DNN_REQUIRE(reduceTensorOp >= CUDNN_REDUCE_TENSOR_ADD &&
              reduceTensorOp <= CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS);
  DNN_REQUIRE(IsComputeType(reduceTensorCompType));
  DNN_REQUIRE(IsNanOption(reduceTensorNanOpt));
  DNN_REQUIRE(reduceTensorIndices == CUDNN_REDUCE_TENSOR_NO_INDICES ||
              reduceTensorIndices == CUDNN_REDUCE_TENSOR_FLATTENED_INDICES);
  DNN_REQUIRE(reduceTensorIndicesType >= CUDNN_32BIT_INDICES &&
              reduceTensorIndicesType <= CUDNN_8BIT_INDICES);
  *reduceTensorDesc = {reduceTensorOp, reduceTensorCompType, reduceTensorNanOpt, reduceTensorIndices,
                       reduceTensorIndicesType};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetReduceTensorDescriptor(const cudnnReduceTensorDescriptor_t reduceTensorDesc,
                                             cudnnReduceTensorOp_t* reduceTensorOp,
                                             cudnnDataType_t* reduceTensorCompType,
                                             cudnnNanPropagation_t* reduceTensorNanOpt,
                                             cudnnReduceTensorIndices_t* reduceTensorIndices,
                                             cudnnIndicesType_t* reduceTensorIndicesType) {
  DNN_REQUIRE(reduceTensorDesc != nullptr && reduceTensorOp != nullptr && reduceTensorCompType != nullptr);
  DNN_REQUIRE(reduceTensorNanOpt != nullptr && reduceTensorIndices != nullptr &&
              reduceTensorIndicesType != nullptr);
  *reduceTensorOp = reduceTensorDesc->op;
  *reduceTensorCompType = reduceTensorDesc->compute_type;
  *reduceTensorNanOpt = reduceTensorDesc->nan;
  *reduceTensorIndices = reduceTensorDesc->indices;
  *reduceTensorIndicesType = reduceTensorDesc->indices_type;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetReductionIndicesSize(cudnnHandle_t handle,
                                           const cudnnReduceTensorDescriptor_t reduceTensorDesc,
                                           const cudnnTensorDescriptor_t aDesc,
                                           const cudnnTensorDescriptor_t cDesc, size_t* sizeInBytes) {
  DNN_REQUIRE(handle != nullptr && reduceTensorDesc != nullptr && sizeInBytes != nullptr);
  DNN_REQUIRE(aDesc != nullptr && cDesc != nullptr && Broadcasts(cDesc->shape, aDesc->shape));
  *sizeInBytes = WantsIndices(*reduceTensorDesc) ? cDesc->shape.Count() * sizeof(uint32_t) : 0;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetReductionWorkspaceSize(cudnnHandle_t handle,
                                             const cudnnReduceTensorDescriptor_t reduceTensorDesc,
                                             const cudnnTensorDescriptor_t aDesc,
                                             const cudnnTensorDescriptor_t cDesc, size_t* sizeInBytes) {
  DNN_REQUIRE(handle != nullptr && reduceTensorDesc != nullptr && sizeInBytes != nullptr);
  DNN_REQUIRE(aDesc != nullptr && cDesc != nullptr && Broadcasts(cDesc->shape, aDesc->shape));
  *sizeInBytes = 0;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnReduceTensor(cudnnHandle_t handle, const cudnnReduceTensorDescriptor_t reduceTensorDesc,
                                void* indices, size_t indicesSizeInBytes, void* /*workspace*/,
                                size_t /*workspaceSizeInBytes*/, const void* alpha,
                                const cudnnTensorDescriptor_t aDesc, const void* A, const void* beta,
                                const cudnnTensorDescriptor_t cDesc, void* C) {
  DNN_REQUIRE(handle != nullptr && reduceTensorDesc != nullptr && alpha != nullptr && beta != nullptr);
  DNN_REQUIRE(aDesc != nullptr && A != nullptr && cDesc != nullptr && C != nullptr);
  DNN_REQUIRE(Broadcasts(cDesc->shape, aDesc->shape));
  DNN_SUPPORT(SameFamily(aDesc->shape, cDesc->shape));
  ReduceCall call;
  call.params = {reduceTensorDesc->op, reduceTensorDesc->nan == CUDNN_PROPAGATE_NAN ? 1 : 0};
  call.blend = BlendOf(alpha, beta, aDesc->shape.type);
  call.a = OperandOf(aDesc->shape, A);
  call.c = OperandOf(cDesc->shape, C);
  call.indices = 0;
  if (WantsIndices(*reduceTensorDesc)) {
    DNN_SUPPORT(reduceTensorDesc->indices_type == CUDNN_32BIT_INDICES);
    DNN_REQUIRE(indices != nullptr && indicesSizeInBytes >= cDesc->shape.Count() * sizeof(uint32_t));
    call.indices = reinterpret_cast<uint64_t>(indices);
  }
  return Launch<&RunReduce>(handle, __func__, call);
}

}  // extern "C"
