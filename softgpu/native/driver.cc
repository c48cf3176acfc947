#include "softgpu/native/driver.h"

#include <dlfcn.h>

#include <mutex>

namespace softgpu::native {

namespace {

template <typename Function>
struct Missing;
template <typename... Arguments>
struct Missing<CUresult (*)(Arguments...)> {
  static CUresult Answer(Arguments...) { return CUDA_ERROR_NOT_FOUND; }
};

template <typename Function>
void Find(void* library, const char* name, Function* function) {
  void* found = library == nullptr ? nullptr : dlsym(library, name);
  *function = found == nullptr ? &Missing<Function>::Answer : reinterpret_cast<Function>(found);
}

DriverFunctions OpenDriver() {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  DriverFunctions functions;
#define SOFTGPU_NATIVE_FIND(name) Find(library, #name, &functions.name);
  SOFTGPU_NATIVE_DRIVER_FUNCTIONS(SOFTGPU_NATIVE_FIND)
#undef SOFTGPU_NATIVE_FIND
  return functions;
}

// The primary context of device 0, active and held by one reference of ours.
class PrimaryContext {
 public:
  CUresult Get(CUcontext* context) {
    std::lock_guard lock(mutex_);
    CUdevice device = 0;
    CUresult result = Driver().cuDeviceGet(&device, 0);
    if (result != CUDA_SUCCESS) return result;
    if (context_ == nullptr || !Active(device)) result = Driver().cuDevicePrimaryCtxRetain(&context_, device);
    *context = context_;
    return result;
  }

 private:
  // The program may have reset it.
  static bool Active(CUdevice device) {
    unsigned flags = 0;
    int active = 0;
    return Driver().cuDevicePrimaryCtxGetState(device, &flags, &active) == CUDA_SUCCESS && active != 0;
  }

  std::mutex mutex_;
  CUcontext context_ = nullptr;
};

}  // namespace

const DriverFunctions& Driver() {
  static const DriverFunctions functions = OpenDriver();
  return functions;
}

CUresult EnsureContext() {
  static constinit PrimaryContext primary;
  CUcontext context = nullptr;
  if (Driver().cuCtxGetCurrent(&context) == CUDA_SUCCESS && context != nullptr) return CUDA_SUCCESS;
  CUresult result = Driver().cuInit(0);
  if (result == CUDA_ERROR_NOT_FOUND) return CUDA_ERROR_NO_DEVICE;
  if (result == CUDA_SUCCESS) result = primary.Get(&context);
  return result == CUDA_SUCCESS ? Driver().cuCtxSetCurrent(context) : result;
}

}  // namespace softgpu::native
