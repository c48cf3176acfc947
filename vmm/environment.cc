#include "vmm/environment.h"

#include <atomic>

#include "vmm/device_map.h"
#include "vmm/real_driver.h"

namespace stasis::vmm {
namespace {

constinit const Environment kNone;
constinit std::atomic<const Environment*> the_environment{&kNone};

const Environment& Get() { return *the_environment.load(std::memory_order_relaxed); }

}  // namespace

void SetEnvironment(const Environment* environment) {
  the_environment.store(environment == nullptr ? &kNone : environment, std::memory_order_relaxed);
}

CUcontext RealContext(CUcontext visible) {
  return Get().real_context == nullptr ? visible : Get().real_context(visible);
}

CUcontext VisibleContext(CUcontext real) {
  return Get().visible_context == nullptr ? real : Get().visible_context(real);
}

bool CapturesInProgress() {
  return Get().captures_in_progress != nullptr && Get().captures_in_progress() != 0;
}

void SetSharing(Sharing sharing) {
  if (Get().set_sharing != nullptr) Get().set_sharing(sharing);
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
