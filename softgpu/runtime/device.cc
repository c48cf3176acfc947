// Versions, device lookup, and calls that only fill in a default.
#include "softgpu/runtime/api.h"
#include "softgpu/runtime/array_format.h"

namespace softgpu::runtime {
namespace {

// How many of the criteria that the caller set does this device meet?
int Matches(const cudaDeviceProp& wanted, const cudaDeviceProp& has) {
  int matches = 0;
  if (wanted.major != 0)
    matches += has.major > wanted.major || (has.major == wanted.major && has.minor >= wanted.minor);
  if (wanted.totalGlobalMem != 0) matches += has.totalGlobalMem >= wanted.totalGlobalMem;
  if (wanted.sharedMemPerBlock != 0) matches += has.sharedMemPerBlock >= wanted.sharedMemPerBlock;
  if (wanted.multiProcessorCount != 0) matches += has.multiProcessorCount >= wanted.multiProcessorCount;
  if (wanted.maxThreadsPerBlock != 0) matches += has.maxThreadsPerBlock >= wanted.maxThreadsPerBlock;
  return matches;
}

}  // namespace
}  // namespace softgpu::runtime

using namespace softgpu::runtime;

RT_API cudaError_t cudaRuntimeGetVersion(int* version) {
  if (version == nullptr) return Report(cudaErrorInvalidValue);
  *version = CUDART_VERSION;
  return cudaSuccess;
}

// Succeeds with 0 where there is no driver.
RT_API cudaError_t cudaDriverGetVersion(int* version) {
  if (version == nullptr) return Report(cudaErrorInvalidValue);
  *version = DriverVersion();
  return cudaSuccess;
}

RT_API cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp* wanted) {
  return WithDriver([&] {
    if (device == nullptr || wanted == nullptr) return cudaErrorInvalidValue;
    int count = 0;
    RT_TRY(DeviceCount(&count));
    int best = -1;
    for (int i = 0; i < count; ++i) {
      cudaDeviceProp has;
      RT_TRY(cudaGetDeviceProperties(&has, i));
      const int matches = Matches(*wanted, has);
      if (matches <= best) continue;
      best = matches;
      *device = i;
    }
    return cudaSuccess;
  });
}

RT_API cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* bus_id) {
  return WithDriver([&] {
    if (device == nullptr || bus_id == nullptr) return cudaErrorInvalidValue;
    int count = 0;
    RT_TRY(DeviceCount(&count));
    CUdevice handle = 0;
    RT_TRY(CU(cuDeviceGetByPCIBusId)(&handle, bus_id));
    return OrdinalOf(handle, device);
  });
}

RT_API cudaError_t cudaDeviceGetTexture1DLinearMaxWidth(size_t* width, const cudaChannelFormatDesc* desc,
                                                        int device) {
  return WithDriver([&] {
    if (width == nullptr || desc == nullptr) return cudaErrorInvalidValue;
    CUarray_format format = CU_AD_FORMAT_FLOAT;
    unsigned channels = 0;
    RT_TRY(ToDriver(*desc, &format, &channels));
    return CU(cuDeviceGetTexture1DLinearMaxWidth)(width, format, channels, HandleOf(device));
  });
}

RT_API cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return WithContext([&] { return CU(cuStreamCreate)(stream, CU_STREAM_DEFAULT); });
}

RT_API cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return WithContext([&] { return CU(cuEventCreate)(event, CU_EVENT_DEFAULT); });
}

// Profilers attach to the driver; there is none to start or stop here.
RT_API cudaError_t cudaProfilerStart(void) {
  return WithContext([] { return cudaSuccess; });
}

RT_API cudaError_t cudaProfilerStop(void) {
  return WithContext([] { return cudaSuccess; });
}
