// What a handle of cuBLAS is set to. The settings of emulated arithmetic are kept and change nothing:
// products are not emulated here.
#include "softgpu/blas/handle.h"

namespace softgpu::blas {

namespace {

bool ValidMath(cublasMath_t mode) {
  int base = mode & ~CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
  return base == CUBLAS_DEFAULT_MATH || base == CUBLAS_TENSOR_OP_MATH || base == CUBLAS_PEDANTIC_MATH ||
         base == CUBLAS_TF32_TENSOR_OP_MATH || base == CUBLAS_FP32_EMULATED_BF16X9_MATH ||
         base == CUBLAS_FP64_EMULATED_FIXEDPOINT_MATH;
}

// The field of a live handle, for a getter.
template <typename Field>
cublasStatus_t Get(cublasHandle_t handle, Field Handle::*field, Field* out) {
  std::shared_ptr<Handle> found = FindHandle(handle);
  if (found == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (out == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  *out = (*found).*field;
  return CUBLAS_STATUS_SUCCESS;
}

template <typename Field>
cublasStatus_t Set(cublasHandle_t handle, Field Handle::*field, bool valid, Field value) {
  std::shared_ptr<Handle> found = FindHandle(handle);
  if (found == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (!valid) return CUBLAS_STATUS_INVALID_VALUE;
  (*found).*field = value;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

}  // namespace softgpu::blas

using namespace softgpu::blas;

extern "C" {

// A new stream brings the default workspace back.
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t streamId) {
  std::shared_ptr<Handle> state = FindHandle(handle);
  if (state == nullptr) return CUBLAS_STATUS_NOT_INITIALIZED;
  state->stream = streamId;
  state->workspace = {state->hidden, kWorkspaceBytes};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t* streamId) {
  return Get(handle, &Handle::stream, streamId);
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t workspaceSizeInBytes) {
  constexpr uint64_t kAlignment = 256;
  uint64_t address = AddressOf(workspace);
  bool valid = address % kAlignment == 0 && (address != 0 || workspaceSizeInBytes == 0);
  return Set(handle, &Handle::workspace, valid, Workspace{address, workspaceSizeInBytes});
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
  bool valid = mode == CUBLAS_POINTER_MODE_HOST || mode == CUBLAS_POINTER_MODE_DEVICE;
  return Set(handle, &Handle::pointer_mode, valid, mode);
}
cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t* mode) {
  return Get(handle, &Handle::pointer_mode, mode);
}

cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode) {
  bool valid = mode == CUBLAS_ATOMICS_NOT_ALLOWED || mode == CUBLAS_ATOMICS_ALLOWED;
  return Set(handle, &Handle::atomics, valid, mode);
}
cublasStatus_t cublasGetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t* mode) {
  return Get(handle, &Handle::atomics, mode);
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
  return Set(handle, &Handle::math, ValidMath(mode), mode);
}
cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
  return Get(handle, &Handle::math, mode);
}

cublasStatus_t cublasSetSmCountTarget(cublasHandle_t handle, int smCountTarget) {
  return Set(handle, &Handle::sm_count, smCountTarget >= 0, smCountTarget);
}
cublasStatus_t cublasGetSmCountTarget(cublasHandle_t handle, int* smCountTarget) {
  return Get(handle, &Handle::sm_count, smCountTarget);
}

cublasStatus_t cublasSetEmulationStrategy(cublasHandle_t handle,
                                          cublasEmulationStrategy_t emulationStrategy) {
  bool valid = emulationStrategy >= CUBLAS_EMULATION_STRATEGY_DEFAULT &&
               emulationStrategy <= CUBLAS_EMULATION_STRATEGY_EAGER;
  return Set(handle, &Handle::emulation, valid, emulationStrategy);
}
cublasStatus_t cublasGetEmulationStrategy(cublasHandle_t handle,
                                          cublasEmulationStrategy_t* emulationStrategy) {
  return Get(handle, &Handle::emulation, emulationStrategy);
}

cublasStatus_t cublasSetEmulationSpecialValuesSupport(cublasHandle_t handle,
                                                      cudaEmulationSpecialValuesSupport mask) {
  constexpr int kKnown =
      CUDA_EMULATION_SPECIAL_VALUES_SUPPORT_INFINITY | CUDA_EMULATION_SPECIAL_VALUES_SUPPORT_NAN;
  bool valid = mask == CUDA_EMULATION_SPECIAL_VALUES_SUPPORT_DEFAULT || (mask & ~kKnown) == 0;
  return Set(handle, &Handle::special_values, valid, mask);
}
cublasStatus_t cublasGetEmulationSpecialValuesSupport(cublasHandle_t handle,
                                                      cudaEmulationSpecialValuesSupport* mask) {
  return Get(handle, &Handle::special_values, mask);
}

cublasStatus_t cublasSetFixedPointEmulationMantissaControl(cublasHandle_t handle,
                                                           cudaEmulationMantissaControl mantissaControl) {
  bool valid = mantissaControl == CUDA_EMULATION_MANTISSA_CONTROL_DYNAMIC ||
               mantissaControl == CUDA_EMULATION_MANTISSA_CONTROL_FIXED;
  return Set(handle, &Handle::mantissa_control, valid, mantissaControl);
}
cublasStatus_t cublasGetFixedPointEmulationMantissaControl(cublasHandle_t handle,
                                                           cudaEmulationMantissaControl* mantissaControl) {
  return Get(handle, &Handle::mantissa_control, mantissaControl);
}

cublasStatus_t cublasSetFixedPointEmulationMaxMantissaBitCount(cublasHandle_t handle,
                                                               int maxMantissaBitCount) {
  return Set(handle, &Handle::max_mantissa_bits, maxMantissaBitCount >= 0, maxMantissaBitCount);
}
cublasStatus_t cublasGetFixedPointEmulationMaxMantissaBitCount(cublasHandle_t handle,
                                                               int* maxMantissaBitCount) {
  return Get(handle, &Handle::max_mantissa_bits, maxMantissaBitCount);
}

cublasStatus_t cublasSetFixedPointEmulationMantissaBitOffset(cublasHandle_t handle, int mantissaBitOffset) {
  return Set(handle, &Handle::mantissa_bit_offset, true, mantissaBitOffset);
}
cublasStatus_t cublasGetFixedPointEmulationMantissaBitOffset(cublasHandle_t handle, int* mantissaBitOffset) {
  return Get(handle, &Handle::mantissa_bit_offset, mantissaBitOffset);
}

cublasStatus_t cublasSetFixedPointEmulationMantissaBitCountPointer(cublasHandle_t handle,
                                                                   int* mantissaBitCount) {
  return Set(handle, &Handle::mantissa_bits, true, mantissaBitCount);
}
cublasStatus_t cublasGetFixedPointEmulationMantissaBitCountPointer(cublasHandle_t handle,
                                                                   int** mantissaBitCount) {
  return Get(handle, &Handle::mantissa_bits, mantissaBitCount);
}

}  // extern "C"
