// Reading graphs through the driver's own queries.
#include "replay/graph_data.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "replay/conditional_record.h"
#include "replay/graph_edges.h"
#include "replay/object_table.h"
#include "replay/translate.h"
#include "vmm/real_driver.h"

namespace stasis::replay {

namespace {

// The program's handle of the driver's object, which will be there after a rebuild; null when we know of
// none. (ToVisible() passes on what it does not know, and that may be the handle of something else.)
template <typename Handle>
Handle* Known(Handle* real) {
  const RecordPtr record = ObjectTable::Get().FindReal(reinterpret_cast<uint64_t>(real));
  return record == nullptr ? nullptr : reinterpret_cast<Handle*>(record->visible());
}

Status Refuse(const char* what) {
  return Errorf(StatusCode::kUnsupported, "a graph node cannot be rebuilt: %s", what);
}

// Empty for the kinds that are carried.
const char* UnsupportedKind(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return "";
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return "memory allocation node (cuGraphAddMemAllocNode, or cuMemAllocAsync in a capture)";
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return "memory free node (cuGraphAddMemFreeNode, or cuMemFreeAsync in a capture)";
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
      return "external semaphore signal node (cuGraphAddExternalSemaphoresSignalNode)";
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
      return "external semaphore wait node (cuGraphAddExternalSemaphoresWaitNode)";
    default:
      return "node of an unknown kind";
  }
}

// The attributes that cuGraphKernelNodeGetAttribute answers; those of launches alone have become edges.
constexpr CUlaunchAttributeID kAttributes[] = {
    CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW,
    CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
    CU_LAUNCH_ATTRIBUTE_PRIORITY,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP,
    CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN,
    CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION,
    CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT,
    CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING,
};

bool IsZero(const CUlaunchAttributeValue& value) {
  return std::all_of(std::begin(value.pad), std::end(value.pad), [](char byte) { return byte == 0; });
}

// What a node has not been given reads as zeros.
Status ReadAttributes(GraphNodeData* node) {
  CUlaunchAttributeValue value{};
  const CUresult updatable = Driver().cuGraphKernelNodeGetAttribute(
      node->real, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value);
  if (updatable == CUDA_SUCCESS && value.deviceUpdatableKernelNode.deviceUpdatable != 0)
    return Refuse("kernel node that the device updates (CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE)");
  for (CUlaunchAttributeID id : kAttributes) {
    CUlaunchAttribute attribute{};
    attribute.id = id;
    const CUresult result = Driver().cuGraphKernelNodeGetAttribute(node->real, id, &attribute.value);
    if (result == CUDA_SUCCESS && !IsZero(attribute.value)) node->attributes.push_back(attribute);
  }
  return {};
}

// A kernel is named by a function or a kernel handle, each with its own query.
CUresult ParamInfo(const CUDA_KERNEL_NODE_PARAMS& params, size_t index, size_t* offset, size_t* size) {
  const char* name = nullptr;
  CUkernel kernel = params.kern;
  if (params.func != nullptr) {
    if (Driver().cuFuncGetName(&name, params.func) == CUDA_SUCCESS)
      return Driver().cuFuncGetParamInfo(params.func, index, offset, size);
    kernel = reinterpret_cast<CUkernel>(params.func);
  }
  return Driver().cuKernelGetParamInfo(kernel, index, offset, size);
}

Status ReadArguments(const CUDA_KERNEL_NODE_PARAMS& params, GraphNodeData* node) {
  for (size_t index = 0;; ++index) {
    size_t offset = 0, size = 0;
    const CUresult result = ParamInfo(params, index, &offset, &size);
    if (result == CUDA_ERROR_INVALID_VALUE) return {};  // the end of the list
    RETURN_IF_ERROR(DriverStatus(result, "cuFuncGetParamInfo"));
    if (params.kernelParams == nullptr || params.kernelParams[index] == nullptr)
      return Refuse("kernel node whose arguments the driver does not tell");
    node->offsets.push_back(offset);
    node->arguments.resize(std::max(node->arguments.size(), offset + size));
    std::memcpy(node->arguments.data() + offset, params.kernelParams[index], size);
  }
}

// A function that the program has no handle of: the driver made it, e.g. out of a kernel of a library.
Status ReadForeignFunction(CUfunction real, GraphNodeData* node) {
  CUmodule module = nullptr;
  const char* name = nullptr;
  if (Driver().cuFuncGetModule(&module, real) != CUDA_SUCCESS || Known(module) == nullptr ||
      Driver().cuFuncGetName(&name, real) != CUDA_SUCCESS)
    return Refuse("kernel node with a function of an unknown module");
  node->module = Known(module);
  node->function = name;
  return {};
}

Status ReadKernel(GraphNodeData* node) {
  CUDA_KERNEL_NODE_PARAMS params{};
  RETURN_IF_ERROR(DriverStatus(Driver().cuGraphKernelNodeGetParams_v2(node->real, &params),
                               "cuGraphKernelNodeGetParams"));
  RETURN_IF_ERROR(ReadArguments(params, node));
  CUDA_KERNEL_NODE_PARAMS_v3& out = node->params.kernel;
  out.func = Known(params.func);
  out.kern = params.func == nullptr ? Known(params.kern) : nullptr;
  out.ctx = params.func == nullptr ? Known(params.ctx) : nullptr;
  out.gridDimX = params.gridDimX, out.gridDimY = params.gridDimY, out.gridDimZ = params.gridDimZ;
  out.blockDimX = params.blockDimX, out.blockDimY = params.blockDimY, out.blockDimZ = params.blockDimZ;
  out.sharedMemBytes = params.sharedMemBytes;
  if (params.func != nullptr && out.func == nullptr) RETURN_IF_ERROR(ReadForeignFunction(params.func, node));
  if (params.func == nullptr && out.kern == nullptr)
    return Refuse("kernel node with a kernel of an unknown library");
  return ReadAttributes(node);
}

Status CheckArray(CUmemorytype type, CUarray* array) {
  if (type != CU_MEMORYTYPE_ARRAY) return {};
  *array = Known(*array);
  return *array != nullptr ? Status() : Refuse("copy node with an array that is not tracked");
}

Status ReadCopy(GraphNodeData* node) {
  CUDA_MEMCPY3D& copy = node->params.memcpy.copyParams;
  RETURN_IF_ERROR(
      DriverStatus(Driver().cuGraphMemcpyNodeGetParams(node->real, &copy), "cuGraphMemcpyNodeGetParams"));
  RETURN_IF_ERROR(CheckArray(copy.srcMemoryType, &copy.srcArray));
  return CheckArray(copy.dstMemoryType, &copy.dstArray);
}

Status ReadSet(GraphNodeData* node) {
  CUDA_MEMSET_NODE_PARAMS set{};
  RETURN_IF_ERROR(
      DriverStatus(Driver().cuGraphMemsetNodeGetParams(node->real, &set), "cuGraphMemsetNodeGetParams"));
  node->params.memset = {set.dst, set.pitch, set.value, set.elementSize, set.width, set.height, nullptr};
  return {};
}

Status ReadHost(GraphNodeData* node) {
  CUDA_HOST_NODE_PARAMS host{};
  RETURN_IF_ERROR(
      DriverStatus(Driver().cuGraphHostNodeGetParams(node->real, &host), "cuGraphHostNodeGetParams"));
  node->params.host = {host.fn, host.userData};
  return {};
}

Status ReadEvent(GraphNodeData* node) {
  const bool record = node->type == CU_GRAPH_NODE_TYPE_EVENT_RECORD;
  CUevent event = nullptr;
  const CUresult result = record ? Driver().cuGraphEventRecordNodeGetEvent(node->real, &event)
                                 : Driver().cuGraphEventWaitNodeGetEvent(node->real, &event);
  RETURN_IF_ERROR(DriverStatus(result, "cuGraphEvent{Record,Wait}NodeGetEvent"));
  event = Known(event);
  if (event == nullptr) return Refuse("event node whose event was destroyed");
  (record ? node->params.eventRecord.event : node->params.eventWait.event) = event;
  return {};
}

Status ReadMemOps(GraphNodeData* node) {
  CUDA_BATCH_MEM_OP_NODE_PARAMS batch{};
  RETURN_IF_ERROR(DriverStatus(Driver().cuGraphBatchMemOpNodeGetParams(node->real, &batch),
                               "cuGraphBatchMemOpNodeGetParams"));
  node->operations.assign(batch.paramArray, batch.paramArray + batch.count);
  node->params.memOp.ctx = Known(batch.ctx);
  node->params.memOp.count = batch.count;
  node->params.memOp.flags = batch.flags;
  return {};
}

Status ReadChild(GraphNodeData* node) {
  CUgraph child = nullptr;
  RETURN_IF_ERROR(DriverStatus(Driver().cuGraphChildGraphNodeGetGraph(node->real, &child),
                               "cuGraphChildGraphNodeGetGraph"));
  node->child = std::make_unique<GraphData>();
  return ReadGraph(child, node->child.get());
}

// The driver tells nothing of them but that they are.
Status ReadConditional(GraphNodeData* node) {
  const std::optional<ConditionalNode> made = FindConditionalNode(node->visible);
  if (!made.has_value()) return Refuse("conditional node that is not tracked (cuGraphAddNode)");
  node->params.conditional.handle = made->handle;
  node->params.conditional.type = made->type;
  node->params.conditional.size = static_cast<unsigned>(made->bodies.size());
  node->params.conditional.ctx = made->context;
  node->bodies.resize(made->bodies.size());
  for (size_t i = 0; i < made->bodies.size(); ++i)
    RETURN_IF_ERROR(ReadGraph(ToReal(made->bodies[i]), &node->bodies[i]));
  return {};
}

Status ReadNode(CUgraphNode real, GraphNodeData* node) {
  node->real = real;
  node->visible = ToVisible(real);
  RETURN_IF_ERROR(DriverStatus(Driver().cuGraphNodeGetType(real, &node->type), "cuGraphNodeGetType"));
  if (*UnsupportedKind(node->type) != 0) return Refuse(UnsupportedKind(node->type));
  node->params.type = node->type;
  switch (node->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return ReadKernel(node);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return ReadCopy(node);
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return ReadSet(node);
    case CU_GRAPH_NODE_TYPE_HOST:
      return ReadHost(node);
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return ReadChild(node);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return ReadEvent(node);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return ReadMemOps(node);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return ReadConditional(node);
    default:
      return {};  // an empty node has no parameters
  }
}

struct Neighbours {
  std::vector<CUgraphNode> nodes;
  std::vector<CUgraphEdgeData> edges;
};

// A driver older than edge data has only the first version.
CUresult Ask(CUgraphNode node, bool dependents, CUgraphNode* nodes, CUgraphEdgeData* edges, size_t* count) {
  const auto query =
      dependents ? Driver().cuGraphNodeGetDependentNodes_v2 : Driver().cuGraphNodeGetDependencies_v2;
  const CUresult result = query(node, nodes, edges, count);
  if (result != CUDA_ERROR_NOT_FOUND) return result;
  return dependents ? Driver().cuGraphNodeGetDependentNodes(node, nodes, count)
                    : Driver().cuGraphNodeGetDependencies(node, nodes, count);
}

Result<Neighbours> ListNeighbours(CUgraphNode node, bool dependents) {
  size_t count = 0;
  RETURN_IF_ERROR(
      DriverStatus(Ask(node, dependents, nullptr, nullptr, &count), "cuGraphNodeGetDependencies"));
  Neighbours found{std::vector<CUgraphNode>(count), std::vector<CUgraphEdgeData>(count)};
  if (count == 0) return found;
  RETURN_IF_ERROR(DriverStatus(Ask(node, dependents, found.nodes.data(), found.edges.data(), &count),
                               "cuGraphNodeGetDependencies"));
  return found;
}

using Places = std::unordered_map<CUgraphNode, size_t>;

Status ReadNeighbours(const Places& places, CUgraphNode node, bool dependents, std::vector<size_t>* out,
                      std::vector<CUgraphEdgeData>* data) {
  ASSIGN_OR_RETURN(Neighbours found, ListNeighbours(node, dependents));
  for (CUgraphNode neighbour : found.nodes) {
    const auto place = places.find(neighbour);
    if (place == places.end())
      return Errorf(StatusCode::kDriver, "an edge of a graph leads to a node of another");
    out->push_back(place->second);
  }
  *data = std::move(found.edges);
  return {};
}

Status ReadEdges(GraphData* graph) {
  const size_t count = graph->nodes.size();
  Places places;
  for (size_t i = 0; i < count; ++i) places[graph->nodes[i].real] = i;
  std::vector<std::vector<size_t>> dependencies(count), dependents(count);
  std::vector<std::vector<CUgraphEdgeData>> data(count);
  std::vector<CUgraphEdgeData> ignored;
  for (size_t i = 0; i < count; ++i) {
    const CUgraphNode node = graph->nodes[i].real;
    RETURN_IF_ERROR(ReadNeighbours(places, node, false, &dependencies[i], &data[i]));
    RETURN_IF_ERROR(ReadNeighbours(places, node, true, &dependents[i], &ignored));
  }
  for (const auto& [from, to] : OrderEdges(dependencies, dependents)) {
    const auto place = std::find(dependencies[to].begin(), dependencies[to].end(), from);
    graph->edges.push_back({from, to, data[to][static_cast<size_t>(place - dependencies[to].begin())]});
  }
  return {};
}

}  // namespace

