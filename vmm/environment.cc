#include "vmm/environment.h"

#include "vmm/device_map.h"
#include "vmm/real_driver.h"

namespace stasis::vmm {
namespace {

constinit Environment the_environment;

}  // namespace

void SetEnvironment(const Environment& environment) { the_environment = environment; }

CUcontext RealContext(CUcontext visible) {
  return the_environment.real_context == nullptr ? visible : the_environment.real_context(visible);
}

CUcontext VisibleContext(CUcontext real) {
  return the_environment.visible_context == nullptr ? real : the_environment.visible_context(real);
}

bool CapturesInProgress() {
  return the_environment.captures_in_progress != nullptr && the_environment.captures_in_progress() != 0;
}

CUresult CurrentCaller(Caller* caller) {
  CUcontext context = nullptr;
  CUresult result = Driver().cuCtxGetCurrent(&context);
  if (result != CUDA_SUCCESS) return result;
  if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  CUdevice device = -1;
  result = Driver().cuCtxGetDevice(&device);
  if (result != CUDA_SUCCESS) return result;
  *caller = {VisibleContext(context), ToVirtualDevice(device)};
  return caller->device < 0 ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

ScopedContext::ScopedContext(CUcontext context) {
  const CUcontext real = RealContext(context);
  CUcontext current = nullptr;
  result_ = Driver().cuCtxGetCurrent(&current);
  if (result_ != CUDA_SUCCESS || current == real) return;
  result_ = Driver().cuCtxPushCurrent_v2(real);
  pushed_ = result_ == CUDA_SUCCESS;
}

ScopedContext::~ScopedContext() {
  CUcontext popped = nullptr;
  if (pushed_) Driver().cuCtxPopCurrent_v2(&popped);
}

RelaxedCapture::RelaxedCapture() {
  changed_ = Driver().cuThreadExchangeStreamCaptureMode(&mode_) == CUDA_SUCCESS;
}

RelaxedCapture::~RelaxedCapture() {
  if (changed_) Driver().cuThreadExchangeStreamCaptureMode(&mode_);
}

}  // namespace stasis::vmm
