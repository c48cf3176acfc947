// Nodes of each kind: adding, parameters in the graph and in its executable form.
#include <algorithm>
#include <cstring>

#include "softgpu/driver/actions.h"
#include "softgpu/driver/api_graph.h"
#include "softgpu/driver/event.h"
#include "softgpu/driver/graph_conditional.h"
#include "softgpu/driver/graph_params.h"
#include "softgpu/driver/mem_ops.h"

using softgpu::ActionOf;
using softgpu::ActionPtr;
using softgpu::AddGraphNode;
using softgpu::Context;
using softgpu::Entry;
using softgpu::KernelAction;
using softgpu::Node;
using softgpu::ReplaceAction;

namespace {

// The first version lacks the last two members.
CUDA_KERNEL_NODE_PARAMS_v2 Widen(const CUDA_KERNEL_NODE_PARAMS_v1& params) {
  CUDA_KERNEL_NODE_PARAMS_v2 wide{};
  std::memcpy(&wide, &params, sizeof params);
  return wide;
}

CUresult SetKernel(CUgraphExec exec, bool in_exec, CUgraphNode node,
                   const CUDA_KERNEL_NODE_PARAMS_v2& params) {
  return ReplaceAction(exec, in_exec, node, [&](Context& context, Node& target, ActionPtr* action) {
    std::vector<CUlaunchAttribute> attributes;
    {
      std::lock_guard lock(target.graph().mutex());
      if (target.action->type() != CU_GRAPH_NODE_TYPE_KERNEL) return CUDA_ERROR_INVALID_VALUE;
      attributes = static_cast<const KernelAction&>(*target.action).attributes;
    }
    return softgpu::MakeKernel(context, params, attributes, action);
  });
}

CUresult SetCopy(CUgraphExec exec, bool in_exec, CUgraphNode node, const CUDA_MEMCPY3D* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return ReplaceAction(exec, in_exec, node, [&](Context&, Node&, ActionPtr* action) {
    return softgpu::MakeCopy(*params, action);
  });
}

CUresult SetSet(CUgraphExec exec, bool in_exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return ReplaceAction(exec, in_exec, node,
                       [&](Context&, Node&, ActionPtr* action) { return softgpu::MakeSet(*params, action); });
}

CUresult SetHost(CUgraphExec exec, bool in_exec, CUgraphNode node, const CUDA_HOST_NODE_PARAMS* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return ReplaceAction(exec, in_exec, node, [&](Context&, Node&, ActionPtr* action) {
    return softgpu::MakeHost(*params, action);
  });
}

CUresult SetEvent(CUgraphExec exec, bool in_exec, CUgraphNode node, CUevent event, CUgraphNodeType type) {
  return ReplaceAction(exec, in_exec, node, [&](Context&, Node&, ActionPtr* action) {
    return softgpu::MakeEvent(event, type, action);
  });
}

CUresult SetMemOps(CUgraphExec exec, bool in_exec, CUgraphNode node,
                   const CUDA_BATCH_MEM_OP_NODE_PARAMS* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return ReplaceAction(exec, in_exec, node, [&](Context&, Node&, ActionPtr* action) {
    return softgpu::MakeMemOps(*params, action);
  });
}

CUresult SetAny(CUgraphExec exec, bool in_exec, CUgraphNode node, CUgraphNodeParams* params) {
  if (params == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (params->type == CU_GRAPH_NODE_TYPE_KERNEL)
    return SetKernel(exec, in_exec, node, softgpu::ToV2(params->kernel));
  // What a conditional node is stays for its life (cuGraphExecNodeSetParams knows no such parameters).
  if (params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) return CUDA_ERROR_INVALID_VALUE;
  return ReplaceAction(exec, in_exec, node, [&](Context& context, Node&, ActionPtr* action) {
    return softgpu::MakeAny(context, *params, action);
  });
}

// Queries: the checks they share, then the node's action.
template <typename ActionType, typename Answer>
CUresult Query(CUgraphNode node, CUgraphNodeType type, const void* out, Answer answer) {
  Entry entry(softgpu::Need::kInit);
  if (!entry.ok()) return entry.result();
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<const ActionType> action = ActionOf<ActionType>(node, type);
  if (action == nullptr) return CUDA_ERROR_INVALID_VALUE;
  answer(*action);
  return CUDA_SUCCESS;
}

// Attributes that a kernel node stores; the latest value of each id.
CUresult ChangeAttributes(CUgraphNode handle, const std::vector<CUlaunchAttribute>& changes) {
  return ReplaceAction(nullptr, false, handle, [&](Context& context, Node& node, ActionPtr* action) {
    CUDA_KERNEL_NODE_PARAMS_v2 params;
    std::vector<CUlaunchAttribute> attributes;
    std::shared_ptr<const KernelAction> old =
        ActionOf<KernelAction>(node.handle(), CU_GRAPH_NODE_TYPE_KERNEL);
    if (old == nullptr) return CUDA_ERROR_INVALID_VALUE;
    softgpu::Describe(*old, &params);
    attributes = old->attributes;
    for (const CUlaunchAttribute& change : changes) {
      std::erase_if(attributes,
                    [&](const CUlaunchAttribute& attribute) { return attribute.id == change.id; });
      attributes.push_back(change);
    }
    return softgpu::MakeKernel(context, params, attributes, action);
  });
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuGraphAddKernelNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph,
                                         const CUgraphNode* dependencies, size_t numDependencies,
                                         const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return AddGraphNode(phGraphNode, hGraph, dependencies, numDependencies,
                      [&](Context& context, ActionPtr* action) {
                        return softgpu::MakeKernel(context, *nodeParams, {}, action);
                      });
}
CUresult CUDAAPI cuGraphAddKernelNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                      const CUgraphNode* dependencies, size_t numDependencies,
                                      const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_KERNEL_NODE_PARAMS_v2 params = Widen(*nodeParams);
  return cuGraphAddKernelNode_v2(phGraphNode, hGraph, dependencies, numDependencies, &params);
}
CUresult CUDAAPI cuGraphKernelNodeGetParams_v2(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return Query<KernelAction>(hNode, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams,
                             [&](const KernelAction& action) { softgpu::Describe(action, nodeParams); });
}
CUresult CUDAAPI cuGraphKernelNodeGetParams(CUgraphNode hNode, CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  return Query<KernelAction>(hNode, CU_GRAPH_NODE_TYPE_KERNEL, nodeParams, [&](const KernelAction& action) {
    CUDA_KERNEL_NODE_PARAMS_v2 wide;
    softgpu::Describe(action, &wide);
    std::memcpy(nodeParams, &wide, sizeof *nodeParams);
  });
}
CUresult CUDAAPI cuGraphKernelNodeSetParams_v2(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return nodeParams != nullptr ? SetKernel(nullptr, false, hNode, *nodeParams) : CUDA_ERROR_INVALID_VALUE;
}
CUresult CUDAAPI cuGraphKernelNodeSetParams(CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  return nodeParams != nullptr ? SetKernel(nullptr, false, hNode, Widen(*nodeParams))
                               : CUDA_ERROR_INVALID_VALUE;
}
CUresult CUDAAPI cuGraphExecKernelNodeSetParams_v2(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                   const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  return nodeParams != nullptr ? SetKernel(hGraphExec, true, hNode, *nodeParams) : CUDA_ERROR_INVALID_VALUE;
}
CUresult CUDAAPI cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  return nodeParams != nullptr ? SetKernel(hGraphExec, true, hNode, Widen(*nodeParams))
                               : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphKernelNodeGetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                               CUkernelNodeAttrValue* value_out) {
  return Query<KernelAction>(hNode, CU_GRAPH_NODE_TYPE_KERNEL, value_out, [&](const KernelAction& action) {
    *value_out = {};
    for (const CUlaunchAttribute& attribute : action.attributes) {
      if (attribute.id == attr) *value_out = attribute.value;
    }
  });
}
CUresult CUDAAPI cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                               const CUkernelNodeAttrValue* value) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUlaunchAttribute attribute{};
  attribute.id = attr;
  attribute.value = *value;
  return ChangeAttributes(hNode, {attribute});
}
CUresult CUDAAPI cuGraphKernelNodeCopyAttributes(CUgraphNode dst, CUgraphNode src) {
  std::vector<CUlaunchAttribute> attributes;
  CUresult result = Query<KernelAction>(src, CU_GRAPH_NODE_TYPE_KERNEL, &attributes,
                                        [&](const KernelAction& action) { attributes = action.attributes; });
  return result == CUDA_SUCCESS ? ChangeAttributes(dst, attributes) : result;
}

