// Graph nodes whose parameters differ between the two APIs: kernels, copies, fills, and the generic form.
#include <cstring>

#include "softgpu/runtime/api.h"
#include "softgpu/runtime/copy_params.h"
#include "softgpu/runtime/registry.h"

namespace softgpu::runtime {
namespace {

using Nodes = const cudaGraphNode_t*;

// Works on cudaKernelNodeParams(V2) and CUDA_KERNEL_NODE_PARAMS_v2/_v3, which have the same members.
template <typename Params, typename DriverParams>
cudaError_t KernelToDriver(const Params& params, DriverParams* out) {
  *out = {};
  RT_TRY(ResolveKernel(params.func, &out->kern));
  RT_TRY(CurrentContext(&out->ctx));
  out->gridDimX = params.gridDim.x;
  out->gridDimY = params.gridDim.y;
  out->gridDimZ = params.gridDim.z;
  out->blockDimX = params.blockDim.x;
  out->blockDimY = params.blockDim.y;
  out->blockDimZ = params.blockDim.z;
  out->sharedMemBytes = params.sharedMemBytes;
  out->kernelParams = params.kernelParams;
  out->extra = params.extra;
  return cudaSuccess;
}

cudaKernelNodeParams KernelFromDriver(const CUDA_KERNEL_NODE_PARAMS& in) {
  cudaKernelNodeParams out{};
  out.func = StubOf(in.kern, in.func);
  out.gridDim = dim3(in.gridDimX, in.gridDimY, in.gridDimZ);
  out.blockDim = dim3(in.blockDimX, in.blockDimY, in.blockDimZ);
  out.sharedMemBytes = in.sharedMemBytes;
  out.kernelParams = in.kernelParams;
  out.extra = in.extra;
  return out;
}

cudaError_t CopyToSymbol(const void* symbol, const void* src, size_t count, size_t offset,
                         cudaMemcpyKind kind, CUDA_MEMCPY3D* copy) {
  void* dst = nullptr;
  RT_TRY(ResolveSymbolRange(symbol, offset, count, &dst));
  return LinearCopy(dst, src, count, kind, copy);
}

cudaError_t CopyFromSymbol(void* dst, const void* symbol, size_t count, size_t offset, cudaMemcpyKind kind,
                           CUDA_MEMCPY3D* copy) {
  void* src = nullptr;
  RT_TRY(ResolveSymbolRange(symbol, offset, count, &src));
  return LinearCopy(dst, src, count, kind, copy);
}

cudaError_t AddCopy(cudaGraphNode_t* node, cudaGraph_t graph, Nodes after, size_t count,
                    const CUDA_MEMCPY3D& copy) {
  CUcontext context = nullptr;
  RT_TRY(CurrentContext(&context));
  return CU(cuGraphAddMemcpyNode)(node, graph, after, count, &copy, context);
}

cudaError_t SetExecCopy(cudaGraphExec_t exec, cudaGraphNode_t node, const CUDA_MEMCPY3D& copy) {
  CUcontext context = nullptr;
  RT_TRY(CurrentContext(&context));
  return CU(cuGraphExecMemcpyNodeSetParams)(exec, node, &copy, context);
}

static_assert(sizeof(cudaMemsetParams) == sizeof(CUDA_MEMSET_NODE_PARAMS));
const CUDA_MEMSET_NODE_PARAMS* Driver(const cudaMemsetParams* params) {
  return reinterpret_cast<const CUDA_MEMSET_NODE_PARAMS*>(params);
}

static_assert(sizeof(cudaGraphNodeParams) == sizeof(CUgraphNodeParams));

cudaError_t MemsetToDriver(const cudaMemsetParamsV2& in, CUDA_MEMSET_NODE_PARAMS_v2* out) {
  *out = {};
  out->dst = reinterpret_cast<CUdeviceptr>(in.dst);
  out->pitch = in.pitch;
  out->value = in.value;
  out->elementSize = in.elementSize;
  out->width = in.width;
  out->height = in.height;
  return CurrentContext(&out->ctx);
}

cudaError_t CopyToDriver(const cudaMemcpyNodeParams& in, CUDA_MEMCPY_NODE_PARAMS* out) {
  *out = {};
  out->flags = in.flags;
  RT_TRY(ToDriver(in.copyParams, &out->copyParams));
  return CurrentContext(&out->copyCtx);
}

cudaError_t ConditionalToDriver(const cudaConditionalNodeParams& in, CUDA_CONDITIONAL_NODE_PARAMS* out) {
  *out = {};
  out->handle = in.handle;
  out->type = static_cast<CUgraphConditionalNodeType>(in.type);
  out->size = in.size;
  out->phGraph_out = in.phGraph_out;
  return CurrentContext(&out->ctx);
}

// The node types not named here have the same layout in both APIs.
cudaError_t ToDriver(const cudaGraphNodeParams& in, CUgraphNodeParams* out) {
  std::memcpy(out, &in, sizeof *out);
  switch (in.type) {
    case cudaGraphNodeTypeKernel:
      return KernelToDriver(in.kernel, &out->kernel);
    case cudaGraphNodeTypeMemcpy:
      return CopyToDriver(in.memcpy, &out->memcpy);
    case cudaGraphNodeTypeMemset:
      return MemsetToDriver(in.memset, &out->memset);
    case cudaGraphNodeTypeConditional:
      return ConditionalToDriver(in.conditional, &out->conditional);
    default:
      return cudaSuccess;
  }
}

// What adding a node hands back inside its parameters.
void CopyResults(const CUgraphNodeParams& from, cudaGraphNodeParams* to) {
  if (to->type == cudaGraphNodeTypeMemAlloc) to->alloc.dptr = reinterpret_cast<void*>(from.alloc.dptr);
  if (to->type == cudaGraphNodeTypeConditional) to->conditional.phGraph_out = from.conditional.phGraph_out;
}

}  // namespace
}  // namespace softgpu::runtime

