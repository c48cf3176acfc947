// Arrays, mipmapped arrays, texture and surface objects.
#include "softgpu/runtime/api.h"
#include "softgpu/runtime/array_format.h"

namespace softgpu::runtime {
namespace {

cudaError_t DescribeArray(const cudaChannelFormatDesc& desc, const cudaExtent& extent, unsigned flags,
                          CUDA_ARRAY3D_DESCRIPTOR* out) {
  *out = {};
  RT_TRY(ToDriver(desc, &out->Format, &out->NumChannels));
  out->Width = extent.width;
  out->Height = extent.height;
  out->Depth = extent.depth;
  out->Flags = flags;
  return cudaSuccess;
}

cudaError_t CreateArray(cudaArray_t* array, const cudaChannelFormatDesc* desc, const cudaExtent& extent,
                        unsigned flags) {
  if (array == nullptr || desc == nullptr) return cudaErrorInvalidValue;
  CUDA_ARRAY3D_DESCRIPTOR descriptor;
  RT_TRY(DescribeArray(*desc, extent, flags, &descriptor));
  return CU(cuArray3DCreate)(reinterpret_cast<CUarray*>(array), &descriptor);
}

CUarray Driver(cudaArray_const_t array) { return reinterpret_cast<CUarray>(const_cast<cudaArray_t>(array)); }

cudaError_t ToDriver(const cudaResourceDesc& in, CUDA_RESOURCE_DESC* out) {
  *out = {};
  out->resType = static_cast<CUresourcetype>(in.resType);
  out->flags = in.flags;
  switch (in.resType) {
    case cudaResourceTypeArray:
      out->res.array.hArray = Driver(in.res.array.array);
      return cudaSuccess;
    case cudaResourceTypeMipmappedArray:
      out->res.mipmap.hMipmappedArray = reinterpret_cast<CUmipmappedArray>(in.res.mipmap.mipmap);
      return cudaSuccess;
    case cudaResourceTypeLinear:
      out->res.linear.devPtr = reinterpret_cast<CUdeviceptr>(in.res.linear.devPtr);
      out->res.linear.sizeInBytes = in.res.linear.sizeInBytes;
      return softgpu::runtime::ToDriver(in.res.linear.desc, &out->res.linear.format,
                                        &out->res.linear.numChannels);
    case cudaResourceTypePitch2D:
      out->res.pitch2D.devPtr = reinterpret_cast<CUdeviceptr>(in.res.pitch2D.devPtr);
      out->res.pitch2D.width = in.res.pitch2D.width;
      out->res.pitch2D.height = in.res.pitch2D.height;
      out->res.pitch2D.pitchInBytes = in.res.pitch2D.pitchInBytes;
      return softgpu::runtime::ToDriver(in.res.pitch2D.desc, &out->res.pitch2D.format,
                                        &out->res.pitch2D.numChannels);
  }
  return cudaErrorInvalidValue;
}

cudaResourceDesc FromDriver(const CUDA_RESOURCE_DESC& in) {
  cudaResourceDesc out{};
  out.resType = static_cast<cudaResourceType>(in.resType);
  out.flags = in.flags;
  switch (in.resType) {
    case CU_RESOURCE_TYPE_ARRAY:
      out.res.array.array = reinterpret_cast<cudaArray_t>(in.res.array.hArray);
      break;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
      out.res.mipmap.mipmap = reinterpret_cast<cudaMipmappedArray_t>(in.res.mipmap.hMipmappedArray);
      break;
    case CU_RESOURCE_TYPE_LINEAR:
      out.res.linear.devPtr = reinterpret_cast<void*>(in.res.linear.devPtr);
      out.res.linear.desc = softgpu::runtime::FromDriver(in.res.linear.format, in.res.linear.numChannels);
      out.res.linear.sizeInBytes = in.res.linear.sizeInBytes;
      break;
    case CU_RESOURCE_TYPE_PITCH2D:
      out.res.pitch2D.devPtr = reinterpret_cast<void*>(in.res.pitch2D.devPtr);
      out.res.pitch2D.desc = softgpu::runtime::FromDriver(in.res.pitch2D.format, in.res.pitch2D.numChannels);
      out.res.pitch2D.width = in.res.pitch2D.width;
      out.res.pitch2D.height = in.res.pitch2D.height;
      out.res.pitch2D.pitchInBytes = in.res.pitch2D.pitchInBytes;
      break;
  }
  return out;
}

unsigned FlagsOf(const cudaTextureDesc& in) {
  unsigned flags = 0;
  if (in.readMode == cudaReadModeElementType) flags |= CU_TRSF_READ_AS_INTEGER;
  if (in.normalizedCoords != 0) flags |= CU_TRSF_NORMALIZED_COORDINATES;
  if (in.sRGB != 0) flags |= CU_TRSF_SRGB;
  if (in.disableTrilinearOptimization != 0) flags |= CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION;
  if (in.seamlessCubemap != 0) flags |= CU_TRSF_SEAMLESS_CUBEMAP;
  return flags;
}

CUDA_TEXTURE_DESC ToDriver(const cudaTextureDesc& in) {
  CUDA_TEXTURE_DESC out{};
  for (int i = 0; i < 3; ++i) out.addressMode[i] = static_cast<CUaddress_mode>(in.addressMode[i]);
  for (int i = 0; i < 4; ++i) out.borderColor[i] = in.borderColor[i];
  out.filterMode = static_cast<CUfilter_mode>(in.filterMode);
  out.flags = FlagsOf(in);
  out.maxAnisotropy = in.maxAnisotropy;
  out.mipmapFilterMode = static_cast<CUfilter_mode>(in.mipmapFilterMode);
  out.mipmapLevelBias = in.mipmapLevelBias;
  out.minMipmapLevelClamp = in.minMipmapLevelClamp;
  out.maxMipmapLevelClamp = in.maxMipmapLevelClamp;
  return out;
}

cudaTextureDesc FromDriver(const CUDA_TEXTURE_DESC& in) {
  cudaTextureDesc out{};
  for (int i = 0; i < 3; ++i) out.addressMode[i] = static_cast<cudaTextureAddressMode>(in.addressMode[i]);
  for (int i = 0; i < 4; ++i) out.borderColor[i] = in.borderColor[i];
  out.filterMode = static_cast<cudaTextureFilterMode>(in.filterMode);
  const bool as_integer = (in.flags & CU_TRSF_READ_AS_INTEGER) != 0;
  out.readMode = as_integer ? cudaReadModeElementType : cudaReadModeNormalizedFloat;
  out.normalizedCoords = (in.flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
  out.sRGB = (in.flags & CU_TRSF_SRGB) != 0;
  out.disableTrilinearOptimization = (in.flags & CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION) != 0;
  out.seamlessCubemap = (in.flags & CU_TRSF_SEAMLESS_CUBEMAP) != 0;
  out.maxAnisotropy = in.maxAnisotropy;
  out.mipmapFilterMode = static_cast<cudaTextureFilterMode>(in.mipmapFilterMode);
  out.mipmapLevelBias = in.mipmapLevelBias;
  out.minMipmapLevelClamp = in.minMipmapLevelClamp;
  out.maxMipmapLevelClamp = in.maxMipmapLevelClamp;
  return out;
}

// The two headers declare the same structure; the formats are numbered alike.
static_assert(sizeof(cudaResourceViewDesc) == sizeof(CUDA_RESOURCE_VIEW_DESC));

}  // namespace
}  // namespace softgpu::runtime

using namespace softgpu::runtime;

RT_API cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, cudaChannelFormatKind kind) {
  return {x, y, z, w, kind};
}

