// Pinned and managed memory.
#include "intercept/memory_environment.h"
#include "vmm/host_memory.h"

namespace stasis::hooks {
namespace {

using vmm::HostMemory;

CUresult AllocateHost(const Call& call, void** pointer, size_t bytes, unsigned flags) {
  JoinMemory();
  bool carried = true;
  const CUresult result = HostMemory::Get().Allocate(pointer, bytes, flags, &carried);
  if (result == CUDA_SUCCESS && !carried) TaintOnce(call.fn, false);
  return result;
}

CUresult Register(const Call& call, void* pointer, size_t bytes, unsigned flags) {
  JoinMemory();
  return HostMemory::Get().Register(pointer, bytes, flags, call.Real<decltype(&::cuMemHostRegister_v2)>());
}

}  // namespace

CUresult cuMemAllocHost(const Call& call, void** pp, unsigned int bytesize) {
  return AllocateHost(call, pp, bytesize, 0);
}
CUresult cuMemAllocHost_v2(const Call& call, void** pp, size_t bytesize) {
  return AllocateHost(call, pp, bytesize, 0);
}
CUresult cuMemHostAlloc(const Call& call, void** pp, size_t bytesize, unsigned int Flags) {
  return AllocateHost(call, pp, bytesize, Flags);
}
CUresult cuMemFreeHost(const Call&, void* p) {
  JoinMemory();
  return HostMemory::Get().Free(p);
}
CUresult cuMemHostGetFlags(const Call&, unsigned int* pFlags, void* p) {
  return HostMemory::Get().GetFlags(pFlags, p);
}
CUresult cuMemHostRegister(const Call& call, void* p, size_t bytesize, unsigned int Flags) {
  return Register(call, p, bytesize, Flags);
}
CUresult cuMemHostRegister_v2(const Call& call, void* p, size_t bytesize, unsigned int Flags) {
  return Register(call, p, bytesize, Flags);
}
CUresult cuMemHostUnregister(const Call&, void* p) { return HostMemory::Get().Unregister(p); }

CUresult cuMemAllocManaged(const Call& call, CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
  JoinMemory();
  vmm::Caller caller;
  if (vmm::CurrentCaller(&caller) == CUDA_SUCCESS && HostMemory::Get().ManagedOnHost(caller.device))
    return HostMemory::Get().AllocateManaged(dptr, bytesize, flags);
  const CUresult result = call.Real<decltype(&::cuMemAllocManaged)>()(dptr, bytesize, flags);
  if (result == CUDA_SUCCESS) TaintOnce(call.fn, true);
  return result;
}

}  // namespace stasis::hooks
