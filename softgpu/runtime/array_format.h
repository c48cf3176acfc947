// Channel descriptions of the runtime and array formats of the driver.
#ifndef SOFTGPU_RUNTIME_ARRAY_FORMAT_H_
#define SOFTGPU_RUNTIME_ARRAY_FORMAT_H_

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace softgpu::runtime {

// cudaErrorInvalidChannelDescriptor for combinations that no array has.
cudaError_t ToDriver(const cudaChannelFormatDesc& desc, CUarray_format* format, unsigned* channels);

// A descriptor of kind cudaChannelFormatKindNone for formats that the runtime cannot name.
cudaChannelFormatDesc FromDriver(CUarray_format format, unsigned channels);

// Bytes of one element, 0 for formats that are not made of plain elements.
size_t ElementBytes(const CUDA_ARRAY3D_DESCRIPTOR& descriptor);

}  // namespace softgpu::runtime

#endif  // SOFTGPU_RUNTIME_ARRAY_FORMAT_H_
