#include "softgpu/runtime/context.h"

#include <atomic>

#include "softgpu/runtime/api.h"
#include "softgpu/runtime/once.h"
#include "softgpu/runtime/registry.h"

namespace softgpu::runtime {
namespace {

struct Device {
  CUdevice handle = 0;
  std::atomic<CUcontext> primary{nullptr};  // null until retained, and again after a reset
  std::atomic<CUcontext> retired{nullptr};  // what primary was before the last reset
};

// Written once before g_listed is done, never freed: exit handlers may still call in.
constinit Once g_listed;
constinit Device* g_devices = nullptr;
constinit int g_device_count = 0;

__attribute__((tls_model("initial-exec"))) constinit thread_local int t_device = 0;

cudaError_t ListDevices() {
  int count = 0;
  RT_TRY(CU(cuDeviceGetCount)(&count));
  if (count <= 0) return cudaErrorNoDevice;
  Device* devices = new Device[count];
  for (int i = 0; i < count; ++i) {
    if (const cudaError_t error = CU(cuDeviceGet)(&devices[i].handle, i); error != cudaSuccess) {
      delete[] devices;
      return error;
    }
  }
  g_devices = devices;
  g_device_count = count;
  return cudaSuccess;
}

cudaError_t Devices() {
  if (g_listed.done()) return cudaSuccess;
  RT_TRY(DriverStatus());
  return g_listed.Run(ListDevices);
}

bool InRange(int ordinal) { return ordinal >= 0 && ordinal < g_device_count; }

// The device whose primary context this is, or was before a reset; -1 for contexts of the program's own.
int OwnerOf(CUcontext context, bool* live) {
  for (int i = 0; i < g_device_count; ++i) {
    *live = g_devices[i].primary.load(std::memory_order_acquire) == context;
    if (*live || g_devices[i].retired.load(std::memory_order_acquire) == context) return i;
  }
  return -1;
}

// The context current on this thread, null if there is none or if a reset has ended it.
cudaError_t UsableContext(CUcontext* context) {
  RT_TRY(CU(cuCtxGetCurrent)(context));
  if (*context == nullptr) return cudaSuccess;
  bool live = true;
  if (OwnerOf(*context, &live) >= 0 && !live) *context = nullptr;
  return cudaSuccess;
}

cudaError_t BindPrimary(int ordinal) {
  CUcontext context = nullptr;
  RT_TRY(PrimaryContext(ordinal, &context));
  return CU(cuCtxSetCurrent)(context);
}

cudaError_t ResetPrimary(int ordinal) {
  Device& device = g_devices[ordinal];
  const CUcontext primary = device.primary.exchange(nullptr, std::memory_order_acq_rel);
  if (primary != nullptr) {
    device.retired.store(primary, std::memory_order_release);
    RT_TRY(CU(cuCtxSetCurrent)(nullptr));
  }
  RT_TRY(CU(cuDevicePrimaryCtxReset)(device.handle));
  if (primary == nullptr) return cudaSuccess;
  // A reset need not give back what was retained. A driver whose reset does has no context left to release.
  const cudaError_t released = CU(cuDevicePrimaryCtxRelease)(device.handle);
  return released == cudaErrorDeviceUninitialized ? cudaSuccess : released;
}

}  // namespace

cudaError_t PrimaryContext(int ordinal, CUcontext* context) {
  RT_TRY(Devices());
  if (!InRange(ordinal)) return cudaErrorInvalidDevice;
  Device& device = g_devices[ordinal];
  *context = device.primary.load(std::memory_order_acquire);
  if (*context != nullptr) return cudaSuccess;
  CUcontext retained = nullptr;
  RT_TRY(CU(cuDevicePrimaryCtxRetain)(&retained, device.handle));
  CUcontext expected = nullptr;
  if (device.primary.compare_exchange_strong(expected, retained, std::memory_order_acq_rel)) {
    *context = retained;
    return cudaSuccess;
  }
  // Another thread was faster; its reference is the one that counts.
  *context = expected;
  return CU(cuDevicePrimaryCtxRelease)(device.handle);
}

cudaError_t EnsureContext() {
  RT_TRY(Devices());
  CUcontext context = nullptr;
  RT_TRY(UsableContext(&context));
  return context != nullptr ? cudaSuccess : BindPrimary(t_device);
}

cudaError_t CurrentContext(CUcontext* context) { return CU(cuCtxGetCurrent)(context); }

cudaError_t CurrentDevice(int* ordinal) {
  RT_TRY(Devices());
  CUcontext context = nullptr;
  RT_TRY(UsableContext(&context));
  if (context == nullptr) {
    *ordinal = t_device;
    return cudaSuccess;
  }
  CUdevice handle = 0;
  RT_TRY(CU(cuCtxGetDevice)(&handle));
  return OrdinalOf(handle, ordinal);
}

cudaError_t CurrentDeviceHandle(CUdevice* handle) {
  int ordinal = 0;
  RT_TRY(CurrentDevice(&ordinal));
  *handle = HandleOf(ordinal);
  return cudaSuccess;
}

cudaError_t DeviceCount(int* count) {
  RT_TRY(Devices());
  *count = g_device_count;
  return cudaSuccess;
}

CUdevice HandleOf(int ordinal) {
  return Devices() == cudaSuccess && InRange(ordinal) ? g_devices[ordinal].handle : ordinal;
}

cudaError_t OrdinalOf(CUdevice handle, int* ordinal) {
  for (int i = 0; i < g_device_count; ++i) {
    if (g_devices[i].handle != handle) continue;
    *ordinal = i;
    return cudaSuccess;
  }
  return cudaErrorInvalidDevice;
}

}  // namespace softgpu::runtime

