// From node parameters as the program gives them to actions, and back.
#ifndef SOFTGPU_DRIVER_GRAPH_PARAMS_H_
#define SOFTGPU_DRIVER_GRAPH_PARAMS_H_

#include <cuda.h>

#include <memory>
#include <vector>

#include "softgpu/driver/graph.h"
#include "softgpu/driver/launch.h"
#include "softgpu/driver/work.h"

namespace softgpu {

// The context that node parameters name, or the current one. INVALID_CONTEXT.
CUresult NodeContext(Context& current, CUcontext named, std::shared_ptr<Context>* out);

CUresult MakeKernel(Context& context, const CUDA_KERNEL_NODE_PARAMS_v2& params,
                    const std::vector<CUlaunchAttribute>& attributes, ActionPtr* out);
CUresult MakeCopy(const CUDA_MEMCPY3D& params, ActionPtr* out);
CUresult MakeSet(const CUDA_MEMSET_NODE_PARAMS& params, ActionPtr* out);
CUresult MakeHost(const CUDA_HOST_NODE_PARAMS& params, ActionPtr* out);
CUresult MakeChild(CUgraph graph, ActionPtr* out);
CUresult MakeEvent(CUevent event, CUgraphNodeType type, ActionPtr* out);
CUresult MakeMemOps(const CUDA_BATCH_MEM_OP_NODE_PARAMS& params, ActionPtr* out);
// Any of them. NOT_SUPPORTED for kinds that are not offered.
CUresult MakeAny(Context& context, const CUgraphNodeParams& params, ActionPtr* out);

// The third version has the same members as the second.
CUDA_KERNEL_NODE_PARAMS_v2 ToV2(const CUDA_KERNEL_NODE_PARAMS_v3& params);
void Describe(const KernelAction& action, CUDA_KERNEL_NODE_PARAMS_v2* params);

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_GRAPH_PARAMS_H_
