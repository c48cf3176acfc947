#include "softgpu/driver/errors.h"

#include <cstring>

#include "base/raw_log.h"
#include "softgpu/driver/error_table.h"

namespace softgpu {

const ErrorText* FindErrorText(const CUresult& code) {
  int number;
  std::memcpy(&number, &code, sizeof number);
  for (size_t i = 0; i < kErrorTextCount; i++) {
    if (kErrorTexts[i].code == number) return &kErrorTexts[i];
  }
  return nullptr;
}

CUresult FromStatus(const stasis::Status& status) {
  switch (status.code()) {
    case stasis::StatusCode::kOk:
      return CUDA_SUCCESS;
    case stasis::StatusCode::kInvalidArgument:
      return CUDA_ERROR_INVALID_VALUE;
    case stasis::StatusCode::kNotFound:
      return CUDA_ERROR_NOT_FOUND;
    case stasis::StatusCode::kResourceExhausted:
      return CUDA_ERROR_OUT_OF_MEMORY;
    case stasis::StatusCode::kUnavailable:
    case stasis::StatusCode::kPeerDied:
    case stasis::StatusCode::kTimeout:
      return CUDA_ERROR_DEVICE_UNAVAILABLE;
    case stasis::StatusCode::kUnsupported:
      return CUDA_ERROR_NOT_SUPPORTED;
    case stasis::StatusCode::kPermissionDenied:
      return CUDA_ERROR_NOT_PERMITTED;
    case stasis::StatusCode::kFailedPrecondition:
      return CUDA_ERROR_ILLEGAL_STATE;
    default:
      return CUDA_ERROR_UNKNOWN;
  }
}

bool IsSticky(CUresult code) {
  switch (code) {
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_EXTERNAL_DEVICE:
    case CUDA_ERROR_UNKNOWN:
      return true;
    default:
      return false;
  }
}

CUresult NotSupported(const char* function, bool* said) {
  if (!__atomic_exchange_n(said, true, __ATOMIC_RELAXED)) {
    stasis::RawLog(stasis::LogLevel::kWarning, "%s is not supported by softgpu", function);
  }
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // namespace softgpu

extern "C" {

CUresult CUDAAPI cuGetErrorName(CUresult error, const char** pStr) {
  if (pStr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const softgpu::ErrorText* row = softgpu::FindErrorText(error);
  *pStr = row != nullptr ? row->name : nullptr;
  return row != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGetErrorString(CUresult error, const char** pStr) {
  if (pStr == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const softgpu::ErrorText* row = softgpu::FindErrorText(error);
  *pStr = row != nullptr ? row->text : nullptr;
  return row != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // extern "C"
