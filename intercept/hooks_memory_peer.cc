// Peer access between contexts: the driver gives it to its own memory, we give it to ours.
#include "intercept/memory_environment.h"
#include "vmm/memory.h"

namespace stasis::hooks {

CUresult cuCtxEnablePeerAccess(const Call& call, CUcontext peerContext, unsigned int Flags) {
  JoinMemory();
  const CUresult result = call.Real<decltype(&::cuCtxEnablePeerAccess)>()(replay::ToReal(peerContext), Flags);
  vmm::Caller caller;
  if (result != CUDA_SUCCESS || vmm::CurrentCaller(&caller) != CUDA_SUCCESS) return result;
  const CUresult shared = vmm::Memory::Get().EnablePeer(caller.context, caller.device, peerContext);
  if (shared != CUDA_SUCCESS) Driver().cuCtxDisablePeerAccess(replay::ToReal(peerContext));
  return shared;
}

CUresult cuCtxDisablePeerAccess(const Call& call, CUcontext peerContext) {
  JoinMemory();
  const CUresult result = call.Real<decltype(&::cuCtxDisablePeerAccess)>()(replay::ToReal(peerContext));
  vmm::Caller caller;
  if (result == CUDA_SUCCESS && vmm::CurrentCaller(&caller) == CUDA_SUCCESS)
    vmm::Memory::Get().DisablePeer(caller.context, peerContext);
  return result;
}

}  // namespace stasis::hooks
