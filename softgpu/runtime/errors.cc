#include "softgpu/runtime/errors.h"

#include <algorithm>
#include <atomic>

#include "softgpu/runtime/api.h"

namespace softgpu::runtime {
namespace {

// Initial-exec and trivially destructible: usable in static destructors and after the thread's C++ state is
// gone.
struct LastError {
  cudaError_t error;
  unsigned reset_count;  // of g_resets when the error was recorded
};
__attribute__((tls_model("initial-exec"))) constinit thread_local LastError t_last{cudaSuccess, 0};

constinit std::atomic<unsigned> g_resets{0};

const ErrorText* Find(cudaError_t error) {
  const ErrorText* end = kErrorTexts + kErrorTextCount;
  const ErrorText* found =
      std::lower_bound(kErrorTexts, end, static_cast<int>(error),
                       [](const ErrorText& entry, int code) { return entry.code < code; });
  return found != end && found->code == static_cast<int>(error) ? found : nullptr;
}

// Errors after which the context is unusable: each later call on it fails with the same one.
bool IsSticky(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorExternalDevice:
      return true;
    default:
      return false;
  }
}

cudaError_t CurrentError() {
  if (const cudaError_t driver = DriverStatus(); driver != cudaSuccess) return driver;
  const unsigned resets = g_resets.load(std::memory_order_relaxed);
  if (IsSticky(t_last.error) && t_last.reset_count != resets) t_last.error = cudaSuccess;
  return t_last.error;
}

}  // namespace

bool IsKnownError(cudaError_t error) { return Find(error) != nullptr; }

cudaError_t Report(cudaError_t error) {
  if (error != cudaSuccess) t_last = {error, g_resets.load(std::memory_order_relaxed)};
  return error;
}

void ForgetStickyErrors() { g_resets.fetch_add(1, std::memory_order_relaxed); }

}  // namespace softgpu::runtime

using namespace softgpu::runtime;

RT_API cudaError_t cudaPeekAtLastError(void) { return CurrentError(); }

RT_API cudaError_t cudaGetLastError(void) {
  const cudaError_t error = CurrentError();
  if (!IsSticky(t_last.error)) t_last.error = cudaSuccess;
  return error;
}

RT_API const char* cudaGetErrorName(cudaError_t error) {
  const ErrorText* found = Find(error);
  return found != nullptr ? found->name : "unrecognized error code";
}

RT_API const char* cudaGetErrorString(cudaError_t error) {
  const ErrorText* found = Find(error);
  return found != nullptr ? found->text : "unrecognized error code";
}
