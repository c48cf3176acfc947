// Nodes of graphs: adding them, and their parameters.
#include "intercept/hooks_graph.h"
#include "intercept/taint.h"
#include "intercept_hooks.h"
#include "replay/conditional_record.h"

namespace stasis::hooks {

using replay::ToReal;
using replay::ToVisible;

void TranslateParams(CUgraphNodeParams* params) {
  switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return TranslateKernel(&params->kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      params->memcpy.copyCtx = ToReal(params->memcpy.copyCtx);
      return TranslateParams(&params->memcpy.copyParams);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      params->memset.ctx = ToReal(params->memset.ctx);
      return;
    case CU_GRAPH_NODE_TYPE_GRAPH:
      params->graph.graph = ToReal(params->graph.graph);
      return;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      params->eventRecord.event = ToReal(params->eventRecord.event);
      return;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      params->eventWait.event = ToReal(params->eventWait.event);
      return;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      params->memOp.ctx = ToReal(params->memOp.ctx);
      return;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      params->conditional.ctx = ToReal(params->conditional.ctx);
      return;
    default:
      return;  // no handles of objects that are rebuilt
  }
}

namespace {

// What the driver answers in the parameters of a node that was added.
void ReturnParams(const CUgraphNodeParams& real, CUgraphNodeParams* params) {
  if (real.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) params->alloc.dptr = real.alloc.dptr;
  if (real.type == CU_GRAPH_NODE_TYPE_GRAPH && real.graph.graph != ToReal(params->graph.graph))
    params->graph.graph = replay::AdoptChildGraph(real.graph.graph);
}

// The child graph that the parameters name.
CUgraph ChildOf(const CUgraphNodeParams* params) {
  return params != nullptr && params->type == CU_GRAPH_NODE_TYPE_GRAPH ? params->graph.graph : nullptr;
}

template <typename Function, typename... Edges>
CUresult AddAny(const Call& call, CUgraphNode* node, CUgraph graph, const CUgraphNode* dependencies,
                size_t count, CUgraphNodeParams* params, Edges... edges) {
  const CUgraph child = ChildOf(params);
  const bool moved = child != nullptr && params->graph.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
  const RealNodes nodes(dependencies, count);
  RealParams<CUgraphNodeParams> real(params);
  const CUresult result =
      call.Real<Function>()(node, ToReal(graph), nodes.get(), edges..., count, real.get_mutable());
  if (result != CUDA_SUCCESS) return result;
  *node = replay::AdoptNode(*node);
  if (child != nullptr) replay::NoteChildGraph(graph, child);
  // The child's handle would have to become that of a part of the graph.
  if (moved) Taint("cuGraphAddNode with CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE", false);
  if (params->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
    params->conditional.phGraph_out =
        replay::NoteConditionalNode(*node, params->conditional, real.get()->conditional.phGraph_out);
  if (real.get() != params) ReturnParams(*real.get(), params);
  return result;
}

// The event in an attribute of a kernel; null when it has none.
CUevent* EventIn(CUkernelNodeAttrID attribute, CUkernelNodeAttrValue* value) {
  if (attribute == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT) return &value->programmaticEvent.event;
  if (attribute == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT) return &value->launchCompletionEvent.event;
  return nullptr;
}

// Parameters of a kernel as the program knows its handles.
void ReturnKernel(CUDA_KERNEL_NODE_PARAMS_v1* params) { params->func = ToVisible(params->func); }
void ReturnKernel(CUDA_KERNEL_NODE_PARAMS_v2* params) {
  params->func = ToVisible(params->func);
  params->kern = ToVisible(params->kern);
  params->ctx = ToVisible(params->ctx);
}

}  // namespace

CUresult cuGraphAddKernelNode(const Call& call, CUgraphNode* phGraphNode, CUgraph hGraph,
                              const CUgraphNode* dependencies, size_t numDependencies,
                              const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  const RealParams<CUDA_KERNEL_NODE_PARAMS_v1> params(nodeParams);
  return AddNode<decltype(&::cuGraphAddKernelNode)>(call, phGraphNode, hGraph, dependencies, numDependencies,
                                                    params.get());
}

CUresult cuGraphAddKernelNode_v2(const Call& call, CUgraphNode* phGraphNode, CUgraph hGraph,
                                 const CUgraphNode* dependencies, size_t numDependencies,
                                 const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  const RealParams<CUDA_KERNEL_NODE_PARAMS> params(nodeParams);
  return AddNode<decltype(&::cuGraphAddKernelNode_v2)>(call, phGraphNode, hGraph, dependencies,
                                                       numDependencies, params.get());
}

CUresult cuGraphAddMemcpyNode(const Call& call, CUgraphNode* phGraphNode, CUgraph hGraph,
                              const CUgraphNode* dependencies, size_t numDependencies,
                              const CUDA_MEMCPY3D* copyParams, CUcontext ctx) {
  const RealParams<CUDA_MEMCPY3D> params(copyParams);
  return AddNode<decltype(&::cuGraphAddMemcpyNode)>(call, phGraphNode, hGraph, dependencies, numDependencies,
                                                    params.get(), ToReal(ctx));
}

CUresult cuGraphAddMemsetNode(const Call& call, CUgraphNode* phGraphNode, CUgraph hGraph,
                              const CUgraphNode* dependencies, size_t numDependencies,
                              const CUDA_MEMSET_NODE_PARAMS* memsetParams, CUcontext ctx) {
  return AddNode<decltype(&::cuGraphAddMemsetNode)>(call, phGraphNode, hGraph, dependencies, numDependencies,
                                                    memsetParams, ToReal(ctx));
}

CUresult cuGraphAddHostNode(const Call& call, CUgraphNode* phGraphNode, CUgraph hGraph,
                            const CUgraphNode* dependencies, size_t numDependencies,
                            const CUDA_HOST_NODE_PARAMS* nodeParams) {
  return AddNode<decltype(&::cuGraphAddHostNode)>(call, phGraphNode, hGraph, dependencies, numDependencies,
                                                  nodeParams);
}

CUresult cuGraphAddChildGraphNode(const Call& call, CUgraphNode* phGraphNode, CUgraph hGraph,
                                  const CUgraphNode* dependencies, size_t numDependencies,
                                  CUgraph childGraph) {
  const CUresult result = AddNode<decltype(&::cuGraphAddChildGraphNode)>(
      call, phGraphNode, hGraph, dependencies, numDependencies, ToReal(childGraph));
  if (result == CUDA_SUCCESS) replay::NoteChildGraph(hGraph, childGraph);
  return result;
}

CUresult cuGraphAddEmptyNode(const Call& call, CUgraphNode* phGraphNode, CUgraph hGraph,
                             const CUgraphNode* dependencies, size_t numDependencies) {
  return AddNode<decltype(&::cuGraphAddEmptyNode)>(call, phGraphNode, hGraph, dependencies, numDependencies);
}

CUresult cuGraphAddEventRecordNode(const Call& call, CUgraphNode* phGraphNode, CUgraph hGraph,
                                   const CUgraphNode* dependencies, size_t numDependencies, CUevent event) {
  return AddNode<decltype(&::cuGraphAddEventRecordNode)>(call, phGraphNode, hGraph, dependencies,
                                                         numDependencies, ToReal(event));
}

CUresult cuGraphAddEventWaitNode(const Call& call, CUgraphNode* phGraphNode, CUgraph hGraph,
                                 const CUgraphNode* dependencies, size_t numDependencies, CUevent event) {
  return AddNode<decltype(&::cuGraphAddEventWaitNode)>(call, phGraphNode, hGraph, dependencies,
                                                       numDependencies, ToReal(event));
}

CUresult cuGraphAddMemAllocNode(const Call& call, CUgraphNode* phGraphNode, CUgraph hGraph,
                                const CUgraphNode* dependencies, size_t numDependencies,
                                CUDA_MEM_ALLOC_NODE_PARAMS* nodeParams) {
  return AddNode<decltype(&::cuGraphAddMemAllocNode)>(call, phGraphNode, hGraph, dependencies,
                                                      numDependencies, nodeParams);
}

CUresult cuGraphAddMemFreeNode(const Call& call, CUgraphNode* phGraphNode, CUgraph hGraph,
                               const CUgraphNode* dependencies, size_t numDependencies, CUdeviceptr dptr) {
  return AddNode<decltype(&::cuGraphAddMemFreeNode)>(call, phGraphNode, hGraph, dependencies, numDependencies,
                                                     dptr);
}

CUresult cuGraphAddBatchMemOpNode(const Call& call, CUgraphNode* phGraphNode, CUgraph hGraph,
                                  const CUgraphNode* dependencies, size_t numDependencies,
                                  const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  const RealParams<CUDA_BATCH_MEM_OP_NODE_PARAMS> params(nodeParams);
  return AddNode<decltype(&::cuGraphAddBatchMemOpNode)>(call, phGraphNode, hGraph, dependencies,
                                                        numDependencies, params.get());
}

CUresult cuGraphAddNode(const Call& call, CUgraphNode* phGraphNode, CUgraph hGraph,
                        const CUgraphNode* dependencies, size_t numDependencies,
                        CUgraphNodeParams* nodeParams) {
  return AddAny<decltype(&::cuGraphAddNode)>(call, phGraphNode, hGraph, dependencies, numDependencies,
                                             nodeParams);
}

CUresult cuGraphAddNode_v2(const Call& call, CUgraphNode* phGraphNode, CUgraph hGraph,
                           const CUgraphNode* dependencies, const CUgraphEdgeData* dependencyData,
                           size_t numDependencies, CUgraphNodeParams* nodeParams) {
  return AddAny<decltype(&::cuGraphAddNode_v2)>(call, phGraphNode, hGraph, dependencies, numDependencies,
                                                nodeParams, dependencyData);
}

CUresult cuGraphConditionalHandleCreate(const Call& call, CUgraphConditionalHandle* pHandle_out,
                                        CUgraph hGraph, CUcontext ctx, unsigned int defaultLaunchValue,
                                        unsigned int flags) {
  const CUresult result = call.Real<decltype(&::cuGraphConditionalHandleCreate)>()(
      pHandle_out, ToReal(hGraph), ToReal(ctx), defaultLaunchValue, flags);
  if (result == CUDA_SUCCESS && !replay::NoteCondition(*pHandle_out, hGraph, ctx, defaultLaunchValue, flags))
    TaintOnce(call.fn, false);  // of a graph inside of a node
  return result;
}

CUresult cuGraphChildGraphNodeGetGraph(const Call& call, CUgraphNode hNode, CUgraph* phGraph) {
  const CUresult result = call.Real<decltype(&::cuGraphChildGraphNodeGetGraph)>()(ToReal(hNode), phGraph);
  if (result == CUDA_SUCCESS) *phGraph = replay::AdoptChildGraph(*phGraph);
  return result;
}

CUresult cuGraphKernelNodeGetParams(const Call& call, CUgraphNode hNode,
                                    CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  const CUresult result = call.Real<decltype(&::cuGraphKernelNodeGetParams)>()(ToReal(hNode), nodeParams);
  if (result == CUDA_SUCCESS) ReturnKernel(nodeParams);
  return result;
}

CUresult cuGraphKernelNodeGetParams_v2(const Call& call, CUgraphNode hNode,
                                       CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  const CUresult result = call.Real<decltype(&::cuGraphKernelNodeGetParams_v2)>()(ToReal(hNode), nodeParams);
  if (result == CUDA_SUCCESS) ReturnKernel(nodeParams);
  return result;
}

CUresult cuGraphKernelNodeSetParams(const Call& call, CUgraphNode hNode,
                                    const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  const RealParams<CUDA_KERNEL_NODE_PARAMS_v1> params(nodeParams);
  return call.Real<decltype(&::cuGraphKernelNodeSetParams)>()(ToReal(hNode), params.get());
}

CUresult cuGraphKernelNodeSetParams_v2(const Call& call, CUgraphNode hNode,
                                       const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  const RealParams<CUDA_KERNEL_NODE_PARAMS> params(nodeParams);
  return call.Real<decltype(&::cuGraphKernelNodeSetParams_v2)>()(ToReal(hNode), params.get());
}

// Two of the attributes name events, one makes a node that the device changes behind our back.
CUresult cuGraphKernelNodeSetAttribute(const Call& call, CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       const CUkernelNodeAttrValue* value) {
  CUkernelNodeAttrValue real{};
  if (value != nullptr) {
    real = *value;
    if (CUevent* event = EventIn(attr, &real)) *event = ToReal(*event);
  }
  const CUresult result = call.Real<decltype(&::cuGraphKernelNodeSetAttribute)>()(
      ToReal(hNode), attr, value == nullptr ? nullptr : &real);
  if (result == CUDA_SUCCESS && attr == CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE)
    TaintOnce(call.fn, false);
  return result;
}

CUresult cuGraphKernelNodeGetAttribute(const Call& call, CUgraphNode hNode, CUkernelNodeAttrID attr,
                                       CUkernelNodeAttrValue* value_out) {
  const CUresult result =
      call.Real<decltype(&::cuGraphKernelNodeGetAttribute)>()(ToReal(hNode), attr, value_out);
  if (result != CUDA_SUCCESS) return result;
  if (CUevent* event = EventIn(attr, value_out)) *event = ToVisible(*event);
  return result;
}

CUresult cuGraphMemcpyNodeGetParams(const Call& call, CUgraphNode hNode, CUDA_MEMCPY3D* nodeParams) {
  const CUresult result = call.Real<decltype(&::cuGraphMemcpyNodeGetParams)>()(ToReal(hNode), nodeParams);
  if (result != CUDA_SUCCESS) return result;
  if (nodeParams->srcMemoryType == CU_MEMORYTYPE_ARRAY)
    nodeParams->srcArray = ToVisible(nodeParams->srcArray);
  if (nodeParams->dstMemoryType == CU_MEMORYTYPE_ARRAY)
    nodeParams->dstArray = ToVisible(nodeParams->dstArray);
  return result;
}

CUresult cuGraphMemcpyNodeSetParams(const Call& call, CUgraphNode hNode, const CUDA_MEMCPY3D* nodeParams) {
  const RealParams<CUDA_MEMCPY3D> params(nodeParams);
  return call.Real<decltype(&::cuGraphMemcpyNodeSetParams)>()(ToReal(hNode), params.get());
}

CUresult cuGraphBatchMemOpNodeGetParams(const Call& call, CUgraphNode hNode,
                                        CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams_out) {
  const CUresult result =
      call.Real<decltype(&::cuGraphBatchMemOpNodeGetParams)>()(ToReal(hNode), nodeParams_out);
  if (result == CUDA_SUCCESS) nodeParams_out->ctx = ToVisible(nodeParams_out->ctx);
  return result;
}

CUresult cuGraphBatchMemOpNodeSetParams(const Call& call, CUgraphNode hNode,
                                        const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  const RealParams<CUDA_BATCH_MEM_OP_NODE_PARAMS> params(nodeParams);
  return call.Real<decltype(&::cuGraphBatchMemOpNodeSetParams)>()(ToReal(hNode), params.get());
}

CUresult cuGraphNodeSetParams(const Call& call, CUgraphNode hNode, CUgraphNodeParams* nodeParams) {
  RealParams<CUgraphNodeParams> params(nodeParams);
  return call.Real<decltype(&::cuGraphNodeSetParams)>()(ToReal(hNode), params.get_mutable());
}

}  // namespace stasis::hooks
