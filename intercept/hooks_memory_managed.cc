// Hints about memory: device ordinals inside of structures are the program's, the driver has its own.
#include "intercept/memory_environment.h"
#include "vmm/host_memory.h"

namespace stasis::hooks {
namespace {

// True for managed memory of ours, which lies on the host for good: hints about it are taken and change
// nothing.
bool IsManagedOnHost(CUdeviceptr address, size_t bytes) {
  const auto block = vmm::HostMemory::Get().Find(address);
  return block && block->kind == vmm::HostKind::kManaged && bytes != 0 && bytes <= block->end() - address;
}

}  // namespace

CUresult cuMemAdvise(const Call& call, CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                     CUdevice device) {
  if (IsManagedOnHost(devPtr, count)) return CUDA_SUCCESS;
  const CUresult result =
      call.Real<decltype(&::cuMemAdvise)>()(devPtr, count, advice, PhysicalDevice(device));
  if (result == CUDA_SUCCESS) TaintOnce(call.fn, false);
  return result;
}

CUresult cuMemAdvise_v2(const Call& call, CUdeviceptr devPtr, size_t count, CUmem_advise advice,
                        CUmemLocation location) {
  if (IsManagedOnHost(devPtr, count)) return CUDA_SUCCESS;
  const CUresult result =
      call.Real<decltype(&::cuMemAdvise_v2)>()(devPtr, count, advice, PhysicalLocation(location));
  if (result == CUDA_SUCCESS) TaintOnce(call.fn, false);
  return result;
}

CUresult cuMemPrefetchAsync(const Call& call, CUdeviceptr devPtr, size_t count, CUdevice dstDevice,
                            CUstream hStream) {
  if (IsManagedOnHost(devPtr, count)) return CUDA_SUCCESS;
  return call.Real<decltype(&::cuMemPrefetchAsync)>()(devPtr, count, PhysicalDevice(dstDevice),
                                                      replay::ToReal(hStream));
}

CUresult cuMemPrefetchAsync_v2(const Call& call, CUdeviceptr devPtr, size_t count, CUmemLocation location,
                               unsigned int flags, CUstream hStream) {
  if (IsManagedOnHost(devPtr, count)) return CUDA_SUCCESS;
  return call.Real<decltype(&::cuMemPrefetchAsync_v2)>()(devPtr, count, PhysicalLocation(location), flags,
                                                         replay::ToReal(hStream));
}

}  // namespace stasis::hooks
