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

inline void TranslateHandles(CUDA_MEMCPY2D& copy) {
  copy.srcArray = replay::ToReal(copy.srcArray);
  copy.dstArray = replay::ToReal(copy.dstArray);
}

// The reserved fields are those of CUDA_MEMCPY3D_PEER's contexts, and null here.
inline void TranslateHandles(CUDA_MEMCPY3D& copy) {
  copy.srcArray = replay::ToReal(copy.srcArray);
  copy.dstArray = replay::ToReal(copy.dstArray);
}

inline void TranslateHandles(CUDA_MEMCPY3D_PEER& copy) {
  copy.srcArray = replay::ToReal(copy.srcArray);
  copy.srcContext = replay::ToReal(copy.srcContext);
  copy.dstArray = replay::ToReal(copy.dstArray);
  copy.dstContext = replay::ToReal(copy.dstContext);
}

template <typename Copy>
inline void TranslateArrays(Copy& copy) {
  copy.srcArray = replay::ToReal(copy.srcArray);
  copy.dstArray = replay::ToReal(copy.dstArray);
}
inline void TranslateHandles(CUDA_MEMCPY2D_v1& copy) { TranslateArrays(copy); }
inline void TranslateHandles(CUDA_MEMCPY3D_v1& copy) { TranslateArrays(copy); }

// What of it is a handle depends on the kind; the other members of the union are addresses and sizes.
inline void TranslateHandles(CUDA_RESOURCE_DESC& resource) {
  if (resource.resType == CU_RESOURCE_TYPE_ARRAY)
    resource.res.array.hArray = replay::ToReal(resource.res.array.hArray);
  if (resource.resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY)
    resource.res.mipmap.hMipmappedArray = replay::ToReal(resource.res.mipmap.hMipmappedArray);
}

// For queries: the attributes' events matter to launches alone, which are hooks.
inline void TranslateHandles(CUlaunchConfig& config) { config.hStream = replay::ToReal(config.hStream); }

// The caller's structure, or a copy of it with real handles while handles are translated.
template <typename T>
class RealStruct {
 public:
  __attribute__((always_inline)) explicit RealStruct(const T* visible) : real_(visible) {
    if (__builtin_expect(!replay::Translating(), 1) || visible == nullptr) return;
    copy_ = *visible;
    TranslateHandles(copy_);
    real_ = &copy_;
  }
  const T* get() const { return real_; }

 private:
  const T* real_;
  union {
    T copy_;  // not initialised unless it is used
  };
};

}  // namespace stasis

#endif  // INTERCEPT_WRAPPER_SUPPORT_H_