Result<std::vector<CUgraphNode>> ListNodes(CUgraph real) {
  size_t count = 0;
  RETURN_IF_ERROR(DriverStatus(Driver().cuGraphGetNodes(real, nullptr, &count), "cuGraphGetNodes"));
  std::vector<CUgraphNode> nodes(count);
  if (count != 0)
    RETURN_IF_ERROR(DriverStatus(Driver().cuGraphGetNodes(real, nodes.data(), &count), "cuGraphGetNodes"));
  return nodes;
}

Status ReadGraph(CUgraph real, GraphData* out) {
  out->real = real;
  out->visible = ToVisible(real);
  out->nodes.clear();
  out->edges.clear();
  ASSIGN_OR_RETURN(const std::vector<CUgraphNode> handles, ListNodes(real));
  out->nodes.resize(handles.size());
  for (size_t i = 0; i < handles.size(); ++i) RETURN_IF_ERROR(ReadNode(handles[i], &out->nodes[i]));
  return ReadEdges(out);
}

std::string FindUnsupportedNode(CUgraph real) {
  GraphHandles handles;
  if (!ListHandles(real, &handles).ok()) return {};
  for (CUgraphNode node : handles.nodes) {
    CUgraphNodeType type;
    if (Driver().cuGraphNodeGetType(node, &type) == CUDA_SUCCESS && *UnsupportedKind(type) != 0)
      return UnsupportedKind(type);
  }
  return {};
}