// `ctx` says where a copy runs; every context of a device reaches the same memory here.
CUresult CUDAAPI cuGraphAddMemcpyNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                      const CUgraphNode* dependencies, size_t numDependencies,
                                      const CUDA_MEMCPY3D* copyParams, CUcontext ctx) {
  static_cast<void>(ctx);
  if (copyParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return AddGraphNode(phGraphNode, hGraph, dependencies, numDependencies,
                      [&](Context&, ActionPtr* action) { return softgpu::MakeCopy(*copyParams, action); });
}
CUresult CUDAAPI cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D* nodeParams) {
  return Query<softgpu::CopyAction>(hNode, CU_GRAPH_NODE_TYPE_MEMCPY, nodeParams,
                                    [&](const softgpu::CopyAction& action) { *nodeParams = action.params; });
}
CUresult CUDAAPI cuGraphMemcpyNodeSetParams(CUgraphNode hNode, const CUDA_MEMCPY3D* nodeParams) {
  return SetCopy(nullptr, false, hNode, nodeParams);
}
CUresult CUDAAPI cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                const CUDA_MEMCPY3D* copyParams, CUcontext ctx) {
  static_cast<void>(ctx);
  return SetCopy(hGraphExec, true, hNode, copyParams);
}

CUresult CUDAAPI cuGraphAddMemsetNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                      const CUgraphNode* dependencies, size_t numDependencies,
                                      const CUDA_MEMSET_NODE_PARAMS* memsetParams, CUcontext ctx) {
  static_cast<void>(ctx);
  if (memsetParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return AddGraphNode(phGraphNode, hGraph, dependencies, numDependencies,
                      [&](Context&, ActionPtr* action) { return softgpu::MakeSet(*memsetParams, action); });
}
CUresult CUDAAPI cuGraphMemsetNodeGetParams(CUgraphNode hNode, CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  return Query<softgpu::SetAction>(hNode, CU_GRAPH_NODE_TYPE_MEMSET, nodeParams,
                                   [&](const softgpu::SetAction& action) { *nodeParams = action.params; });
}
CUresult CUDAAPI cuGraphMemsetNodeSetParams(CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS* nodeParams) {
  return SetSet(nullptr, false, hNode, nodeParams);
}
CUresult CUDAAPI cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                const CUDA_MEMSET_NODE_PARAMS* memsetParams, CUcontext ctx) {
  static_cast<void>(ctx);
  return SetSet(hGraphExec, true, hNode, memsetParams);
}

