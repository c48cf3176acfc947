// Batch normalisation: both families of functions.
#include "softgpu/dnn/norm_calls.h"

using namespace softgpu::dnn;

namespace {

// Both families' queries: the mode and the operation must be known, the data described.
cudnnStatus_t Answer(const char* function, const NormKind& kind, cudnnHandle_t handle,
                     cudnnTensorDescriptor_t x_desc, size_t (*bytes)(const NormKind&, const Shape&),
                     size_t* answer) {
  if (handle == nullptr || x_desc == nullptr || answer == nullptr || !kind.known) {
    return Refuse(CUDNN_STATUS_BAD_PARAM, function,
                  "a handle, a mode, an operation and the data's descriptor");
  }
  *answer = bytes(kind, x_desc->shape);
  return CUDNN_STATUS_SUCCESS;
}

size_t Nothing(const NormKind&, const Shape&) { return 0; }

bool IsAlgorithm(cudnnNormAlgo_t algo) {
  return algo == CUDNN_NORM_ALGO_STANDARD || algo == CUDNN_NORM_ALGO_PERSIST;
}

// Scale and bias have the shape of mean and variance.
cudnnStatus_t CheckFamily(const char* function, cudnnNormAlgo_t algo, cudnnTensorDescriptor_t scale_desc,
                          cudnnTensorDescriptor_t mean_desc, int groups) {
  if (!IsAlgorithm(algo) || scale_desc == nullptr || mean_desc == nullptr) {
    return Refuse(CUDNN_STATUS_BAD_PARAM, function, "an algorithm and the parameters' descriptors");
  }
  if (groups != 1) return Refuse(CUDNN_STATUS_NOT_SUPPORTED, function, "one group");
  if (!SameDims(scale_desc->shape, mean_desc->shape) || scale_desc->shape.type != mean_desc->shape.type ||
      !scale_desc->shape.Packed() || !mean_desc->shape.Packed()) {
    return Refuse(CUDNN_STATUS_NOT_SUPPORTED, function, "packed parameters of one shape");
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t Derive(const char* function, cudnnTensorDescriptor_t derived, cudnnTensorDescriptor_t x,
                     const NormKind& kind) {
  if (derived == nullptr || x == nullptr || !kind.known || x->shape.rank < 2) {
    return Refuse(CUDNN_STATUS_BAD_PARAM, function, "descriptors and a mode");
  }
  derived->shape = NormShape(kind.per_channel, x->shape);
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnDeriveBNTensorDescriptor(cudnnTensorDescriptor_t derivedBnDesc,
                                            const cudnnTensorDescriptor_t xDesc, cudnnBatchNormMode_t mode) {
  return Derive(__func__, derivedBnDesc, xDesc, KindOf(mode, CUDNN_BATCHNORM_OPS_BN));
}

cudnnStatus_t cudnnDeriveNormTensorDescriptor(cudnnTensorDescriptor_t derivedNormScaleBiasDesc,
                                              cudnnTensorDescriptor_t derivedNormMeanVarDesc,
                                              const cudnnTensorDescriptor_t xDesc, cudnnNormMode_t mode,
                                              int groupCnt) {
  DNN_SUPPORT(groupCnt == 1);
  const NormKind kind = KindOf(mode, CUDNN_NORM_OPS_NORM);
  DNN_RETURN_IF_ERROR(Derive(__func__, derivedNormScaleBiasDesc, xDesc, kind));
  return Derive(__func__, derivedNormMeanVarDesc, xDesc, kind);
}

cudnnStatus_t cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t bnOps,
    const cudnnTensorDescriptor_t xDesc, const cudnnTensorDescriptor_t /*zDesc*/,
    const cudnnTensorDescriptor_t /*yDesc*/, const cudnnTensorDescriptor_t /*bnScaleBiasMeanVarDesc*/,
    const cudnnActivationDescriptor_t /*activationDesc*/, size_t* sizeInBytes) {
  return Answer(__func__, KindOf(mode, bnOps), handle, xDesc, &Nothing, sizeInBytes);
}

cudnnStatus_t cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t bnOps,
    const cudnnTensorDescriptor_t xDesc, const cudnnTensorDescriptor_t /*yDesc*/,
    const cudnnTensorDescriptor_t /*dyDesc*/, const cudnnTensorDescriptor_t /*dzDesc*/,
    const cudnnTensorDescriptor_t /*dxDesc*/, const cudnnTensorDescriptor_t /*dBnScaleBiasDesc*/,
    const cudnnActivationDescriptor_t /*activationDesc*/, size_t* sizeInBytes) {
  return Answer(__func__, KindOf(mode, bnOps), handle, xDesc, &NormBackwardWorkspaceBytes, sizeInBytes);
}

cudnnStatus_t cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t bnOps,
    const cudnnActivationDescriptor_t /*activationDesc*/, const cudnnTensorDescriptor_t xDesc,
    size_t* sizeInBytes) {
  return Answer(__func__, KindOf(mode, bnOps), handle, xDesc, &NormReserveBytes, sizeInBytes);
}

cudnnStatus_t cudnnGetNormalizationForwardTrainingWorkspaceSize(
    cudnnHandle_t handle, cudnnNormMode_t mode, cudnnNormOps_t normOps, cudnnNormAlgo_t algo,
    const cudnnTensorDescriptor_t xDesc, const cudnnTensorDescriptor_t /*zDesc*/,
    const cudnnTensorDescriptor_t /*yDesc*/, const cudnnTensorDescriptor_t normScaleBiasDesc,
    const cudnnActivationDescriptor_t /*activationDesc*/, const cudnnTensorDescriptor_t normMeanVarDesc,
    size_t* sizeInBytes, int groupCnt) {
  DNN_RETURN_IF_ERROR(CheckFamily(__func__, algo, normScaleBiasDesc, normMeanVarDesc, groupCnt));
  return Answer(__func__, KindOf(mode, normOps), handle, xDesc, &Nothing, sizeInBytes);
}

cudnnStatus_t cudnnGetNormalizationBackwardWorkspaceSize(
    cudnnHandle_t handle, cudnnNormMode_t mode, cudnnNormOps_t normOps, cudnnNormAlgo_t algo,
    const cudnnTensorDescriptor_t xDesc, const cudnnTensorDescriptor_t /*yDesc*/,
    const cudnnTensorDescriptor_t /*dyDesc*/, const cudnnTensorDescriptor_t /*dzDesc*/,
    const cudnnTensorDescriptor_t /*dxDesc*/, const cudnnTensorDescriptor_t dNormScaleBiasDesc,
    const cudnnActivationDescriptor_t /*activationDesc*/, const cudnnTensorDescriptor_t normMeanVarDesc,
    size_t* sizeInBytes, int groupCnt) {
  DNN_RETURN_IF_ERROR(CheckFamily(__func__, algo, dNormScaleBiasDesc, normMeanVarDesc, groupCnt));
  return Answer(__func__, KindOf(mode, normOps), handle, xDesc, &NormBackwardWorkspaceBytes, sizeInBytes);
}

cudnnStatus_t cudnnGetNormalizationTrainingReserveSpaceSize(
    cudnnHandle_t handle, cudnnNormMode_t mode, cudnnNormOps_t normOps, cudnnNormAlgo_t algo,
    const cudnnActivationDescriptor_t /*activationDesc*/, const cudnnTensorDescriptor_t xDesc,
    size_t* sizeInBytes, int groupCnt) {
  DNN_REQUIRE(IsAlgorithm(algo));
  DNN_SUPPORT(groupCnt == 1);
  return Answer(__func__, KindOf(mode, normOps), handle, xDesc, &NormReserveBytes, sizeInBytes);
}

cudnnStatus_t cudnnBatchNormalizationForwardInference(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void* alpha, const void* beta,
    const cudnnTensorDescriptor_t xDesc, const void* x, const cudnnTensorDescriptor_t yDesc, void* y,
    const cudnnTensorDescriptor_t bnScaleBiasMeanVarDesc, const void* bnScale, const void* bnBias,
    const void* estimatedMean, const void* estimatedVariance, double epsilon) {
  NormForwardArguments arguments{};
  arguments.handle = handle;
  arguments.kind = KindOf(mode, CUDNN_BATCHNORM_OPS_BN);
  arguments.alpha = alpha;
  arguments.beta = beta;
  arguments.x_desc = xDesc;
  arguments.x = x;
  arguments.y_desc = yDesc;
  arguments.y = y;
  arguments.param_desc = bnScaleBiasMeanVarDesc;
  arguments.scale = bnScale;
  arguments.bias = bnBias;
  arguments.running_mean = const_cast<void*>(estimatedMean);
  arguments.running_variance = const_cast<void*>(estimatedVariance);
  arguments.epsilon = epsilon;
  return LaunchForwardInference(__func__, arguments);
}

cudnnStatus_t cudnnBatchNormalizationForwardTrainingEx(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t bnOps, const void* alpha,
    const void* beta, const cudnnTensorDescriptor_t xDesc, const void* xData,
    const cudnnTensorDescriptor_t zDesc, const void* zData, const cudnnTensorDescriptor_t yDesc, void* yData,
    const cudnnTensorDescriptor_t bnScaleBiasMeanVarDesc, const void* bnScale, const void* bnBias,
    double exponentialAverageFactor, void* resultRunningMean, void* resultRunningVariance, double epsilon,
    void* resultSaveMean, void* resultSaveInvVariance, cudnnActivationDescriptor_t activationDesc,
    void* /*workspace*/, size_t /*workSpaceSizeInBytes*/, void* reserveSpace,
    size_t reserveSpaceSizeInBytes) {
  NormForwardArguments arguments{};
  arguments.handle = handle;
  arguments.kind = KindOf(mode, bnOps);
  arguments.alpha = alpha;
  arguments.beta = beta;
  arguments.x_desc = xDesc;
  arguments.x = xData;
  arguments.z_desc = zDesc;
  arguments.z = zData;
  arguments.y_desc = yDesc;
  arguments.y = yData;
  arguments.param_desc = bnScaleBiasMeanVarDesc;
  arguments.scale = bnScale;
  arguments.bias = bnBias;
  arguments.factor = exponentialAverageFactor;
  arguments.running_mean = resultRunningMean;
  arguments.running_variance = resultRunningVariance;
  arguments.epsilon = epsilon;
  arguments.saved_mean = resultSaveMean;
  arguments.saved_inverse = resultSaveInvVariance;
  arguments.activation = activationDesc;
  arguments.reserve = reserveSpace;
  arguments.reserve_bytes = reserveSpaceSizeInBytes;
  return LaunchForwardTraining(__func__, arguments);
}

cudnnStatus_t cudnnBatchNormalizationForwardTraining(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void* alpha, const void* beta,
    const cudnnTensorDescriptor_t xDesc, const void* x, const cudnnTensorDescriptor_t yDesc, void* y,
    const cudnnTensorDescriptor_t bnScaleBiasMeanVarDesc, const void* bnScale, const void* bnBias,
    double exponentialAverageFactor, void* resultRunningMean, void* resultRunningVariance, double epsilon,
    void* resultSaveMean, void* resultSaveInvVariance) {
  return cudnnBatchNormalizationForwardTrainingEx(
      handle, mode, CUDNN_BATCHNORM_OPS_BN, alpha, beta, xDesc, x, nullptr, nullptr, yDesc, y,
      bnScaleBiasMeanVarDesc, bnScale, bnBias, exponentialAverageFactor, resultRunningMean,
      resultRunningVariance, epsilon, resultSaveMean, resultSaveInvVariance, nullptr, nullptr, 0, nullptr, 0);
}

cudnnStatus_t cudnnBatchNormalizationBackwardEx(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, cudnnBatchNormOps_t bnOps, const void* alphaDataDiff,
    const void* betaDataDiff, const void* alphaParamDiff, const void* betaParamDiff,
    const cudnnTensorDescriptor_t xDesc, const void* xData, const cudnnTensorDescriptor_t /*yDesc*/,
    const void* /*yData*/, const cudnnTensorDescriptor_t dyDesc, const void* dyData,
    const cudnnTensorDescriptor_t dzDesc, void* dzData, const cudnnTensorDescriptor_t dxDesc, void* dxData,
    const cudnnTensorDescriptor_t dBnScaleBiasDesc, const void* bnScaleData, const void* /*bnBiasData*/,
    void* dBnScaleData, void* dBnBiasData, double epsilon, const void* savedMean,
    const void* savedInvVariance, cudnnActivationDescriptor_t activationDesc, void* workSpace,
    size_t workSpaceSizeInBytes, void* reserveSpace, size_t reserveSpaceSizeInBytes) {
  NormBackwardArguments arguments{};
  arguments.handle = handle;
  arguments.kind = KindOf(mode, bnOps);
  arguments.data_alpha = alphaDataDiff;
  arguments.data_beta = betaDataDiff;
  arguments.param_alpha = alphaParamDiff;
  arguments.param_beta = betaParamDiff;
  arguments.x_desc = xDesc;
  arguments.x = xData;
  arguments.dy_desc = dyDesc;
  arguments.dy = dyData;
  arguments.dz_desc = dzDesc;
  arguments.dz = dzData;
  arguments.dx_desc = dxDesc;
  arguments.dx = dxData;
  arguments.param_desc = dBnScaleBiasDesc;
  arguments.scale = bnScaleData;
  arguments.dscale = dBnScaleData;
  arguments.dbias = dBnBiasData;
  arguments.epsilon = epsilon;
  arguments.saved_mean = savedMean;
  arguments.saved_inverse = savedInvVariance;
  arguments.activation = activationDesc;
  arguments.workspace = workSpace;
  arguments.workspace_bytes = workSpaceSizeInBytes;
  arguments.reserve = reserveSpace;
  arguments.reserve_bytes = reserveSpaceSizeInBytes;
  return LaunchBackward(__func__, arguments);
}

cudnnStatus_t cudnnBatchNormalizationBackward(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void* alphaDataDiff, const void* betaDataDiff,
    const void* alphaParamDiff, const void* betaParamDiff, const cudnnTensorDescriptor_t xDesc, const void* x,
    const cudnnTensorDescriptor_t dyDesc, const void* dy, const cudnnTensorDescriptor_t dxDesc, void* dx,
    const cudnnTensorDescriptor_t dBnScaleBiasDesc, const void* bnScale, void* dBnScaleResult,
    void* dBnBiasResult, double epsilon, const void* savedMean, const void* savedInvVariance) {
  return cudnnBatchNormalizationBackwardEx(
      handle, mode, CUDNN_BATCHNORM_OPS_BN, alphaDataDiff, betaDataDiff, alphaParamDiff, betaParamDiff, xDesc,
      x, nullptr, nullptr, dyDesc, dy, nullptr, nullptr, dxDesc, dx, dBnScaleBiasDesc, bnScale, nullptr,
      dBnScaleResult, dBnBiasResult, epsilon, savedMean, savedInvVariance, nullptr, nullptr, 0, nullptr, 0);
}

cudnnStatus_t cudnnNormalizationForwardInference(
    cudnnHandle_t handle, cudnnNormMode_t mode, cudnnNormOps_t normOps, cudnnNormAlgo_t algo,
    const void* alpha, const void* beta, const cudnnTensorDescriptor_t xDesc, const void* x,
    const cudnnTensorDescriptor_t normScaleBiasDesc, const void* normScale, const void* normBias,
    const cudnnTensorDescriptor_t normMeanVarDesc, const void* estimatedMean, const void* estimatedVariance,
    const cudnnTensorDescriptor_t zDesc, const void* z, cudnnActivationDescriptor_t activationDesc,
    const cudnnTensorDescriptor_t yDesc, void* y, double epsilon, int groupCnt) {
  DNN_RETURN_IF_ERROR(CheckFamily(__func__, algo, normScaleBiasDesc, normMeanVarDesc, groupCnt));
  NormForwardArguments arguments{};
  arguments.handle = handle;
  arguments.kind = KindOf(mode, normOps);
  arguments.alpha = alpha;
  arguments.beta = beta;
  arguments.x_desc = xDesc;
  arguments.x = x;
  arguments.z_desc = zDesc;
  arguments.z = z;
  arguments.y_desc = yDesc;
  arguments.y = y;
  arguments.param_desc = normScaleBiasDesc;
  arguments.scale = normScale;
  arguments.bias = normBias;
  arguments.running_mean = const_cast<void*>(estimatedMean);
  arguments.running_variance = const_cast<void*>(estimatedVariance);
  arguments.epsilon = epsilon;
  arguments.activation = activationDesc;
  return LaunchForwardInference(__func__, arguments);
}

cudnnStatus_t cudnnNormalizationForwardTraining(
    cudnnHandle_t handle, cudnnNormMode_t mode, cudnnNormOps_t normOps, cudnnNormAlgo_t algo,
    const void* alpha, const void* beta, const cudnnTensorDescriptor_t xDesc, const void* xData,
    const cudnnTensorDescriptor_t normScaleBiasDesc, const void* normScale, const void* normBias,
    double exponentialAverageFactor, const cudnnTensorDescriptor_t normMeanVarDesc, void* resultRunningMean,
    void* resultRunningVariance, double epsilon, void* resultSaveMean, void* resultSaveInvVariance,
    cudnnActivationDescriptor_t activationDesc, const cudnnTensorDescriptor_t zDesc, const void* zData,
    const cudnnTensorDescriptor_t yDesc, void* yData, void* workspace, size_t workSpaceSizeInBytes,
    void* reserveSpace, size_t reserveSpaceSizeInBytes, int groupCnt) {
  DNN_RETURN_IF_ERROR(CheckFamily(__func__, algo, normScaleBiasDesc, normMeanVarDesc, groupCnt));
  DNN_REQUIRE(KindOf(mode, normOps).known);
  // The two families' modes and operations are numbered alike.
  return cudnnBatchNormalizationForwardTrainingEx(
      handle, static_cast<cudnnBatchNormMode_t>(mode), static_cast<cudnnBatchNormOps_t>(normOps), alpha, beta,
      xDesc, xData, zDesc, zData, yDesc, yData, normScaleBiasDesc, normScale, normBias,
      exponentialAverageFactor, resultRunningMean, resultRunningVariance, epsilon, resultSaveMean,
      resultSaveInvVariance, activationDesc, workspace, workSpaceSizeInBytes, reserveSpace,
      reserveSpaceSizeInBytes);
}

cudnnStatus_t cudnnNormalizationBackward(
    cudnnHandle_t handle, cudnnNormMode_t mode, cudnnNormOps_t normOps, cudnnNormAlgo_t algo,
    const void* alphaDataDiff, const void* betaDataDiff, const void* alphaParamDiff,
    const void* betaParamDiff, const cudnnTensorDescriptor_t xDesc, const void* xData,
    const cudnnTensorDescriptor_t yDesc, const void* yData, const cudnnTensorDescriptor_t dyDesc,
    const void* dyData, const cudnnTensorDescriptor_t dzDesc, void* dzData,
    const cudnnTensorDescriptor_t dxDesc, void* dxData, const cudnnTensorDescriptor_t dNormScaleBiasDesc,
    const void* normScaleData, const void* normBiasData, void* dNormScaleData, void* dNormBiasData,
    double epsilon, const cudnnTensorDescriptor_t normMeanVarDesc, const void* savedMean,
    const void* savedInvVariance, cudnnActivationDescriptor_t activationDesc, void* workSpace,
    size_t workSpaceSizeInBytes, void* reserveSpace, size_t reserveSpaceSizeInBytes, int groupCnt) {
  DNN_RETURN_IF_ERROR(CheckFamily(__func__, algo, dNormScaleBiasDesc, normMeanVarDesc, groupCnt));
  DNN_REQUIRE(KindOf(mode, normOps).known);
  return cudnnBatchNormalizationBackwardEx(
      handle, static_cast<cudnnBatchNormMode_t>(mode), static_cast<cudnnBatchNormOps_t>(normOps),
      alphaDataDiff, betaDataDiff, alphaParamDiff, betaParamDiff, xDesc, xData, yDesc, yData, dyDesc, dyData,
      dzDesc, dzData, dxDesc, dxData, dNormScaleBiasDesc, normScaleData, normBiasData, dNormScaleData,
      dNormBiasData, epsilon, savedMean, savedInvVariance, activationDesc, workSpace, workSpaceSizeInBytes,
      reserveSpace, reserveSpaceSizeInBytes);
}

}  // extern "C"
