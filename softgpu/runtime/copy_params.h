// Descriptions of copies: the runtime's parameters in the driver's structures, and back.
#ifndef SOFTGPU_RUNTIME_COPY_PARAMS_H_
#define SOFTGPU_RUNTIME_COPY_PARAMS_H_

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace softgpu::runtime {

// What a copy direction says about each side. cudaErrorInvalidMemcpyDirection for a value that is no
// direction.
struct CopySides {
  CUmemorytype dst = CU_MEMORYTYPE_UNIFIED;
  CUmemorytype src = CU_MEMORYTYPE_UNIFIED;
};
cudaError_t SidesOf(cudaMemcpyKind kind, CopySides* sides);

// Sets one side of a CUDA_MEMCPY2D, CUDA_MEMCPY3D or CUDA_MEMCPY3D_PEER to linear memory.
template <typename Copy>
void SetSource(Copy* copy, CUmemorytype type, const void* address, size_t pitch) {
  copy->srcMemoryType = type;
  copy->srcPitch = pitch;
  if (type == CU_MEMORYTYPE_HOST) {
    copy->srcHost = address;
  } else {
    copy->srcDevice = reinterpret_cast<CUdeviceptr>(address);
  }
}

template <typename Copy>
void SetTarget(Copy* copy, CUmemorytype type, void* address, size_t pitch) {
  copy->dstMemoryType = type;
  copy->dstPitch = pitch;
  if (type == CU_MEMORYTYPE_HOST) {
    copy->dstHost = address;
  } else {
    copy->dstDevice = reinterpret_cast<CUdeviceptr>(address);
  }
}

// Sets one side to an array, at an offset in bytes and rows.
template <typename Copy>
void SetSource(Copy* copy, cudaArray_const_t array, size_t x_bytes, size_t y) {
  copy->srcMemoryType = CU_MEMORYTYPE_ARRAY;
  copy->srcArray = reinterpret_cast<CUarray>(const_cast<cudaArray_t>(array));
  copy->srcXInBytes = x_bytes;
  copy->srcY = y;
}

template <typename Copy>
void SetTarget(Copy* copy, cudaArray_t array, size_t x_bytes, size_t y) {
  copy->dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy->dstArray = reinterpret_cast<CUarray>(array);
  copy->dstXInBytes = x_bytes;
  copy->dstY = y;
}

// A 3D copy. Its extent counts elements of the array that takes part, bytes if none does.
cudaError_t ToDriver(const cudaMemcpy3DParms& params, CUDA_MEMCPY3D* copy);
cudaError_t FromDriver(const CUDA_MEMCPY3D& copy, cudaMemcpy3DParms* params);

// The same between devices, with the primary contexts of both.
cudaError_t ToDriver(const cudaMemcpy3DPeerParms& params, CUDA_MEMCPY3D_PEER* copy);

// A copy of `count` contiguous bytes.
cudaError_t LinearCopy(void* dst, const void* src, size_t count, cudaMemcpyKind kind, CUDA_MEMCPY3D* copy);

}  // namespace softgpu::runtime

#endif  // SOFTGPU_RUNTIME_COPY_PARAMS_H_