RT_API cudaError_t cudaMallocArray(cudaArray_t* array, const cudaChannelFormatDesc* desc, size_t width,
                                   size_t height, unsigned int flags) {
  return WithContext([&] { return CreateArray(array, desc, {width, height, 0}, flags); });
}

RT_API cudaError_t cudaMalloc3DArray(cudaArray_t* array, const cudaChannelFormatDesc* desc, cudaExtent extent,
                                     unsigned int flags) {
  return WithContext([&] { return CreateArray(array, desc, extent, flags); });
}

RT_API cudaError_t cudaMallocMipmappedArray(cudaMipmappedArray_t* array, const cudaChannelFormatDesc* desc,
                                            cudaExtent extent, unsigned int levels, unsigned int flags) {
  return WithContext([&] {
    if (array == nullptr || desc == nullptr) return cudaErrorInvalidValue;
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    RT_TRY(DescribeArray(*desc, extent, flags, &descriptor));
    return CU(cuMipmappedArrayCreate)(reinterpret_cast<CUmipmappedArray*>(array), &descriptor, levels);
  });
}

RT_API cudaError_t cudaFreeArray(cudaArray_t array) {
  return WithContext([&] { return array == nullptr ? cudaSuccess : CU(cuArrayDestroy)(Driver(array)); });
}

