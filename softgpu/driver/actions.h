// The actions that are nodes of graphs: what entry points submit to streams, and graphs keep.
//
// Each keeps the parameters as the program gave them, for the queries of graphs, and what they resolve to.
#ifndef SOFTGPU_DRIVER_ACTIONS_H_
#define SOFTGPU_DRIVER_ACTIONS_H_

#include <cuda.h>

#include "softgpu/driver/memory_copy.h"
#include "softgpu/driver/work.h"

namespace softgpu {

class CopyAction final : public Action {
 public:
  CopyAction(const CUDA_MEMCPY3D& params, CopyJob job)
      : Action(CU_GRAPH_NODE_TYPE_MEMCPY, Runs::kWorker), params(params), job(std::move(job)) {}
  CUresult Run(Context& context) const override;
  const CUDA_MEMCPY3D params;
  const CopyJob job;
};

class SetAction final : public Action {
 public:
  SetAction(const CUDA_MEMSET_NODE_PARAMS& params, SetJob job)
      : Action(CU_GRAPH_NODE_TYPE_MEMSET, Runs::kWorker), params(params), job(job) {}
  CUresult Run(Context& context) const override;
  const CUDA_MEMSET_NODE_PARAMS params;
  const SetJob job;
};

class HostAction final : public Action {
 public:
  explicit HostAction(const CUDA_HOST_NODE_PARAMS& params)
      : Action(CU_GRAPH_NODE_TYPE_HOST, Runs::kWorker), params(params) {}
  CUresult Run(Context& context) const override;
  const CUDA_HOST_NODE_PARAMS params;
};

// Only order.
class EmptyAction final : public Action {
 public:
  EmptyAction() : Action(CU_GRAPH_NODE_TYPE_EMPTY, Runs::kInline) {}
  CUresult Run(Context&) const override { return CUDA_SUCCESS; }
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_ACTIONS_H_
