// Apart from its callers, which are built twice: cuda.h renames cuGetProcAddress for the per-thread default
// stream to a name that drivers need not export.
#include "softgpu/runtime/entry_point.h"

#include "softgpu/runtime/driver.h"
#include "softgpu/runtime/errors.h"

namespace softgpu::runtime {

cudaError_t LookUpEntryPoint(const char* symbol, void** address, unsigned version, unsigned long long flags,
                             cudaDriverEntryPointQueryResult* status) {
  if (symbol == nullptr || address == nullptr) return cudaErrorInvalidValue;
  CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
  *address = nullptr;
  RT_TRY(CU(cuGetProcAddress)(symbol, address, static_cast<int>(version), flags, &found));
  if (status != nullptr) *status = static_cast<cudaDriverEntryPointQueryResult>(found);
  return cudaSuccess;
}

}  // namespace softgpu::runtime
