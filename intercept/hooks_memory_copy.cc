// Copies between peers name contexts inside of their structures.
#include "intercept/wrapper_support.h"
#include "intercept_hooks.h"

namespace stasis::hooks {
namespace {

CUDA_MEMCPY3D_PEER RealCopy(const CUDA_MEMCPY3D_PEER& visible) {
  CUDA_MEMCPY3D_PEER real = visible;
  real.srcContext = replay::ToReal(visible.srcContext);
  real.dstContext = replay::ToReal(visible.dstContext);
  if (visible.srcMemoryType == CU_MEMORYTYPE_ARRAY) real.srcArray = replay::ToReal(visible.srcArray);
  if (visible.dstMemoryType == CU_MEMORYTYPE_ARRAY) real.dstArray = replay::ToReal(visible.dstArray);
  return real;
}

}  // namespace

CUresult cuMemcpy3DPeer(const Call& call, const CUDA_MEMCPY3D_PEER* pCopy) {
  const auto real = call.Real<decltype(&::cuMemcpy3DPeer)>();
  if (!replay::Translating() || pCopy == nullptr) return real(pCopy);
  const CUDA_MEMCPY3D_PEER copy = RealCopy(*pCopy);
  return real(&copy);
}

CUresult cuMemcpy3DPeerAsync(const Call& call, const CUDA_MEMCPY3D_PEER* pCopy, CUstream hStream) {
  const auto real = call.Real<decltype(&::cuMemcpy3DPeerAsync)>();
  if (!replay::Translating() || pCopy == nullptr) return real(pCopy, replay::ToReal(hStream));
  const CUDA_MEMCPY3D_PEER copy = RealCopy(*pCopy);
  return real(&copy, replay::ToReal(hStream));
}

}  // namespace stasis::hooks