namespace {

template <typename T>
bool SameBytes(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

template <typename T>
bool SameList(const std::vector<T>& a, const std::vector<T>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), SameBytes<T>);
}

// The parameters hold no pointers to what was read with them, except the program's own.
bool SameNode(const GraphNodeData& a, const GraphNodeData& b) {
  const bool children =
      (a.child == nullptr) == (b.child == nullptr) && (a.child == nullptr || SameGraph(*a.child, *b.child));
  return children && a.visible == b.visible && SameBytes(a.params, b.params) && a.arguments == b.arguments &&
         a.offsets == b.offsets && SameList(a.attributes, b.attributes) && a.module == b.module &&
         a.function == b.function && SameList(a.operations, b.operations) &&
         std::equal(a.bodies.begin(), a.bodies.end(), b.bodies.begin(), b.bodies.end(), SameGraph);
}

Status ListBodies(CUgraphNode real, GraphHandles* out) {
  const std::optional<ConditionalNode> made = FindConditionalNode(ToVisible(real));
  if (!made.has_value()) return {};
  for (CUgraph body : made->bodies) {
    out->children.push_back(ToReal(body));
    RETURN_IF_ERROR(ListHandles(out->children.back(), out));
  }
  return {};
}

bool SameEdge(const GraphEdge& a, const GraphEdge& b) {
  return a.from == b.from && a.to == b.to && SameBytes(a.data, b.data);
}

}  // namespace

