// Building graphs from plain data.
#include <utility>

#include "replay/graph_data.h"
#include "replay/translate.h"
#include "vmm/real_driver.h"

namespace stasis::replay {

namespace {

// The driver does not tell the context that a copy or a fill was added with. It is one of the device that
// the memory is on: the graph's own, or else that device's primary one.
CUcontext ContextOf(CUdeviceptr address, CUcontext context) {
  CUdevice own = 0;
  int device = 0;
  if (Driver().cuCtxGetDevice(&own) != CUDA_SUCCESS ||
      Driver().cuPointerGetAttribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address) != CUDA_SUCCESS ||
      device == own)
    return context;
  unsigned flags = 0;
  int active = 0;
  CUcontext primary = nullptr;
  if (Driver().cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS || active == 0 ||
      Driver().cuDevicePrimaryCtxRetain(&primary, device) != CUDA_SUCCESS)
    return context;
  Driver().cuDevicePrimaryCtxRelease_v2(device);  // it stays: it was active before
  return primary;
}

bool IsDeviceAddress(CUmemorytype type) {
  return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED;
}

void FinishCopy(CUDA_MEMCPY_NODE_PARAMS& params, CUcontext context) {
  CUDA_MEMCPY3D& copy = params.copyParams;
  params.copyCtx = context;
  if (IsDeviceAddress(copy.dstMemoryType)) {
    params.copyCtx = ContextOf(copy.dstDevice, context);
  } else if (IsDeviceAddress(copy.srcMemoryType)) {
    params.copyCtx = ContextOf(copy.srcDevice, context);
  }
  if (copy.srcMemoryType == CU_MEMORYTYPE_ARRAY) copy.srcArray = ToReal(copy.srcArray);
  if (copy.dstMemoryType == CU_MEMORYTYPE_ARRAY) copy.dstArray = ToReal(copy.dstArray);
}

Status FinishKernel(GraphNodeData& node, CUcontext context, CUDA_KERNEL_NODE_PARAMS_v3& kernel,
                    NodeParamsStorage* storage) {
  if (node.module != nullptr) {
    const CUresult result =
        Driver().cuModuleGetFunction(&kernel.func, ToReal(node.module), node.function.c_str());
    RETURN_IF_ERROR(DriverStatus(result, node.function.c_str()));
  } else {
    kernel.func = ToReal(kernel.func);
  }
  kernel.kern = ToReal(kernel.kern);
  if (kernel.func == nullptr) kernel.ctx = kernel.ctx != nullptr ? ToReal(kernel.ctx) : context;
  storage->pointers.clear();
  for (size_t offset : node.offsets) storage->pointers.push_back(node.arguments.data() + offset);
  storage->pointers.push_back(nullptr);
  kernel.kernelParams = storage->pointers.data();
  return {};
}

Status AddChild(GraphNodeData& node, CUgraph graph, CUcontext context) {
  // An empty graph goes in and is filled in place, so that the nodes are known without a search for clones.
  CUgraph empty = nullptr;
  RETURN_IF_ERROR(DriverStatus(Driver().cuGraphCreate(&empty, 0), "cuGraphCreate"));
  const CUresult added = Driver().cuGraphAddChildGraphNode(&node.real, graph, nullptr, 0, empty);
  Driver().cuGraphDestroy(empty);
  RETURN_IF_ERROR(DriverStatus(added, "cuGraphAddChildGraphNode"));
  CUgraph child = nullptr;
  RETURN_IF_ERROR(DriverStatus(Driver().cuGraphChildGraphNodeGetGraph(node.real, &child),
                               "cuGraphChildGraphNodeGetGraph"));
  return BuildGraph(child, context, node.child.get());
}

// The handle is there already (conditional_record.h).
Status AddConditional(GraphNodeData& node, CUgraph graph, CUcontext context) {
  CUgraphNodeParams params = node.params;
  params.conditional.ctx = ToReal(params.conditional.ctx);
  CUresult result = Driver().cuGraphAddNode_v2(&node.real, graph, nullptr, nullptr, 0, &params);
  if (result == CUDA_ERROR_NOT_FOUND)
    result = Driver().cuGraphAddNode(&node.real, graph, nullptr, 0, &params);
  RETURN_IF_ERROR(DriverStatus(result, "cuGraphAddNode"));
  for (size_t i = 0; i < node.bodies.size(); ++i)
    RETURN_IF_ERROR(BuildGraph(params.conditional.phGraph_out[i], context, &node.bodies[i]));
  return {};
}

Status AddNode(GraphNodeData& node, CUgraph graph, CUcontext context) {
  if (node.type == CU_GRAPH_NODE_TYPE_GRAPH) return AddChild(node, graph, context);
  if (node.type == CU_GRAPH_NODE_TYPE_CONDITIONAL) return AddConditional(node, graph, context);
  NodeParamsStorage storage;
  ASSIGN_OR_RETURN(CUgraphNodeParams params, RealParams(node, context, &storage));
  CUresult result = Driver().cuGraphAddNode_v2(&node.real, graph, nullptr, nullptr, 0, &params);
  if (result == CUDA_ERROR_NOT_FOUND)
    result = Driver().cuGraphAddNode(&node.real, graph, nullptr, 0, &params);
  RETURN_IF_ERROR(DriverStatus(result, "cuGraphAddNode"));
  for (const CUlaunchAttribute& attribute : node.attributes) {
    RETURN_IF_ERROR(
        DriverStatus(Driver().cuGraphKernelNodeSetAttribute(node.real, attribute.id, &attribute.value),
                     "cuGraphKernelNodeSetAttribute"));
  }
  return {};
}

Status AddEdges(const GraphData& data) {
  std::vector<CUgraphNode> from, to;
  std::vector<CUgraphEdgeData> edges;
  for (const GraphEdge& edge : data.edges) {
    from.push_back(data.nodes[edge.from].real);
    to.push_back(data.nodes[edge.to].real);
    edges.push_back(edge.data);
  }
  if (from.empty()) return {};
  CUresult result =
      Driver().cuGraphAddDependencies_v2(data.real, from.data(), to.data(), edges.data(), from.size());
  if (result == CUDA_ERROR_NOT_FOUND)
    result = Driver().cuGraphAddDependencies(data.real, from.data(), to.data(), from.size());
  return DriverStatus(result, "cuGraphAddDependencies");
}

}  // namespace

Result<CUgraphNodeParams> RealParams(GraphNodeData& node, CUcontext context, NodeParamsStorage* storage) {
  CUgraphNodeParams params = node.params;
  switch (node.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      RETURN_IF_ERROR(FinishKernel(node, context, params.kernel, storage));
      break;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      FinishCopy(params.memcpy, context);
      break;
    case CU_GRAPH_NODE_TYPE_MEMSET:
      params.memset.ctx = ContextOf(params.memset.dst, context);
      break;
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      params.eventRecord.event = ToReal(params.eventRecord.event);
      break;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      params.eventWait.event = ToReal(params.eventWait.event);
      break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      params.memOp.ctx = params.memOp.ctx != nullptr ? ToReal(params.memOp.ctx) : context;
      params.memOp.paramArray = node.operations.data();
      break;
    default:
      break;
  }
  return params;
}

Status BuildGraph(CUgraph real, CUcontext context, GraphData* data) {
  data->real = real;
  for (GraphNodeData& node : data->nodes) RETURN_IF_ERROR(AddNode(node, real, context));
  return AddEdges(*data);
}

}  // namespace stasis::replay
