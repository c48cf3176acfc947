// Stream memory operations: single words that a stream writes or waits for.
#ifndef SOFTGPU_DRIVER_MEM_OPS_H_
#define SOFTGPU_DRIVER_MEM_OPS_H_

#include <cuda.h>

#include <memory>
#include <vector>

#include "softgpu/driver/work.h"

namespace softgpu {

class MemOpsAction final : public Action {
 public:
  // INVALID_VALUE for unknown operations, flags, and addresses that are misaligned or not the driver's
  // memory; NOT_SUPPORTED for flushes of remote writes.
  static CUresult Create(const CUstreamBatchMemOpParams* ops, unsigned count,
                         std::shared_ptr<MemOpsAction>* out);
  explicit MemOpsAction(std::vector<CUstreamBatchMemOpParams> ops)
      : Action(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, Runs::kWorker), ops(std::move(ops)) {}
  CUresult Run(Context& context) const override;
  const std::vector<CUstreamBatchMemOpParams> ops;
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_MEM_OPS_H_
