// What the generated wrappers are made of.
#ifndef INTERCEPT_WRAPPER_SUPPORT_H_
#define INTERCEPT_WRAPPER_SUPPORT_H_

#include "intercept/call.h"
#include "intercept/gate.h"
#include "intercept/taint.h"
#include "replay/translate.h"
#include "vmm/device_map.h"
#include "vmm/real_driver.h"

#define STASIS_EXPORT extern "C" __attribute__((visibility("default")))

namespace stasis {

inline CUdevice PhysicalDevice(CUdevice device) {
  return DeviceMapActive() ? ToPhysicalDevice(device) : device;
}

inline void ReturnDevice(CUresult result, CUdevice* device) {
  if (result == CUDA_SUCCESS && device != nullptr && DeviceMapActive()) *device = ToVirtualDevice(*device);
}

template <typename Handle>
inline void ReturnHandle(CUresult result, Handle** handle) {
  if (__builtin_expect(!replay::Translating(), 1)) return;
  if (result == CUDA_SUCCESS && handle != nullptr) *handle = replay::ToVisible(*handle);
}

}  // namespace stasis

#endif  // INTERCEPT_WRAPPER_SUPPORT_H_
