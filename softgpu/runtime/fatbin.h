// The fat binary wrapper that nvcc emits per object, and how it becomes a driver library.
#ifndef SOFTGPU_RUNTIME_FATBIN_H_
#define SOFTGPU_RUNTIME_FATBIN_H_

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace softgpu::runtime {

// Layout of crt/fatbinary_section.h's wrapper.
struct FatbinWrapper {
  uint32_t magic;
  uint32_t version;
  const void* data;          // one fat binary
  const void* const* parts;  // version 2: null-terminated list of the per-file fat binaries to link
};
static_assert(sizeof(FatbinWrapper) == 24);

// Loads what the wrapper describes. Relocatable device code is linked first. Needs a current context. The
// error is the driver's, or cudaErrorInvalidKernelImage for a wrapper that is not one.
cudaError_t LoadFatbin(const FatbinWrapper* wrapper, CUlibrary* library);

}  // namespace softgpu::runtime

#endif  // SOFTGPU_RUNTIME_FATBIN_H_
