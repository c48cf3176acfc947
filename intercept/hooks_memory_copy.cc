// Copies between peers name contexts inside of their structures; those in batches, arrays and places.
#include <vector>

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

void TranslateOperand(CUmemcpy3DOperand* operand) {
  if (operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
    operand->op.array.array = replay::ToReal(operand->op.array.array);
  } else if (operand->op.ptr.locHint.type == CU_MEM_LOCATION_TYPE_DEVICE) {
    operand->op.ptr.locHint.id = PhysicalDevice(operand->op.ptr.locHint.id);
  }
}

// The program's own list, or a copy of it while handles or devices are translated.
class RealBatch {
 public:
  RealBatch(CUDA_MEMCPY3D_BATCH_OP* visible, size_t count) : list_(visible) {
    if (visible == nullptr || !(replay::Translating() || DeviceMapActive())) return;
    copy_.assign(visible, visible + count);
    for (CUDA_MEMCPY3D_BATCH_OP& op : copy_) {
      TranslateOperand(&op.src);
      TranslateOperand(&op.dst);
    }
    list_ = copy_.data();
  }
  CUDA_MEMCPY3D_BATCH_OP* get() { return list_; }

 private:
  CUDA_MEMCPY3D_BATCH_OP* list_;
  std::vector<CUDA_MEMCPY3D_BATCH_OP> copy_;
};

}  // namespace

CUresult cuMemcpy3DBatchAsync(const Call& call, size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList,
                              size_t* failIdx, unsigned long long flags, CUstream hStream) {
  RealBatch batch(opList, numOps);
  return call.Real<decltype(&::cuMemcpy3DBatchAsync)>()(numOps, batch.get(), failIdx, flags,
                                                        replay::ToReal(hStream));
}

CUresult cuMemcpy3DBatchAsync_v2(const Call& call, size_t numOps, CUDA_MEMCPY3D_BATCH_OP* opList,
                                 unsigned long long flags, CUstream hStream) {
  RealBatch batch(opList, numOps);
  return call.Real<decltype(&::cuMemcpy3DBatchAsync_v2)>()(numOps, batch.get(), flags,
                                                           replay::ToReal(hStream));
}

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
