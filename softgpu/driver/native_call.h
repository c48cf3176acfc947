// Kernels whose body is native code of a library in this process (softgpu/native).
#ifndef SOFTGPU_DRIVER_NATIVE_CALL_H_
#define SOFTGPU_DRIVER_NATIVE_CALL_H_

#include <cuda.h>

#include <cstdint>
#include <vector>

namespace softgpu {

class Context;

// Calls the body that `params`, the parameters of a native kernel, names, on the calling thread. What it
// returns breaks the context: ILLEGAL_ADDRESS, LAUNCH_FAILED.
CUresult RunNative(Context& context, const std::vector<uint8_t>& params);

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_NATIVE_CALL_H_
