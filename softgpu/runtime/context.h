// Devices, their primary contexts, and the context current on the calling thread.
#ifndef SOFTGPU_RUNTIME_CONTEXT_H_
#define SOFTGPU_RUNTIME_CONTEXT_H_

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace softgpu::runtime {

// Makes sure that a context is current: one that the program set through the driver API is left alone,
// otherwise the primary context of the thread's device is bound, and retained first if this is its first use.
cudaError_t EnsureContext();

// The context current on the calling thread, after EnsureContext.
cudaError_t CurrentContext(CUcontext* context);

// The primary context of a device, retained on first use. Needs an initialised driver.
cudaError_t PrimaryContext(int ordinal, CUcontext* context);

// Ordinal of the device that the calling thread works on. Needs an initialised driver, creates no context.
cudaError_t CurrentDevice(int* ordinal);

// The driver's handle of the calling thread's device.
cudaError_t CurrentDeviceHandle(CUdevice* handle);

cudaError_t DeviceCount(int* count);

// The driver's handle of a device. An ordinal that is out of range is passed through for the driver to
// refuse.
CUdevice HandleOf(int ordinal);

// Ordinal of a device handle, cudaErrorInvalidDevice if there is none.
cudaError_t OrdinalOf(CUdevice handle, int* ordinal);

}  // namespace softgpu::runtime

#endif  // SOFTGPU_RUNTIME_CONTEXT_H_
