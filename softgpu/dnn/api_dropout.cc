// Dropout and local response normalisation: descriptors and calls.
#include "softgpu/dnn/descriptors.h"
#include "softgpu/dnn/dropout.h"
#include "softgpu/dnn/handle.h"

namespace softgpu::dnn {
namespace {

struct SeedCall {
  uint64_t states;
  uint64_t seed;
};

void RunSeed(const SeedCall& call, native::Device& device) {
  Memory memory(device);
  DropoutStates* states = memory.Write<DropoutStates>(call.states, sizeof(DropoutStates));
  if (memory.ok()) SeedStates(call.seed, states);
}

struct DropoutCall {
  float dropout;
  uint64_t states;  // 0: backward, nothing is drawn
  uint64_t reserve;
  Operand x, y;
};

void RunDropout(const DropoutCall& call, native::Device& device) {
  Memory memory(device);
  DropoutStates* states = memory.Write<DropoutStates>(call.states, sizeof(DropoutStates));
  uint8_t* reserve = memory.Write<uint8_t>(call.reserve, ReserveBytes(call.x.shape));
  const Source x = memory.Read(call.x);
  const Target y = memory.Write(call.y);
  Arena arena;
  if (!memory.ok()) return;
  if (states != nullptr) DrawMask(call.dropout, call.x.shape.Count(), states, reserve);
  ApplyMask(call.dropout, x, reserve, y, &arena);
}

// What the two directions have in common.
cudnnStatus_t Run(const char* function, cudnnHandle_t handle, const cudnnDropoutStruct& dropout,
                  const Operand& x, const Operand& y, void* states, void* reserve, size_t reserve_bytes) {
  if (!SameDims(x.shape, y.shape) || x.shape.rank == 0) {
    return Refuse(CUDNN_STATUS_BAD_PARAM, function, "the same dimensions in both descriptors");
  }
  if (!IsFloating(x.shape.type) || x.shape.type != y.shape.type) {
    return Refuse(CUDNN_STATUS_NOT_SUPPORTED, function, "one floating-point type for both tensors");
  }
  if (reserve == nullptr || reserve_bytes < ReserveBytes(x.shape)) {
    return Refuse(CUDNN_STATUS_BAD_PARAM, function, "a reserve space of the size that is asked for");
  }
  const DropoutCall call = {dropout.dropout, reinterpret_cast<uint64_t>(states),
                            reinterpret_cast<uint64_t>(reserve), x, y};
  return Launch<&RunDropout>(handle, function, call);
}

struct LrnForwardCall {
  LrnParams params;
  Blend blend;
  Operand x, y;
};

void RunLrn(const LrnForwardCall& call, native::Device& device) {
  Memory memory(device);
  const Source x = memory.Read(call.x);
  const Target y = memory.Write(call.y);
  Arena arena;
  if (memory.ok()) LrnForward(call.params, call.blend, x, y, &arena);
}

struct LrnBackwardCall {
  LrnParams params;
  Blend blend;
  Operand y, dy, x, dx;
};

void RunLrnBackward(const LrnBackwardCall& call, native::Device& device) {
  Memory memory(device);
  const Source y = memory.Read(call.y);
  const Source dy = memory.Read(call.dy);
  const Source x = memory.Read(call.x);
  const Target dx = memory.Write(call.dx);
  Arena arena;
  if (memory.ok()) LrnBackward(call.params, call.blend, y, dy, x, dx, &arena);
}

bool SameTensor(const Shape& a, const Shape& b) { return SameDims(a, b) && a.type == b.type; }

}  // namespace
}  // namespace softgpu::dnn

using namespace softgpu::dnn;