bool SameGraph(const GraphData& a, const GraphData& b) {
  return std::equal(a.nodes.begin(), a.nodes.end(), b.nodes.begin(), b.nodes.end(), SameNode) &&
         std::equal(a.edges.begin(), a.edges.end(), b.edges.begin(), b.edges.end(), SameEdge);
}

Status CheckHandles(const GraphData& graph) {
  const auto known = [](const auto* handle) {
    return handle == nullptr || ObjectTable::Get().Find(reinterpret_cast<uint64_t>(handle)) != nullptr;
  };
  for (const GraphNodeData& node : graph.nodes) {
    const CUgraphNodeParams& params = node.params;
    bool there = known(node.module);
    if (node.type == CU_GRAPH_NODE_TYPE_KERNEL)
      there = there && known(params.kernel.func) && known(params.kernel.kern);
    if (node.type == CU_GRAPH_NODE_TYPE_EVENT_RECORD) there = known(params.eventRecord.event);
    if (node.type == CU_GRAPH_NODE_TYPE_WAIT_EVENT) there = known(params.eventWait.event);
    const CUDA_MEMCPY3D& copy = params.memcpy.copyParams;
    if (node.type == CU_GRAPH_NODE_TYPE_MEMCPY)
      there = (copy.srcMemoryType != CU_MEMORYTYPE_ARRAY || known(copy.srcArray)) &&
              (copy.dstMemoryType != CU_MEMORYTYPE_ARRAY || known(copy.dstArray));
    if (!there) return Refuse("what it names was destroyed");
    if (node.child != nullptr) RETURN_IF_ERROR(CheckHandles(*node.child));
    for (const GraphData& body : node.bodies) RETURN_IF_ERROR(CheckHandles(body));
  }
  return {};
}

