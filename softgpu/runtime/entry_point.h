// Addresses of driver functions, for programs that ask the runtime for them.
#ifndef SOFTGPU_RUNTIME_ENTRY_POINT_H_
#define SOFTGPU_RUNTIME_ENTRY_POINT_H_

#include <cuda_runtime_api.h>

namespace softgpu::runtime {

// cuGetProcAddress; `flags` says for which default stream. A symbol that the driver does not know is no
// error: the address is null and the status, if wanted, says why.
cudaError_t LookUpEntryPoint(const char* symbol, void** address, unsigned version, unsigned long long flags,
                             cudaDriverEntryPointQueryResult* status);

}  // namespace softgpu::runtime

#endif  // SOFTGPU_RUNTIME_ENTRY_POINT_H_