extern "C" {

cudnnStatus_t cudnnCreateDropoutDescriptor(cudnnDropoutDescriptor_t* dropoutDesc) {
  return CreateDescriptor(__func__, dropoutDesc);
}

cudnnStatus_t cudnnDestroyDropoutDescriptor(cudnnDropoutDescriptor_t dropoutDesc) {
  return DestroyDescriptor(dropoutDesc);
}

cudnnStatus_t cudnnDropoutGetStatesSize(cudnnHandle_t handle, size_t* sizeInBytes) {
  DNN_REQUIRE(handle != nullptr && sizeInBytes != nullptr);
  *sizeInBytes = sizeof(DropoutStates);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDropoutGetReserveSpaceSize(cudnnTensorDescriptor_t xdesc, size_t* sizeInBytes) {
  DNN_REQUIRE(xdesc != nullptr && sizeInBytes != nullptr);
  *sizeInBytes = ReserveBytes(xdesc->shape);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnRestoreDropoutDescriptor(cudnnDropoutDescriptor_t dropoutDesc, cudnnHandle_t handle,
                                            float dropout, void* states, size_t stateSizeInBytes,
                                            unsigned long long seed) {
  DNN_REQUIRE(dropoutDesc != nullptr && handle != nullptr);
  DNN_REQUIRE(dropout >= 0 && dropout <= 1);
  DNN_REQUIRE(states == nullptr || stateSizeInBytes >= sizeof(DropoutStates));
  *dropoutDesc = {dropout, states, seed};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t dropoutDesc, cudnnHandle_t handle,
                                        float dropout, void* states, size_t stateSizeInBytes,
                                        unsigned long long seed) {
  DNN_RETURN_IF_ERROR(
      cudnnRestoreDropoutDescriptor(dropoutDesc, handle, dropout, states, stateSizeInBytes, seed));
  if (states == nullptr) return CUDNN_STATUS_SUCCESS;
  return Launch<&RunSeed>(handle, __func__, SeedCall{reinterpret_cast<uint64_t>(states), seed});
}

cudnnStatus_t cudnnGetDropoutDescriptor(cudnnDropoutDescriptor_t dropoutDesc, cudnnHandle_t handle,
                                        float* dropout, void** states, unsigned long long* seed) {
  DNN_REQUIRE(dropoutDesc != nullptr && handle != nullptr);
  DNN_REQUIRE(dropout != nullptr && states != nullptr && seed != nullptr);
  *dropout = dropoutDesc->dropout;
  *states = dropoutDesc->states;
  *seed = dropoutDesc->seed;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDropoutForward(cudnnHandle_t handle, const cudnnDropoutDescriptor_t dropoutDesc,
                                  const cudnnTensorDescriptor_t xdesc, const void* x,
                                  const cudnnTensorDescriptor_t ydesc, void* y, void* reserveSpace,
                                  size_t reserveSpaceSizeInBytes) {
  DNN_REQUIRE(handle != nullptr && dropoutDesc != nullptr);
  DNN_REQUIRE(xdesc != nullptr && x != nullptr && ydesc != nullptr && y != nullptr);
  DNN_REQUIRE(dropoutDesc->states != nullptr);
  return Run(__func__, handle, *dropoutDesc, OperandOf(xdesc->shape, x), OperandOf(ydesc->shape, y),
             dropoutDesc->states, reserveSpace, reserveSpaceSizeInBytes);
}

cudnnStatus_t cudnnDropoutBackward(cudnnHandle_t handle, const cudnnDropoutDescriptor_t dropoutDesc,
                                   const cudnnTensorDescriptor_t dydesc, const void* dy,
                                   const cudnnTensorDescriptor_t dxdesc, void* dx, void* reserveSpace,
                                   size_t reserveSpaceSizeInBytes) {
  DNN_REQUIRE(handle != nullptr && dropoutDesc != nullptr);
  DNN_REQUIRE(dydesc != nullptr && dy != nullptr && dxdesc != nullptr && dx != nullptr);
  return Run(__func__, handle, *dropoutDesc, OperandOf(dydesc->shape, dy), OperandOf(dxdesc->shape, dx),
             nullptr, reserveSpace, reserveSpaceSizeInBytes);
}

cudnnStatus_t cudnnCreateLRNDescriptor(cudnnLRNDescriptor_t* normDesc) {
  return CreateDescriptor(__func__, normDesc);
}

cudnnStatus_t cudnnDestroyLRNDescriptor(cudnnLRNDescriptor_t lrnDesc) { return DestroyDescriptor(lrnDesc); }

cudnnStatus_t cudnnSetLRNDescriptor(cudnnLRNDescriptor_t normDesc, unsigned lrnN, double lrnAlpha,
                                    double lrnBeta, double lrnK) {
  DNN_REQUIRE(normDesc != nullptr);
  DNN_REQUIRE(lrnN >= CUDNN_LRN_MIN_N && lrnN <= CUDNN_LRN_MAX_N);
  DNN_REQUIRE(lrnBeta >= CUDNN_LRN_MIN_BETA && lrnK >= CUDNN_LRN_MIN_K);
  normDesc->params = {lrnN, lrnAlpha, lrnBeta, lrnK};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetLRNDescriptor(cudnnLRNDescriptor_t normDesc, unsigned* lrnN, double* lrnAlpha,
                                    double* lrnBeta, double* lrnK) {
  DNN_REQUIRE(normDesc != nullptr);
  if (lrnN != nullptr) *lrnN = normDesc->params.window;
  if (lrnAlpha != nullptr) *lrnAlpha = normDesc->params.alpha;
  if (lrnBeta != nullptr) *lrnBeta = normDesc->params.beta;
  if (lrnK != nullptr) *lrnK = normDesc->params.k;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnLRNCrossChannelForward(cudnnHandle_t handle, cudnnLRNDescriptor_t normDesc,
                                          cudnnLRNMode_t lrnMode, const void* alpha,
                                          const cudnnTensorDescriptor_t xDesc, const void* x,
                                          const void* beta, const cudnnTensorDescriptor_t yDesc, void* y) {
  DNN_REQUIRE(handle != nullptr && normDesc != nullptr && alpha != nullptr && beta != nullptr);
  DNN_REQUIRE(xDesc != nullptr && x != nullptr && yDesc != nullptr && y != nullptr);
  DNN_REQUIRE(lrnMode == CUDNN_LRN_CROSS_CHANNEL_DIM1);
  DNN_REQUIRE(SameTensor(xDesc->shape, yDesc->shape));
  DNN_SUPPORT(IsFloating(xDesc->shape.type) && xDesc->shape.rank >= 3);
  const LrnForwardCall call = {normDesc->params, BlendOf(alpha, beta, yDesc->shape.type),
                               OperandOf(xDesc->shape, x), OperandOf(yDesc->shape, y)};
  return Launch<&RunLrn>(handle, __func__, call);
}

cudnnStatus_t cudnnLRNCrossChannelBackward(cudnnHandle_t handle, cudnnLRNDescriptor_t normDesc,
                                           cudnnLRNMode_t lrnMode, const void* alpha,
                                           const cudnnTensorDescriptor_t yDesc, const void* y,
                                           const cudnnTensorDescriptor_t dyDesc, const void* dy,
                                           const cudnnTensorDescriptor_t xDesc, const void* x,
                                           const void* beta, const cudnnTensorDescriptor_t dxDesc, void* dx) {
  DNN_REQUIRE(handle != nullptr && normDesc != nullptr && alpha != nullptr && beta != nullptr);
  DNN_REQUIRE(yDesc != nullptr && dyDesc != nullptr && xDesc != nullptr && dxDesc != nullptr);
  DNN_REQUIRE(y != nullptr && dy != nullptr && x != nullptr && dx != nullptr);
  DNN_REQUIRE(lrnMode == CUDNN_LRN_CROSS_CHANNEL_DIM1);
  DNN_REQUIRE(SameTensor(xDesc->shape, yDesc->shape) && SameTensor(xDesc->shape, dyDesc->shape));
  DNN_REQUIRE(SameTensor(xDesc->shape, dxDesc->shape));
  DNN_SUPPORT(IsFloating(xDesc->shape.type) && xDesc->shape.rank >= 3);
  const LrnBackwardCall call = {normDesc->params,           BlendOf(alpha, beta, dxDesc->shape.type),
                                OperandOf(yDesc->shape, y), OperandOf(dyDesc->shape, dy),
                                OperandOf(xDesc->shape, x), OperandOf(dxDesc->shape, dx)};
  return Launch<&RunLrnBackward>(handle, __func__, call);
}

}  // extern "C"