bool HasConditionalNodes(const GraphData& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [](const GraphNodeData& node) { return node.type == CU_GRAPH_NODE_TYPE_CONDITIONAL; });
}

Status ListHandles(CUgraph real, GraphHandles* out) {
  ASSIGN_OR_RETURN(const std::vector<CUgraphNode> nodes, ListNodes(real));
  for (CUgraphNode node : nodes) {
    out->nodes.push_back(node);
    CUgraphNodeType type;
    RETURN_IF_ERROR(DriverStatus(Driver().cuGraphNodeGetType(node, &type), "cuGraphNodeGetType"));
    if (type == CU_GRAPH_NODE_TYPE_CONDITIONAL) RETURN_IF_ERROR(ListBodies(node, out));
    CUgraph child = nullptr;
    if (type != CU_GRAPH_NODE_TYPE_GRAPH ||
        Driver().cuGraphChildGraphNodeGetGraph(node, &child) != CUDA_SUCCESS)
      continue;
    out->children.push_back(child);
    RETURN_IF_ERROR(ListHandles(child, out));
  }
  return {};
}

void IndexNodes(GraphData* data, GraphNodeIndex* index) {
  for (GraphNodeData& node : data->nodes) {
    (*index)[node.real] = &node;
    if (node.child != nullptr) IndexNodes(node.child.get(), index);
    for (GraphData& body : node.bodies) IndexNodes(&body, index);
  }
}

}  // namespace stasis::replay