using namespace softgpu::runtime;

RT_API cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* node, cudaGraph_t graph, Nodes after, size_t count,
                                          const cudaKernelNodeParams* params) {
  return WithContext([&] {
    if (params == nullptr) return cudaErrorInvalidValue;
    CUDA_KERNEL_NODE_PARAMS driver_params;
    RT_TRY(KernelToDriver(*params, &driver_params));
    return CU(cuGraphAddKernelNode)(node, graph, after, count, &driver_params);
  });
}

RT_API cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, cudaKernelNodeParams* params) {
  return WithContext([&] {
    if (params == nullptr) return cudaErrorInvalidValue;
    CUDA_KERNEL_NODE_PARAMS driver_params{};
    RT_TRY(CU(cuGraphKernelNodeGetParams)(node, &driver_params));
    *params = KernelFromDriver(driver_params);
    return cudaSuccess;
  });
}

RT_API cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node, const cudaKernelNodeParams* params) {
  return WithContext([&] {
    if (params == nullptr) return cudaErrorInvalidValue;
    CUDA_KERNEL_NODE_PARAMS driver_params;
    RT_TRY(KernelToDriver(*params, &driver_params));
    return CU(cuGraphKernelNodeSetParams)(node, &driver_params);
  });
}

RT_API cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                    const cudaKernelNodeParams* params) {
  return WithContext([&] {
    if (params == nullptr) return cudaErrorInvalidValue;
    CUDA_KERNEL_NODE_PARAMS driver_params;
    RT_TRY(KernelToDriver(*params, &driver_params));
    return CU(cuGraphExecKernelNodeSetParams)(exec, node, &driver_params);
  });
}