using namespace softgpu::runtime;

RT_API cudaError_t cudaGetDeviceCount(int* count) {
  return WithDriver([&] {
    if (count == nullptr) return cudaErrorInvalidValue;
    const cudaError_t error = DeviceCount(count);
    if (error == cudaErrorNoDevice) *count = 0;
    return error;
  });
}

RT_API cudaError_t cudaSetDevice(int device) {
  return WithDriver([&] {
    RT_TRY(BindPrimary(device));
    t_device = device;
    return cudaSuccess;
  });
}

RT_API cudaError_t cudaGetDevice(int* device) {
  return WithDriver([&] { return device == nullptr ? cudaErrorInvalidValue : CurrentDevice(device); });
}

RT_API cudaError_t cudaInitDevice(int device, unsigned int device_flags, unsigned int flags) {
  return WithDriver([&] {
    if ((flags & ~cudaInitDeviceFlagsAreValid) != 0) return cudaErrorInvalidValue;
    int count = 0;
    RT_TRY(DeviceCount(&count));
    if (!InRange(device)) return cudaErrorInvalidDevice;
    if (flags != 0)
      RT_TRY(CU(cuDevicePrimaryCtxSetFlags)(HandleOf(device), device_flags & ~cudaDeviceMapHost));
    CUcontext context = nullptr;
    return PrimaryContext(device, &context);
  });
}

// With a context of the program's own current there is nothing of ours to reset.
RT_API cudaError_t cudaDeviceReset(void) {
  return WithDriver([&] {
    RT_TRY(Devices());
    CUcontext context = nullptr;
    RT_TRY(UsableContext(&context));
    bool live = false;
    if (context != nullptr && OwnerOf(context, &live) < 0) return cudaSuccess;
    int ordinal = 0;
    RT_TRY(CurrentDevice(&ordinal));
    t_device = ordinal;
    RT_TRY(ResetPrimary(ordinal));
    InvalidateManaged();
    ForgetStickyErrors();
    return cudaSuccess;
  });
}

RT_API cudaError_t cudaSetDeviceFlags(unsigned int flags) {
  return WithDriver([&] {
    CUdevice handle = 0;
    RT_TRY(CurrentDeviceHandle(&handle));
    if ((flags & ~static_cast<unsigned>(cudaDeviceMask)) != 0) return cudaErrorInvalidValue;
    // Mapping host memory is implicit in every context; the driver takes the remaining flags.
    return CU(cuDevicePrimaryCtxSetFlags)(handle, flags & ~cudaDeviceMapHost);
  });
}

RT_API cudaError_t cudaGetDeviceFlags(unsigned int* flags) {
  return WithDriver([&] {
    if (flags == nullptr) return cudaErrorInvalidValue;
    RT_TRY(Devices());
    CUcontext context = nullptr;
    RT_TRY(UsableContext(&context));
    if (context != nullptr) {
      RT_TRY(CU(cuCtxGetFlags)(flags));
    } else {
      int active = 0;
      RT_TRY(CU(cuDevicePrimaryCtxGetState)(HandleOf(t_device), flags, &active));
    }
    bool live = false;
    if (context == nullptr || OwnerOf(context, &live) >= 0) *flags |= cudaDeviceMapHost;
    return cudaSuccess;
  });
}
