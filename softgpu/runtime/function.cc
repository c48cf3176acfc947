// Attributes, names, parameters and occupancy of kernels.
#include "softgpu/runtime/api.h"
#include "softgpu/runtime/launch_config.h"
#include "softgpu/runtime/registry.h"

namespace softgpu::runtime {
namespace {

// A kernel on the calling thread's device.
struct Subject {
  CUkernel kernel = nullptr;
  CUdevice device = 0;
};

cudaError_t Resolve(const void* func, Subject* subject) {
  RT_TRY(ResolveKernel(func, &subject->kernel));
  return CurrentDeviceHandle(&subject->device);
}

// The driver's occupancy calls take a CUkernel in place of a CUfunction.
cudaError_t ResolveFunction(const void* func, CUfunction* function) {
  CUkernel kernel = nullptr;
  RT_TRY(ResolveKernel(func, &kernel));
  *function = reinterpret_cast<CUfunction>(kernel);
  return cudaSuccess;
}

cudaError_t Attribute(const Subject& subject, CUfunction_attribute attribute, int* value) {
  return CU(cuKernelGetAttribute)(value, attribute, subject.kernel, subject.device);
}

cudaError_t SizeAttribute(const Subject& subject, CUfunction_attribute attribute, size_t* value) {
  int number = 0;
  RT_TRY(Attribute(subject, attribute, &number));
  *value = static_cast<unsigned>(number);
  return cudaSuccess;
}

cudaError_t ReadAttributes(const Subject& subject, cudaFuncAttributes* out) {
  *out = {};
  RT_TRY(SizeAttribute(subject, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &out->sharedSizeBytes));
  RT_TRY(SizeAttribute(subject, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES, &out->constSizeBytes));
  RT_TRY(SizeAttribute(subject, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES, &out->localSizeBytes));
  const struct {
    CUfunction_attribute attribute;
    int* field;
  } fields[] = {
      {CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &out->maxThreadsPerBlock},
      {CU_FUNC_ATTRIBUTE_NUM_REGS, &out->numRegs},
      {CU_FUNC_ATTRIBUTE_PTX_VERSION, &out->ptxVersion},
      {CU_FUNC_ATTRIBUTE_BINARY_VERSION, &out->binaryVersion},
      {CU_FUNC_ATTRIBUTE_CACHE_MODE_CA, &out->cacheModeCA},
      {CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, &out->maxDynamicSharedSizeBytes},
      {CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, &out->preferredShmemCarveout},
      {CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET, &out->clusterDimMustBeSet},
      {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, &out->requiredClusterWidth},
      {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, &out->requiredClusterHeight},
      {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, &out->requiredClusterDepth},
      {CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, &out->clusterSchedulingPolicyPreference},
      {CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, &out->nonPortableClusterSizeAllowed},
  };
  for (const auto& field : fields) RT_TRY(Attribute(subject, field.attribute, field.field));
  return cudaSuccess;
}

}  // namespace
}  // namespace softgpu::runtime

using namespace softgpu::runtime;

RT_API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* func) {
  return WithContext([&] {
    if (attributes == nullptr) return cudaErrorInvalidValue;
    Subject subject;
    RT_TRY(Resolve(func, &subject));
    return ReadAttributes(subject, attributes);
  });
}

RT_API cudaError_t cudaFuncSetAttribute(const void* func, cudaFuncAttribute attribute, int value) {
  return WithContext([&] {
    Subject subject;
    RT_TRY(Resolve(func, &subject));
    return CU(cuKernelSetAttribute)(static_cast<CUfunction_attribute>(attribute), value, subject.kernel,
                                    subject.device);
  });
}

RT_API cudaError_t cudaFuncSetCacheConfig(const void* func, cudaFuncCache config) {
  return WithContext([&] {
    Subject subject;
    RT_TRY(Resolve(func, &subject));
    return CU(cuKernelSetCacheConfig)(subject.kernel, static_cast<CUfunc_cache>(config), subject.device);
  });
}

RT_API cudaError_t cudaFuncGetName(const char** name, const void* func) {
  return WithContext([&] {
    if (name == nullptr) return cudaErrorInvalidValue;
    CUkernel kernel = nullptr;
    RT_TRY(ResolveKernel(func, &kernel));
    return CU(cuKernelGetName)(name, kernel);
  });
}

RT_API cudaError_t cudaFuncGetParamInfo(const void* func, size_t index, size_t* offset, size_t* size) {
  return WithContext([&] {
    CUkernel kernel = nullptr;
    RT_TRY(ResolveKernel(func, &kernel));
    return CU(cuKernelGetParamInfo)(kernel, index, offset, size);
  });
}

RT_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* func,
                                                                          int block_size, size_t shared_bytes,
                                                                          unsigned int flags) {
  return WithContext([&] {
    CUfunction function = nullptr;
    RT_TRY(ResolveFunction(func, &function));
    return CU(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)(blocks, function, block_size,
                                                                    shared_bytes, flags);
  });
}

RT_API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* func,
                                                                 int block_size, size_t shared_bytes) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, func, block_size, shared_bytes,
                                                                cudaOccupancyDefault);
}

RT_API cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* shared_bytes, const void* func,
                                                             int blocks, int block_size) {
  return WithContext([&] {
    CUfunction function = nullptr;
    RT_TRY(ResolveFunction(func, &function));
    return CU(cuOccupancyAvailableDynamicSMemPerBlock)(shared_bytes, function, blocks, block_size);
  });
}

RT_API cudaError_t cudaOccupancyMaxPotentialClusterSize(int* size, const void* func,
                                                        const cudaLaunchConfig_t* config) {
  return WithContext([&] {
    if (config == nullptr) return cudaErrorInvalidValue;
    CUfunction function = nullptr;
    RT_TRY(ResolveFunction(func, &function));
    CUlaunchConfig driver_config;
    RT_TRY(ToDriver(*config, &driver_config));
    return CU(cuOccupancyMaxPotentialClusterSize)(size, function, &driver_config);
  });
}

RT_API cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void* func,
                                                  const cudaLaunchConfig_t* config) {
  return WithContext([&] {
    if (config == nullptr) return cudaErrorInvalidValue;
    CUfunction function = nullptr;
    RT_TRY(ResolveFunction(func, &function));
    CUlaunchConfig driver_config;
    RT_TRY(ToDriver(*config, &driver_config));
    return CU(cuOccupancyMaxActiveClusters)(clusters, function, &driver_config);
  });
}
