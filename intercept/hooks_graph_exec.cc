// Executable graphs.
#include "intercept/hooks_graph.h"
#include "intercept_hooks.h"

namespace stasis::hooks {

namespace {

using replay::FindAs;
using replay::GraphExecRecord;
using replay::ToReal;

// Changes the parameters of a node by `set`; `apply` does the same to a node of a graph.
template <typename Set, typename Apply>
CUresult ChangeNode(const Call& call, CUgraphExec exec, CUgraphNode node, Set set, Apply apply) {
  const auto record = FindAs<GraphExecRecord>(exec);
  const CUresult result = set(ToReal(exec), record != nullptr ? record->NodeForDriver(node) : ToReal(node));
  if (result == CUDA_SUCCESS && record != nullptr) record->NoteParams(node, call.name(), apply);
  return result;
}

CUresult ChangeChild(const Call& call, CUgraphExec exec, CUgraphNode node, CUgraph child,
                     CUresult (*set)(const Call&, CUgraphExec, CUgraphNode, CUgraph)) {
  const auto record = FindAs<GraphExecRecord>(exec);
  const CUresult result =
      set(call, ToReal(exec), record != nullptr ? record->NodeForDriver(node) : ToReal(node), ToReal(child));
  if (result == CUDA_SUCCESS && record != nullptr) record->NoteChild(node, call.name(), child);
  return result;
}

CUresult Instantiated(CUresult result, CUgraph graph, CUgraphExec* exec, CUgraphNode* error_node) {
  if (error_node != nullptr) *error_node = replay::AdoptNode(*error_node);
  if (result == CUDA_SUCCESS) replay::NoteInstantiated(graph, exec);
  return result;
}

CUresult Instantiate(const Call& call, CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, char* log,
                     size_t size) {
  if (error_node != nullptr) *error_node = nullptr;
  const CUresult result =
      call.Real<decltype(&::cuGraphInstantiate_v2)>()(exec, ToReal(graph), error_node, log, size);
  return Instantiated(result, graph, exec, error_node);
}

void Updated(CUgraphExec exec, CUgraph graph) {
  const auto record = FindAs<GraphExecRecord>(exec);
  if (record != nullptr) record->NoteUpdate(ToReal(graph), FindAs<replay::GraphRecord>(graph));
}

}  // namespace

CUresult cuGraphInstantiate(const Call& call, CUgraphExec* phGraphExec, CUgraph hGraph,
                            CUgraphNode* phErrorNode, char* logBuffer, size_t bufferSize) {
  return Instantiate(call, phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}
CUresult cuGraphInstantiate_v2(const Call& call, CUgraphExec* phGraphExec, CUgraph hGraph,
                               CUgraphNode* phErrorNode, char* logBuffer, size_t bufferSize) {
  return Instantiate(call, phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

CUresult cuGraphInstantiateWithFlags(const Call& call, CUgraphExec* phGraphExec, CUgraph hGraph,
                                     unsigned long long flags) {
  const CUresult result =
      call.Real<decltype(&::cuGraphInstantiateWithFlags)>()(phGraphExec, ToReal(hGraph), flags);
  return Instantiated(result, hGraph, phGraphExec, nullptr);
}

CUresult cuGraphInstantiateWithParams(const Call& call, CUgraphExec* phGraphExec, CUgraph hGraph,
                                      CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  const auto real = call.Real<decltype(&::cuGraphInstantiateWithParams)>();
  if (instantiateParams == nullptr) return real(phGraphExec, ToReal(hGraph), nullptr);
  CUDA_GRAPH_INSTANTIATE_PARAMS params = *instantiateParams;
  params.hUploadStream = ToReal(params.hUploadStream);
  params.hErrNode_out = nullptr;
  const CUresult result = real(phGraphExec, ToReal(hGraph), &params);
  Instantiated(result, hGraph, phGraphExec, &params.hErrNode_out);
  instantiateParams->hErrNode_out = params.hErrNode_out;
  instantiateParams->result_out = params.result_out;
  return result;
}

CUresult cuGraphExecDestroy(const Call& call, CUgraphExec hGraphExec) {
  const auto record = FindAs<GraphExecRecord>(hGraphExec);
  const CUresult result = call.Real<decltype(&::cuGraphExecDestroy)>()(ToReal(hGraphExec));
  if (result == CUDA_SUCCESS && record != nullptr) replay::NoteExecDestroyed(record);
  return result;
}

CUresult cuGraphExecUpdate(const Call& call, CUgraphExec hGraphExec, CUgraph hGraph,
                           CUgraphNode* hErrorNode_out, CUgraphExecUpdateResult* updateResult_out) {
  const CUresult result = call.Real<decltype(&::cuGraphExecUpdate)>()(ToReal(hGraphExec), ToReal(hGraph),
                                                                      hErrorNode_out, updateResult_out);
  if (result == CUDA_SUCCESS) {
    Updated(hGraphExec, hGraph);
  } else if (result == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE && hErrorNode_out != nullptr) {
    *hErrorNode_out = replay::AdoptNode(*hErrorNode_out);
  }
  return result;
}

CUresult cuGraphExecUpdate_v2(const Call& call, CUgraphExec hGraphExec, CUgraph hGraph,
                              CUgraphExecUpdateResultInfo* resultInfo) {
  const CUresult result =
      call.Real<decltype(&::cuGraphExecUpdate_v2)>()(ToReal(hGraphExec), ToReal(hGraph), resultInfo);
  if (result == CUDA_SUCCESS) {
    Updated(hGraphExec, hGraph);
  } else if (result == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE && replay::Translating()) {
    const auto record = FindAs<GraphExecRecord>(hGraphExec);
    resultInfo->errorNode = replay::AdoptNode(resultInfo->errorNode);
    if (record != nullptr && resultInfo->errorFromNode != nullptr)
      resultInfo->errorFromNode = record->NodeForProgram(resultInfo->errorFromNode);
  }
  return result;
}

CUresult cuGraphNodeSetEnabled(const Call& call, CUgraphExec hGraphExec, CUgraphNode hNode,
                               unsigned int isEnabled) {
  const auto record = FindAs<GraphExecRecord>(hGraphExec);
  const CUgraphNode node = record != nullptr ? record->NodeForDriver(hNode) : ToReal(hNode);
  const CUresult result =
      call.Real<decltype(&::cuGraphNodeSetEnabled)>()(ToReal(hGraphExec), node, isEnabled);
  if (result == CUDA_SUCCESS && record != nullptr) record->NoteEnabled(hNode, isEnabled != 0);
  return result;
}

CUresult cuGraphNodeGetEnabled(const Call& call, CUgraphExec hGraphExec, CUgraphNode hNode,
                               unsigned int* isEnabled) {
  const auto record = replay::Translating() ? FindAs<GraphExecRecord>(hGraphExec) : nullptr;
  const CUgraphNode node = record != nullptr ? record->NodeForDriver(hNode) : ToReal(hNode);
  return call.Real<decltype(&::cuGraphNodeGetEnabled)>()(ToReal(hGraphExec), node, isEnabled);
}

CUresult cuGraphExecKernelNodeSetParams(const Call& call, CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_KERNEL_NODE_PARAMS_v1* nodeParams) {
  const RealParams<CUDA_KERNEL_NODE_PARAMS_v1> params(nodeParams);
  return ChangeNode(
      call, hGraphExec, hNode,
      [&](CUgraphExec exec, CUgraphNode node) {
        return call.Real<decltype(&::cuGraphExecKernelNodeSetParams)>()(exec, node, params.get());
      },
      [&](CUgraphNode node) { return Driver().cuGraphKernelNodeSetParams(node, params.get()); });
}

CUresult cuGraphExecKernelNodeSetParams_v2(const Call& call, CUgraphExec hGraphExec, CUgraphNode hNode,
                                           const CUDA_KERNEL_NODE_PARAMS* nodeParams) {
  const RealParams<CUDA_KERNEL_NODE_PARAMS> params(nodeParams);
  return ChangeNode(
      call, hGraphExec, hNode,
      [&](CUgraphExec exec, CUgraphNode node) {
        return call.Real<decltype(&::cuGraphExecKernelNodeSetParams_v2)>()(exec, node, params.get());
      },
      [&](CUgraphNode node) { return Driver().cuGraphKernelNodeSetParams_v2(node, params.get()); });
}

CUresult cuGraphExecMemcpyNodeSetParams(const Call& call, CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMCPY3D* copyParams, CUcontext ctx) {
  const RealParams<CUDA_MEMCPY3D> params(copyParams);
  return ChangeNode(
      call, hGraphExec, hNode,
      [&](CUgraphExec exec, CUgraphNode node) {
        return call.Real<decltype(&::cuGraphExecMemcpyNodeSetParams)>()(exec, node, params.get(),
                                                                        ToReal(ctx));
      },
      [&](CUgraphNode node) { return Driver().cuGraphMemcpyNodeSetParams(node, params.get()); });
}

CUresult cuGraphExecMemsetNodeSetParams(const Call& call, CUgraphExec hGraphExec, CUgraphNode hNode,
                                        const CUDA_MEMSET_NODE_PARAMS* memsetParams, CUcontext ctx) {
  return ChangeNode(
      call, hGraphExec, hNode,
      [&](CUgraphExec exec, CUgraphNode node) {
        return call.Real<decltype(&::cuGraphExecMemsetNodeSetParams)>()(exec, node, memsetParams,
                                                                        ToReal(ctx));
      },
      [&](CUgraphNode node) { return Driver().cuGraphMemsetNodeSetParams(node, memsetParams); });
}

CUresult cuGraphExecHostNodeSetParams(const Call& call, CUgraphExec hGraphExec, CUgraphNode hNode,
                                      const CUDA_HOST_NODE_PARAMS* nodeParams) {
  return ChangeNode(
      call, hGraphExec, hNode,
      [&](CUgraphExec exec, CUgraphNode node) {
        return call.Real<decltype(&::cuGraphExecHostNodeSetParams)>()(exec, node, nodeParams);
      },
      [&](CUgraphNode node) { return Driver().cuGraphHostNodeSetParams(node, nodeParams); });
}

CUresult cuGraphExecEventRecordNodeSetEvent(const Call& call, CUgraphExec hGraphExec, CUgraphNode hNode,
                                            CUevent event) {
  return ChangeNode(
      call, hGraphExec, hNode,
      [&](CUgraphExec exec, CUgraphNode node) {
        return call.Real<decltype(&::cuGraphExecEventRecordNodeSetEvent)>()(exec, node, ToReal(event));
      },
      [&](CUgraphNode node) { return Driver().cuGraphEventRecordNodeSetEvent(node, ToReal(event)); });
}

CUresult cuGraphExecEventWaitNodeSetEvent(const Call& call, CUgraphExec hGraphExec, CUgraphNode hNode,
                                          CUevent event) {
  return ChangeNode(
      call, hGraphExec, hNode,
      [&](CUgraphExec exec, CUgraphNode node) {
        return call.Real<decltype(&::cuGraphExecEventWaitNodeSetEvent)>()(exec, node, ToReal(event));
      },
      [&](CUgraphNode node) { return Driver().cuGraphEventWaitNodeSetEvent(node, ToReal(event)); });
}

CUresult cuGraphExecBatchMemOpNodeSetParams(const Call& call, CUgraphExec hGraphExec, CUgraphNode hNode,
                                            const CUDA_BATCH_MEM_OP_NODE_PARAMS* nodeParams) {
  const RealParams<CUDA_BATCH_MEM_OP_NODE_PARAMS> params(nodeParams);
  return ChangeNode(
      call, hGraphExec, hNode,
      [&](CUgraphExec exec, CUgraphNode node) {
        return call.Real<decltype(&::cuGraphExecBatchMemOpNodeSetParams)>()(exec, node, params.get());
      },
      [&](CUgraphNode node) { return Driver().cuGraphBatchMemOpNodeSetParams(node, params.get()); });
}

CUresult cuGraphExecChildGraphNodeSetParams(const Call& call, CUgraphExec hGraphExec, CUgraphNode hNode,
                                            CUgraph childGraph) {
  return ChangeChild(call, hGraphExec, hNode, childGraph,
                     [](const Call& made, CUgraphExec exec, CUgraphNode node, CUgraph child) {
                       return made.Real<decltype(&::cuGraphExecChildGraphNodeSetParams)>()(exec, node, child);
                     });
}

CUresult cuGraphExecNodeSetParams(const Call& call, CUgraphExec hGraphExec, CUgraphNode hNode,
                                  CUgraphNodeParams* nodeParams) {
  RealParams<CUgraphNodeParams> params(nodeParams);
  const auto real = call.Real<decltype(&::cuGraphExecNodeSetParams)>();
  const auto set = [&](CUgraphExec exec, CUgraphNode node) { return real(exec, node, params.get_mutable()); };
  if (nodeParams == nullptr || nodeParams->type != CU_GRAPH_NODE_TYPE_GRAPH)
    return ChangeNode(call, hGraphExec, hNode, set, [&](CUgraphNode node) {
      return Driver().cuGraphNodeSetParams(node, params.get_mutable());
    });
  return ChangeChild(call, hGraphExec, hNode, nodeParams->graph.graph,
                     [](const Call& made, CUgraphExec exec, CUgraphNode node, CUgraph child) {
                       CUgraphNodeParams translated{};
                       translated.type = CU_GRAPH_NODE_TYPE_GRAPH;
                       translated.graph.graph = child;
                       return made.Real<decltype(&::cuGraphExecNodeSetParams)>()(exec, node, &translated);
                     });
}

}  // namespace stasis::hooks