RT_API cudaError_t cudaFreeMipmappedArray(cudaMipmappedArray_t array) {
  return WithContext([&] {
    if (array == nullptr) return cudaSuccess;
    return CU(cuMipmappedArrayDestroy)(reinterpret_cast<CUmipmappedArray>(array));
  });
}

RT_API cudaError_t cudaArrayGetInfo(cudaChannelFormatDesc* desc, cudaExtent* extent, unsigned int* flags,
                                    cudaArray_t array) {
  return WithContext([&] {
    CUDA_ARRAY3D_DESCRIPTOR descriptor{};
    RT_TRY(CU(cuArray3DGetDescriptor)(&descriptor, Driver(array)));
    if (desc != nullptr) *desc = softgpu::runtime::FromDriver(descriptor.Format, descriptor.NumChannels);
    if (extent != nullptr) *extent = {descriptor.Width, descriptor.Height, descriptor.Depth};
    if (flags != nullptr) *flags = descriptor.Flags;
    return cudaSuccess;
  });
}

RT_API cudaError_t cudaGetChannelDesc(cudaChannelFormatDesc* desc, cudaArray_const_t array) {
  return WithContext([&] {
    if (desc == nullptr) return cudaErrorInvalidValue;
    CUDA_ARRAY3D_DESCRIPTOR descriptor{};
    RT_TRY(CU(cuArray3DGetDescriptor)(&descriptor, Driver(array)));
    *desc = softgpu::runtime::FromDriver(descriptor.Format, descriptor.NumChannels);
    return cudaSuccess;
  });
}

RT_API cudaError_t cudaCreateTextureObject(cudaTextureObject_t* texture, const cudaResourceDesc* resource,
                                           const cudaTextureDesc* sampling,
                                           const cudaResourceViewDesc* view) {
  return WithContext([&] {
    if (texture == nullptr || resource == nullptr || sampling == nullptr) return cudaErrorInvalidValue;
    CUDA_RESOURCE_DESC driver_resource;
    RT_TRY(ToDriver(*resource, &driver_resource));
    const CUDA_TEXTURE_DESC driver_sampling = ToDriver(*sampling);
    return CU(cuTexObjectCreate)(texture, &driver_resource, &driver_sampling,
                                 reinterpret_cast<const CUDA_RESOURCE_VIEW_DESC*>(view));
  });
}

RT_API cudaError_t cudaGetTextureObjectResourceDesc(cudaResourceDesc* desc, cudaTextureObject_t texture) {
  return WithContext([&] {
    if (desc == nullptr) return cudaErrorInvalidValue;
    CUDA_RESOURCE_DESC driver_desc{};
    RT_TRY(CU(cuTexObjectGetResourceDesc)(&driver_desc, texture));
    *desc = FromDriver(driver_desc);
    return cudaSuccess;
  });
}

RT_API cudaError_t cudaGetTextureObjectTextureDesc(cudaTextureDesc* desc, cudaTextureObject_t texture) {
  return WithContext([&] {
    if (desc == nullptr) return cudaErrorInvalidValue;
    CUDA_TEXTURE_DESC driver_desc{};
    RT_TRY(CU(cuTexObjectGetTextureDesc)(&driver_desc, texture));
    *desc = FromDriver(driver_desc);
    return cudaSuccess;
  });
}

RT_API cudaError_t cudaGetTextureObjectResourceViewDesc(cudaResourceViewDesc* desc,
                                                        cudaTextureObject_t texture) {
  return WithContext([&] {
    if (desc == nullptr) return cudaErrorInvalidValue;
    return CU(cuTexObjectGetResourceViewDesc)(reinterpret_cast<CUDA_RESOURCE_VIEW_DESC*>(desc), texture);
  });
}

RT_API cudaError_t cudaCreateSurfaceObject(cudaSurfaceObject_t* surface, const cudaResourceDesc* resource) {
  return WithContext([&] {
    if (surface == nullptr || resource == nullptr) return cudaErrorInvalidValue;
    CUDA_RESOURCE_DESC driver_resource;
    RT_TRY(ToDriver(*resource, &driver_resource));
    return CU(cuSurfObjectCreate)(surface, &driver_resource);
  });
}

RT_API cudaError_t cudaGetSurfaceObjectResourceDesc(cudaResourceDesc* desc, cudaSurfaceObject_t surface) {
  return WithContext([&] {
    if (desc == nullptr) return cudaErrorInvalidValue;
    CUDA_RESOURCE_DESC driver_desc{};
    RT_TRY(CU(cuSurfObjectGetResourceDesc)(&driver_desc, surface));
    *desc = FromDriver(driver_desc);
    return cudaSuccess;
  });
}