RT_API cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* node, cudaGraph_t graph, Nodes after, size_t count,
                                          const cudaMemcpy3DParms* params) {
  return WithContext([&] {
    if (params == nullptr) return cudaErrorInvalidValue;
    CUDA_MEMCPY3D copy;
    RT_TRY(ToDriver(*params, &copy));
    return AddCopy(node, graph, after, count, copy);
  });
}

RT_API cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* node, cudaGraph_t graph, Nodes after,
                                            size_t count, void* dst, const void* src, size_t bytes,
                                            cudaMemcpyKind kind) {
  return WithContext([&] {
    CUDA_MEMCPY3D copy;
    RT_TRY(LinearCopy(dst, src, bytes, kind, &copy));
    return AddCopy(node, graph, after, count, copy);
  });
}

RT_API cudaError_t cudaGraphAddMemcpyNodeToSymbol(cudaGraphNode_t* node, cudaGraph_t graph, Nodes after,
                                                  size_t count, const void* symbol, const void* src,
                                                  size_t bytes, size_t offset, cudaMemcpyKind kind) {
  return WithContext([&] {
    CUDA_MEMCPY3D copy;
    RT_TRY(CopyToSymbol(symbol, src, bytes, offset, kind, &copy));
    return AddCopy(node, graph, after, count, copy);
  });
}

RT_API cudaError_t cudaGraphAddMemcpyNodeFromSymbol(cudaGraphNode_t* node, cudaGraph_t graph, Nodes after,
                                                    size_t count, void* dst, const void* symbol, size_t bytes,
                                                    size_t offset, cudaMemcpyKind kind) {
  return WithContext([&] {
    CUDA_MEMCPY3D copy;
    RT_TRY(CopyFromSymbol(dst, symbol, bytes, offset, kind, &copy));
    return AddCopy(node, graph, after, count, copy);
  });
}

RT_API cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node, cudaMemcpy3DParms* params) {
  return WithContext([&] {
    if (params == nullptr) return cudaErrorInvalidValue;
    CUDA_MEMCPY3D copy{};
    RT_TRY(CU(cuGraphMemcpyNodeGetParams)(node, &copy));
    return FromDriver(copy, params);
  });
}

RT_API cudaError_t cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node, const cudaMemcpy3DParms* params) {
  return WithContext([&] {
    if (params == nullptr) return cudaErrorInvalidValue;
    CUDA_MEMCPY3D copy;
    RT_TRY(ToDriver(*params, &copy));
    return CU(cuGraphMemcpyNodeSetParams)(node, &copy);
  });
}

RT_API cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void* dst, const void* src,
                                                  size_t bytes, cudaMemcpyKind kind) {
  return WithContext([&] {
    CUDA_MEMCPY3D copy;
    RT_TRY(LinearCopy(dst, src, bytes, kind, &copy));
    return CU(cuGraphMemcpyNodeSetParams)(node, &copy);
  });
}

RT_API cudaError_t cudaGraphMemcpyNodeSetParamsToSymbol(cudaGraphNode_t node, const void* symbol,
                                                        const void* src, size_t bytes, size_t offset,
                                                        cudaMemcpyKind kind) {
  return WithContext([&] {
    CUDA_MEMCPY3D copy;
    RT_TRY(CopyToSymbol(symbol, src, bytes, offset, kind, &copy));
    return CU(cuGraphMemcpyNodeSetParams)(node, &copy);
  });
}

RT_API cudaError_t cudaGraphMemcpyNodeSetParamsFromSymbol(cudaGraphNode_t node, void* dst, const void* symbol,
                                                          size_t bytes, size_t offset, cudaMemcpyKind kind) {
  return WithContext([&] {
    CUDA_MEMCPY3D copy;
    RT_TRY(CopyFromSymbol(dst, symbol, bytes, offset, kind, &copy));
    return CU(cuGraphMemcpyNodeSetParams)(node, &copy);
  });
}

RT_API cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                    const cudaMemcpy3DParms* params) {
  return WithContext([&] {
    if (params == nullptr) return cudaErrorInvalidValue;
    CUDA_MEMCPY3D copy;
    RT_TRY(ToDriver(*params, &copy));
    return SetExecCopy(exec, node, copy);
  });
}

