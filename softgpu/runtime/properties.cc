// cudaDeviceProp, field by field from the driver's attributes.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "softgpu/runtime/api.h"

namespace softgpu::runtime {
namespace {

// Programs are compiled against this layout.
static_assert(sizeof(cudaDeviceProp) == 1008);
static_assert(offsetof(cudaDeviceProp, uuid) == 256);
static_assert(offsetof(cudaDeviceProp, totalGlobalMem) == 288);
static_assert(offsetof(cudaDeviceProp, sharedMemPerBlock) == 296);
static_assert(offsetof(cudaDeviceProp, warpSize) == 308);
static_assert(offsetof(cudaDeviceProp, major) == 360);
static_assert(offsetof(cudaDeviceProp, minor) == 364);
static_assert(offsetof(cudaDeviceProp, multiProcessorCount) == 384);

struct Field {
  size_t offset;
  size_t size;  // of int or of size_t
  CUdevice_attribute attribute;
};

#define FIELD(member, attribute) \
  { offsetof(cudaDeviceProp, member), sizeof(cudaDeviceProp::member), CU_DEVICE_ATTRIBUTE_##attribute }
#define ELEMENT(member, index, attribute) \
  { offsetof(cudaDeviceProp, member) + (index) * sizeof(int), sizeof(int), CU_DEVICE_ATTRIBUTE_##attribute }

constexpr Field kFields[] = {
    FIELD(sharedMemPerBlock, MAX_SHARED_MEMORY_PER_BLOCK),
    FIELD(regsPerBlock, MAX_REGISTERS_PER_BLOCK),
    FIELD(warpSize, WARP_SIZE),
    FIELD(memPitch, MAX_PITCH),
    FIELD(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK),
    ELEMENT(maxThreadsDim, 0, MAX_BLOCK_DIM_X),
    ELEMENT(maxThreadsDim, 1, MAX_BLOCK_DIM_Y),
    ELEMENT(maxThreadsDim, 2, MAX_BLOCK_DIM_Z),
    ELEMENT(maxGridSize, 0, MAX_GRID_DIM_X),
    ELEMENT(maxGridSize, 1, MAX_GRID_DIM_Y),
    ELEMENT(maxGridSize, 2, MAX_GRID_DIM_Z),
    FIELD(totalConstMem, TOTAL_CONSTANT_MEMORY),
    FIELD(major, COMPUTE_CAPABILITY_MAJOR),
    FIELD(minor, COMPUTE_CAPABILITY_MINOR),
    FIELD(textureAlignment, TEXTURE_ALIGNMENT),
    FIELD(texturePitchAlignment, TEXTURE_PITCH_ALIGNMENT),
    FIELD(multiProcessorCount, MULTIPROCESSOR_COUNT),
    FIELD(integrated, INTEGRATED),
    FIELD(canMapHostMemory, CAN_MAP_HOST_MEMORY),
    FIELD(maxTexture1D, MAXIMUM_TEXTURE1D_WIDTH),
    FIELD(maxTexture1DMipmap, MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH),
    ELEMENT(maxTexture2D, 0, MAXIMUM_TEXTURE2D_WIDTH),
    ELEMENT(maxTexture2D, 1, MAXIMUM_TEXTURE2D_HEIGHT),
    ELEMENT(maxTexture2DMipmap, 0, MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH),
    ELEMENT(maxTexture2DMipmap, 1, MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT),
    ELEMENT(maxTexture2DLinear, 0, MAXIMUM_TEXTURE2D_LINEAR_WIDTH),
    ELEMENT(maxTexture2DLinear, 1, MAXIMUM_TEXTURE2D_LINEAR_HEIGHT),
    ELEMENT(maxTexture2DLinear, 2, MAXIMUM_TEXTURE2D_LINEAR_PITCH),
    ELEMENT(maxTexture2DGather, 0, MAXIMUM_TEXTURE2D_GATHER_WIDTH),
    ELEMENT(maxTexture2DGather, 1, MAXIMUM_TEXTURE2D_GATHER_HEIGHT),
    ELEMENT(maxTexture3D, 0, MAXIMUM_TEXTURE3D_WIDTH),
    ELEMENT(maxTexture3D, 1, MAXIMUM_TEXTURE3D_HEIGHT),
    ELEMENT(maxTexture3D, 2, MAXIMUM_TEXTURE3D_DEPTH),
    ELEMENT(maxTexture3DAlt, 0, MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE),
    ELEMENT(maxTexture3DAlt, 1, MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE),
    ELEMENT(maxTexture3DAlt, 2, MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE),
    FIELD(maxTextureCubemap, MAXIMUM_TEXTURECUBEMAP_WIDTH),
    ELEMENT(maxTexture1DLayered, 0, MAXIMUM_TEXTURE1D_LAYERED_WIDTH),
    ELEMENT(maxTexture1DLayered, 1, MAXIMUM_TEXTURE1D_LAYERED_LAYERS),
    ELEMENT(maxTexture2DLayered, 0, MAXIMUM_TEXTURE2D_LAYERED_WIDTH),
    ELEMENT(maxTexture2DLayered, 1, MAXIMUM_TEXTURE2D_LAYERED_HEIGHT),
    ELEMENT(maxTexture2DLayered, 2, MAXIMUM_TEXTURE2D_LAYERED_LAYERS),
    ELEMENT(maxTextureCubemapLayered, 0, MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH),
    ELEMENT(maxTextureCubemapLayered, 1, MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS),
    FIELD(maxSurface1D, MAXIMUM_SURFACE1D_WIDTH),
    ELEMENT(maxSurface2D, 0, MAXIMUM_SURFACE2D_WIDTH),
    ELEMENT(maxSurface2D, 1, MAXIMUM_SURFACE2D_HEIGHT),
    ELEMENT(maxSurface3D, 0, MAXIMUM_SURFACE3D_WIDTH),
    ELEMENT(maxSurface3D, 1, MAXIMUM_SURFACE3D_HEIGHT),
    ELEMENT(maxSurface3D, 2, MAXIMUM_SURFACE3D_DEPTH),
    ELEMENT(maxSurface1DLayered, 0, MAXIMUM_SURFACE1D_LAYERED_WIDTH),
    ELEMENT(maxSurface1DLayered, 1, MAXIMUM_SURFACE1D_LAYERED_LAYERS),
    ELEMENT(maxSurface2DLayered, 0, MAXIMUM_SURFACE2D_LAYERED_WIDTH),
    ELEMENT(maxSurface2DLayered, 1, MAXIMUM_SURFACE2D_LAYERED_HEIGHT),
    ELEMENT(maxSurface2DLayered, 2, MAXIMUM_SURFACE2D_LAYERED_LAYERS),
    FIELD(maxSurfaceCubemap, MAXIMUM_SURFACECUBEMAP_WIDTH),
    ELEMENT(maxSurfaceCubemapLayered, 0, MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH),
    ELEMENT(maxSurfaceCubemapLayered, 1, MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS),
    FIELD(surfaceAlignment, SURFACE_ALIGNMENT),
    FIELD(concurrentKernels, CONCURRENT_KERNELS),
    FIELD(ECCEnabled, ECC_ENABLED),
    FIELD(pciBusID, PCI_BUS_ID),
    FIELD(pciDeviceID, PCI_DEVICE_ID),
    FIELD(pciDomainID, PCI_DOMAIN_ID),
    FIELD(tccDriver, TCC_DRIVER),
    FIELD(asyncEngineCount, ASYNC_ENGINE_COUNT),
    FIELD(unifiedAddressing, UNIFIED_ADDRESSING),
    FIELD(memoryBusWidth, GLOBAL_MEMORY_BUS_WIDTH),
    FIELD(l2CacheSize, L2_CACHE_SIZE),
    FIELD(persistingL2CacheMaxSize, MAX_PERSISTING_L2_CACHE_SIZE),
    FIELD(maxThreadsPerMultiProcessor, MAX_THREADS_PER_MULTIPROCESSOR),
    FIELD(streamPrioritiesSupported, STREAM_PRIORITIES_SUPPORTED),
    FIELD(globalL1CacheSupported, GLOBAL_L1_CACHE_SUPPORTED),
    FIELD(localL1CacheSupported, LOCAL_L1_CACHE_SUPPORTED),
    FIELD(sharedMemPerMultiprocessor, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR),
    FIELD(regsPerMultiprocessor, MAX_REGISTERS_PER_MULTIPROCESSOR),
    FIELD(managedMemory, MANAGED_MEMORY),
    FIELD(isMultiGpuBoard, MULTI_GPU_BOARD),
    FIELD(multiGpuBoardGroupID, MULTI_GPU_BOARD_GROUP_ID),
    FIELD(hostNativeAtomicSupported, HOST_NATIVE_ATOMIC_SUPPORTED),
    FIELD(pageableMemoryAccess, PAGEABLE_MEMORY_ACCESS),
    FIELD(concurrentManagedAccess, CONCURRENT_MANAGED_ACCESS),
    FIELD(computePreemptionSupported, COMPUTE_PREEMPTION_SUPPORTED),
    FIELD(canUseHostPointerForRegisteredMem, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM),
    FIELD(cooperativeLaunch, COOPERATIVE_LAUNCH),
    FIELD(sharedMemPerBlockOptin, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
    FIELD(pageableMemoryAccessUsesHostPageTables, PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES),
    FIELD(directManagedMemAccessFromHost, DIRECT_MANAGED_MEM_ACCESS_FROM_HOST),
    FIELD(maxBlocksPerMultiProcessor, MAX_BLOCKS_PER_MULTIPROCESSOR),
    FIELD(accessPolicyMaxWindowSize, MAX_ACCESS_POLICY_WINDOW_SIZE),
    FIELD(reservedSharedMemPerBlock, RESERVED_SHARED_MEMORY_PER_BLOCK),
    FIELD(hostRegisterSupported, HOST_REGISTER_SUPPORTED),
    FIELD(sparseCudaArraySupported, SPARSE_CUDA_ARRAY_SUPPORTED),
    FIELD(hostRegisterReadOnlySupported, READ_ONLY_HOST_REGISTER_SUPPORTED),
    FIELD(timelineSemaphoreInteropSupported, TIMELINE_SEMAPHORE_INTEROP_SUPPORTED),
    FIELD(memoryPoolsSupported, MEMORY_POOLS_SUPPORTED),
    FIELD(gpuDirectRDMASupported, GPU_DIRECT_RDMA_SUPPORTED),
    FIELD(gpuDirectRDMAFlushWritesOptions, GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS),
    FIELD(gpuDirectRDMAWritesOrdering, GPU_DIRECT_RDMA_WRITES_ORDERING),
    FIELD(memoryPoolSupportedHandleTypes, MEMPOOL_SUPPORTED_HANDLE_TYPES),
    FIELD(deferredMappingCudaArraySupported, DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED),
    FIELD(ipcEventSupported, IPC_EVENT_SUPPORTED),
    FIELD(clusterLaunch, CLUSTER_LAUNCH),
    FIELD(unifiedFunctionPointers, UNIFIED_FUNCTION_POINTERS),
    FIELD(deviceNumaConfig, NUMA_CONFIG),
    FIELD(deviceNumaId, NUMA_ID),
    FIELD(mpsEnabled, MPS_ENABLED),
    FIELD(hostNumaId, HOST_NUMA_ID),
    FIELD(gpuPciDeviceID, GPU_PCI_DEVICE_ID),
    FIELD(gpuPciSubsystemID, GPU_PCI_SUBSYSTEM_ID),
    FIELD(hostNumaMultinodeIpcSupported, HOST_NUMA_MULTINODE_IPC_SUPPORTED),
};
#undef FIELD
#undef ELEMENT

// An attribute that the driver does not know leaves its field zero.
void SetField(cudaDeviceProp* prop, const Field& field, CUdevice device) {
  int value = 0;
  if (CU(cuDeviceGetAttribute)(&value, field.attribute, device) != cudaSuccess) return;
  char* target = reinterpret_cast<char*>(prop) + field.offset;
  if (field.size == sizeof(int)) {
    std::memcpy(target, &value, sizeof value);
  } else {
    const size_t wide = static_cast<unsigned>(value);
    std::memcpy(target, &wide, sizeof wide);
  }
}

cudaError_t Describe(cudaDeviceProp* prop, int ordinal) {
  int count = 0;
  RT_TRY(DeviceCount(&count));
  if (ordinal < 0 || ordinal >= count) return cudaErrorInvalidDevice;
  const CUdevice device = HandleOf(ordinal);
  *prop = {};
  RT_TRY(CU(cuDeviceGetName)(prop->name, sizeof prop->name, device));
  RT_TRY(CU(cuDeviceGetUuid)(&prop->uuid, device));
  RT_TRY(CU(cuDeviceTotalMem)(&prop->totalGlobalMem, device));
  for (const Field& field : kFields) SetField(prop, field, device);
  return cudaSuccess;
}

}  // namespace
}  // namespace softgpu::runtime

using namespace softgpu::runtime;

RT_API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  return WithDriver([&] { return prop == nullptr ? cudaErrorInvalidValue : Describe(prop, device); });
}
