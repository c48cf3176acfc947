// The driver itself: initialisation, version, and the addresses of its functions.
#include <mutex>

#include "base/raw_log.h"
#include "intercept/proc_address.h"
#include "intercept/process.h"
#include "intercept/taint.h"
#include "intercept/task_placements.h"
#include "intercept/unknown_functions.h"
#include "intercept/visible_devices.h"
#include "intercept_hooks.h"
#include "vmm/device_map.h"

namespace stasis::hooks {
namespace {

constinit std::mutex g_record_mutex;

Status RecordOnce() {
  std::lock_guard<std::mutex> lock(g_record_mutex);
  if (VisibleDevicesRecorded()) return {};
  RETURN_IF_ERROR(RecordVisibleDevices(TaskFolder().empty(), DevicesShown()));
  // A driver with the program's own devices was given them where they are.
  return TaskFolder().empty() || DriverHasOwnNumbers() ? Status() : FollowTask();
}

// A variant of a known function, or another one, that came after the headers this library was built with:
// asked for what those know, the driver answers otherwise.
bool IsNewer(const char* symbol, const void* function, int cuda_version, cuuint64_t flags) {
  if (cuda_version <= CUDA_VERSION) return false;
  void* known = nullptr;
  CUdriverProcAddressQueryResult status;
  const CUresult result = Driver().cuGetProcAddress_v2(symbol, &known, CUDA_VERSION, flags, &status);
  return result != CUDA_SUCCESS || known != function;
}

// The program's answer about an address of the real driver.
CUresult ReplaceAddress(CUresult result, const char* symbol, void** function, int cuda_version,
                        cuuint64_t flags) {
  if (result != CUDA_SUCCESS || function == nullptr || *function == nullptr) return result;
  const bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
  void* wrapper = IsNewer(symbol, *function, cuda_version, flags)
                      ? nullptr
                      : WrapperFor(*function, symbol, cuda_version, per_thread);
  if (wrapper == nullptr) {
    // It would be given handles that nobody translates.
    Taint(symbol, false);
    wrapper = UnknownFunction(symbol, *function);
  }
  *function = wrapper;
  return result;
}

CUresult NothingFound(void** function) {
  if (function != nullptr) *function = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}

}  // namespace

CUresult cuInit(const Call& call, unsigned int Flags) {
  if (!DriverIsOpen()) return CUDA_ERROR_NO_DEVICE;
  const CUresult result = InitialiseDriver(call.Real<decltype(&::cuInit)>(), Flags);
  if (result != CUDA_SUCCESS) return result;
  const Status status = RecordOnce();
  if (!status.ok()) {
    RawLog(LogLevel::kWarning, "the driver's devices cannot be recorded: %.*s",
           static_cast<int>(status.message().size()), status.message().data());
    return CUDA_ERROR_NOT_INITIALIZED;
  }
  return VisibleDevices().empty() ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS;
}

// Runtimes take version 0 for a machine without a driver.
CUresult cuDriverGetVersion(const Call& call, int* driverVersion) {
  if (DriverIsOpen()) return call.Real<decltype(&::cuDriverGetVersion)>()(driverVersion);
  if (driverVersion == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *driverVersion = 0;
  return CUDA_SUCCESS;
}

CUresult cuGetProcAddress(const Call& call, const char* symbol, void** pfn, int cudaVersion,
                          cuuint64_t flags) {
  if (!DriverIsOpen()) return NothingFound(pfn);
  const CUresult result = call.Real<decltype(&::cuGetProcAddress)>()(symbol, pfn, cudaVersion, flags);
  return ReplaceAddress(result, symbol, pfn, cudaVersion, flags);
}

CUresult cuGetProcAddress_v2(const Call& call, const char* symbol, void** pfn, int cudaVersion,
                             cuuint64_t flags, CUdriverProcAddressQueryResult* symbolStatus) {
  if (!DriverIsOpen()) {
    if (symbolStatus != nullptr) *symbolStatus = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return NothingFound(pfn);
  }
  const CUresult result =
      call.Real<decltype(&::cuGetProcAddress_v2)>()(symbol, pfn, cudaVersion, flags, symbolStatus);
  return ReplaceAddress(result, symbol, pfn, cudaVersion, flags);
}

}  // namespace stasis::hooks
