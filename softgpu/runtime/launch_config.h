// The runtime's launch configuration in the driver's structure.
#ifndef SOFTGPU_RUNTIME_LAUNCH_CONFIG_H_
#define SOFTGPU_RUNTIME_LAUNCH_CONFIG_H_

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <climits>

namespace softgpu::runtime {

static_assert(sizeof(cudaLaunchAttribute) == sizeof(CUlaunchAttribute));

// cudaErrorInvalidValue for more shared memory than the driver can be asked for.
inline cudaError_t ToDriver(const cudaLaunchConfig_t& in, CUlaunchConfig* out) {
  if (in.dynamicSmemBytes > UINT_MAX) return cudaErrorInvalidValue;
  *out = {};
  out->gridDimX = in.gridDim.x;
  out->gridDimY = in.gridDim.y;
  out->gridDimZ = in.gridDim.z;
  out->blockDimX = in.blockDim.x;
  out->blockDimY = in.blockDim.y;
  out->blockDimZ = in.blockDim.z;
  out->sharedMemBytes = static_cast<unsigned>(in.dynamicSmemBytes);
  out->hStream = in.stream;
  out->attrs = reinterpret_cast<CUlaunchAttribute*>(in.attrs);
  out->numAttrs = in.numAttrs;
  return cudaSuccess;
}

}  // namespace softgpu::runtime

#endif  // SOFTGPU_RUNTIME_LAUNCH_CONFIG_H_