CUresult CUDAAPI cuGraphAddHostNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                    size_t numDependencies, const CUDA_HOST_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return AddGraphNode(phGraphNode, hGraph, dependencies, numDependencies,
                      [&](Context&, ActionPtr* action) { return softgpu::MakeHost(*nodeParams, action); });
}
CUresult CUDAAPI cuGraphHostNodeGetParams(CUgraphNode hNode, CUDA_HOST_NODE_PARAMS* nodeParams) {
  return Query<softgpu::HostAction>(hNode, CU_GRAPH_NODE_TYPE_HOST, nodeParams,
                                    [&](const softgpu::HostAction& action) { *nodeParams = action.params; });
}
CUresult CUDAAPI cuGraphHostNodeSetParams(CUgraphNode hNode, const CUDA_HOST_NODE_PARAMS* nodeParams) {
  return SetHost(nullptr, false, hNode, nodeParams);
}
CUresult CUDAAPI cuGraphExecHostNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                              const CUDA_HOST_NODE_PARAMS* nodeParams) {
  return SetHost(hGraphExec, true, hNode, nodeParams);
}

CUresult CUDAAPI cuGraphAddChildGraphNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                          const CUgraphNode* dependencies, size_t numDependencies,
                                          CUgraph childGraph) {
  return AddGraphNode(phGraphNode, hGraph, dependencies, numDependencies,
                      [&](Context&, ActionPtr* action) { return softgpu::MakeChild(childGraph, action); });
}
CUresult CUDAAPI cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph* phGraph) {
  return Query<softgpu::ChildAction>(
      hNode, CU_GRAPH_NODE_TYPE_GRAPH, phGraph,
      [&](const softgpu::ChildAction& action) { *phGraph = action.graph->handle(); });
}

CUresult CUDAAPI cuGraphAddEmptyNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                     const CUgraphNode* dependencies, size_t numDependencies) {
  return AddGraphNode(phGraphNode, hGraph, dependencies, numDependencies, [](Context&, ActionPtr* action) {
    *action = std::make_shared<softgpu::EmptyAction>();
    return CUDA_SUCCESS;
  });
}