RT_API cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t exec, cudaGraphNode_t node, void* dst,
                                                      const void* src, size_t bytes, cudaMemcpyKind kind) {
  return WithContext([&] {
    CUDA_MEMCPY3D copy;
    RT_TRY(LinearCopy(dst, src, bytes, kind, &copy));
    return SetExecCopy(exec, node, copy);
  });
}

RT_API cudaError_t cudaGraphExecMemcpyNodeSetParamsToSymbol(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                            const void* symbol, const void* src, size_t bytes,
                                                            size_t offset, cudaMemcpyKind kind) {
  return WithContext([&] {
    CUDA_MEMCPY3D copy;
    RT_TRY(CopyToSymbol(symbol, src, bytes, offset, kind, &copy));
    return SetExecCopy(exec, node, copy);
  });
}

RT_API cudaError_t cudaGraphExecMemcpyNodeSetParamsFromSymbol(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                              void* dst, const void* symbol, size_t bytes,
                                                              size_t offset, cudaMemcpyKind kind) {
  return WithContext([&] {
    CUDA_MEMCPY3D copy;
    RT_TRY(CopyFromSymbol(dst, symbol, bytes, offset, kind, &copy));
    return SetExecCopy(exec, node, copy);
  });
}

RT_API cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* node, cudaGraph_t graph, Nodes after, size_t count,
                                          const cudaMemsetParams* params) {
  return WithContext([&] {
    CUcontext context = nullptr;
    RT_TRY(CurrentContext(&context));
    return CU(cuGraphAddMemsetNode)(node, graph, after, count, Driver(params), context);
  });
}

RT_API cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                                    const cudaMemsetParams* params) {
  return WithContext([&] {
    CUcontext context = nullptr;
    RT_TRY(CurrentContext(&context));
    return CU(cuGraphExecMemsetNodeSetParams)(exec, node, Driver(params), context);
  });
}

RT_API cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle* handle, cudaGraph_t graph,
                                                    unsigned int initial, unsigned int flags) {
  return WithContext([&] {
    CUcontext context = nullptr;
    RT_TRY(CurrentContext(&context));
    return CU(cuGraphConditionalHandleCreate)(reinterpret_cast<CUgraphConditionalHandle*>(handle), graph,
                                              context, initial, flags);
  });
}

RT_API cudaError_t cudaGraphAddNode(cudaGraphNode_t* node, cudaGraph_t graph, Nodes after,
                                    const cudaGraphEdgeData* edges, size_t count,
                                    cudaGraphNodeParams* params) {
  return WithContext([&] {
    if (params == nullptr) return cudaErrorInvalidValue;
    CUgraphNodeParams driver_params;
    RT_TRY(ToDriver(*params, &driver_params));
    RT_TRY(CU(cuGraphAddNode)(node, graph, after, reinterpret_cast<const CUgraphEdgeData*>(edges), count,
                              &driver_params));
    CopyResults(driver_params, params);
    return cudaSuccess;
  });
}

RT_API cudaError_t cudaGraphNodeSetParams(cudaGraphNode_t node, cudaGraphNodeParams* params) {
  return WithContext([&] {
    if (params == nullptr) return cudaErrorInvalidValue;
    CUgraphNodeParams driver_params;
    RT_TRY(ToDriver(*params, &driver_params));
    return CU(cuGraphNodeSetParams)(node, &driver_params);
  });
}

RT_API cudaError_t cudaGraphExecNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                              cudaGraphNodeParams* params) {
  return WithContext([&] {
    if (params == nullptr) return cudaErrorInvalidValue;
    CUgraphNodeParams driver_params;
    RT_TRY(ToDriver(*params, &driver_params));
    return CU(cuGraphExecNodeSetParams)(exec, node, &driver_params);
  });
}