CUresult CUDAAPI cuGraphAddEventRecordNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                           const CUgraphNode* dependencies, size_t numDependencies,
                                           CUevent event) {
  return AddGraphNode(phGraphNode, hGraph, dependencies, numDependencies, [&](Context&, ActionPtr* action) {
    return softgpu::MakeEvent(event, CU_GRAPH_NODE_TYPE_EVENT_RECORD, action);
  });
}
CUresult CUDAAPI cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent* event_out) {
  return Query<softgpu::EventRecordAction>(hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event_out,
                                           [&](const softgpu::EventRecordAction& action) {
                                             *event_out = reinterpret_cast<CUevent>(action.event.get());
                                           });
}
CUresult CUDAAPI cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event) {
  return SetEvent(nullptr, false, hNode, event, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
}
CUresult CUDAAPI cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                    CUevent event) {
  return SetEvent(hGraphExec, true, hNode, event, CU_GRAPH_NODE_TYPE_EVENT_RECORD);
}
CUresult CUDAAPI cuGraphAddEventWaitNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                         const CUgraphNode* dependencies, size_t numDependencies,
                                         CUevent event) {
  return AddGraphNode(phGraphNode, hGraph, dependencies, numDependencies, [&](Context&, ActionPtr* action) {
    return softgpu::MakeEvent(event, CU_GRAPH_NODE_TYPE_WAIT_EVENT, action);
  });
}
CUresult CUDAAPI cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent* event_out) {
  return Query<softgpu::EventWaitAction>(hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event_out,
                                         [&](const softgpu::EventWaitAction& action) {
                                           *event_out = reinterpret_cast<CUevent>(action.event.get());
                                         });
}
CUresult CUDAAPI cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event) {
  return SetEvent(nullptr, false, hNode, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
}
CUresult CUDAAPI cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event) {
  return SetEvent(hGraphExec, true, hNode, event, CU_GRAPH_NODE_TYPE_WAIT_EVENT);
}

CUresult CUDAAPI cuGraphAddBatchMemOpNode(CUgraphNode* phGraphNode, CUgraph hGraph,
                                          const CUgraphNode* dependencies, size_t numDependencies,
                                          const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return AddGraphNode(phGraphNode, hGraph, dependencies, numDependencies,
                      [&](Context&, ActionPtr* action) { return softgpu::MakeMemOps(*nodeParams, action); });
}
CUresult CUDAAPI cuGraphBatchMemOpNodeGetParams(CUgraphNode hNode,
                                                CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams_out) {
  return Query<softgpu::MemOpsAction>(
      hNode, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, nodeParams_out, [&](const softgpu::MemOpsAction& action) {
        *nodeParams_out = {nullptr, static_cast<unsigned>(action.ops.size()),
                           const_cast<CUstreamBatchMemOpParams*>(action.ops.data()), 0};
      });
}
CUresult CUDAAPI cuGraphBatchMemOpNodeSetParams(CUgraphNode hNode,
                                                const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  return SetMemOps(nullptr, false, hNode, nodeParams);
}
CUresult CUDAAPI cuGraphExecBatchMemOpNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                                    const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  return SetMemOps(hGraphExec, true, hNode, nodeParams);
}

CUresult CUDAAPI cuGraphAddNode_v2(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                   const CUgraphEdgeData* dependencyData, size_t numDependencies,
                                   CUgraphNodeParams* nodeParams) {
  if (nodeParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult edges = softgpu::CheckEdges(dependencyData, numDependencies);
  if (edges != CUDA_SUCCESS) return edges;
  return AddGraphNode(
      phGraphNode, hGraph, dependencies, numDependencies, [&](Context& context, ActionPtr* action) {
        CUresult result = softgpu::MakeAny(context, *nodeParams, action);
        if (result == CUDA_SUCCESS && nodeParams->type == CU_GRAPH_NODE_TYPE_GRAPH) {
          nodeParams->graph.graph = static_cast<const softgpu::ChildAction&>(**action).graph->handle();
        }
        if (result == CUDA_SUCCESS && nodeParams->type == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
          nodeParams->conditional.phGraph_out =
              static_cast<const softgpu::ConditionalAction&>(**action).handles.data();
        }
        return result;
      });
}
CUresult CUDAAPI cuGraphAddNode(CUgraphNode* phGraphNode, CUgraph hGraph, const CUgraphNode* dependencies,
                                size_t numDependencies, CUgraphNodeParams* nodeParams) {
  return cuGraphAddNode_v2(phGraphNode, hGraph, dependencies, nullptr, numDependencies, nodeParams);
}
CUresult CUDAAPI cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
  return SetAny(nullptr, false, hNode, nodeParams);
}
CUresult CUDAAPI cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                          CUgraphNodeParams* nodeParams) {
  return SetAny(hGraphExec, true, hNode, nodeParams);
}

}  // extern "C"
