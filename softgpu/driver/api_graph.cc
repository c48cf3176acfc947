// Graphs as a whole: making, shape, executable form, user objects.
#include "softgpu/driver/api_graph.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "softgpu/driver/capture.h"
#include "softgpu/driver/graph_conditional.h"
#include "softgpu/driver/stream.h"

using softgpu::Entry;
using softgpu::Graph;
using softgpu::GraphExec;
using softgpu::Need;
using softgpu::Node;
using softgpu::Stream;
using softgpu::UserObject;

namespace softgpu {

std::shared_ptr<Node> FindNode(CUgraphNode handle) { return State::Get()->nodes.Find(handle); }

bool FindNodes(const CUgraphNode* handles, size_t count, std::vector<Node*>* out) {
  if (count != 0 && handles == nullptr) return false;
  for (size_t i = 0; i < count; i++) {
    std::shared_ptr<Node> node = FindNode(handles[i]);
    if (node == nullptr) return false;
    out->push_back(node.get());
  }
  return true;
}

void Adopt(const Action& action, Node* node) {
  if (auto* child = dynamic_cast<const ChildAction*>(&action)) child->graph->parent = node;
  if (auto* conditional = dynamic_cast<const ConditionalAction*>(&action)) {
    for (const std::shared_ptr<Graph>& body : conditional->bodies) body->parent = node;
  }
}

CUresult CheckEdges(const CUgraphEdgeData* edges, size_t count) {
  if (edges == nullptr) return CUDA_SUCCESS;
  for (size_t i = 0; i < count; i++) {
    if (edges[i].from_port != 0 || edges[i].to_port != 0 || edges[i].type != 0)
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  return CUDA_SUCCESS;
}

}  // namespace softgpu

namespace {

constexpr unsigned long long kInstantiateFlags =
    CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD |
    CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;

// Lists are asked for twice: for their length, and for as much as there is room. What is beyond the end is
// null.
template <typename Handle, typename Get>
CUresult CopyList(size_t available, Handle* out, size_t* count, Get get) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (out == nullptr) {
    *count = available;
    return CUDA_SUCCESS;
  }
  for (size_t i = 0; i < *count; i++) out[i] = i < available ? get(i) : Handle{};
  *count = std::min(*count, available);
  return CUDA_SUCCESS;
}

CUresult ListNodes(const std::vector<Node*>& nodes, CUgraphNode* out, size_t* count) {
  return CopyList(nodes.size(), out, count, [&](size_t i) { return nodes[i]->handle(); });
}

CUresult ListEdges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* data, size_t* count) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  std::shared_ptr<Graph> graph = entry.state().graphs.Find(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (count == nullptr || (from == nullptr) != (to == nullptr)) return CUDA_ERROR_INVALID_VALUE;
  std::vector<std::pair<Node*, Node*>> edges = graph->Edges();
  size_t room = *count;
  CUresult result = CopyList(edges.size(), from, count, [&](size_t i) { return edges[i].first->handle(); });
  if (from == nullptr) return result;
  result = CopyList(edges.size(), to, &room, [&](size_t i) { return edges[i].second->handle(); });
  if (data != nullptr) std::fill_n(data, *count, CUgraphEdgeData{});
  return result;
}

CUresult ListNeighbours(CUgraphNode handle, bool dependents, CUgraphNode* out, CUgraphEdgeData* data,
                        size_t* count) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  std::shared_ptr<Node> node = softgpu::FindNode(handle);
  if (node == nullptr || count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::vector<Node*> nodes;
  {
    std::lock_guard lock(node->graph().mutex());
    nodes = dependents ? node->dependents : node->dependencies;
  }
  CUresult result = ListNodes(nodes, out, count);
  if (out != nullptr && data != nullptr) std::fill_n(data, *count, CUgraphEdgeData{});
  return result;
}

CUresult ChangeEdges(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to,
                     const CUgraphEdgeData* data, size_t count, bool add) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  std::shared_ptr<Graph> graph = entry.state().graphs.Find(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  CUresult checked = softgpu::CheckEdges(data, count);
  if (checked != CUDA_SUCCESS) return checked;
  std::vector<Node*> sources, targets;
  if (!softgpu::FindNodes(from, count, &sources) || !softgpu::FindNodes(to, count, &targets)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return add ? graph->AddDependencies(sources, targets) : graph->RemoveDependencies(sources, targets);
}

CUresult Instantiate(CUgraphExec* out, CUgraph handle, unsigned long long flags, CUgraphNode* error_node) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  std::shared_ptr<Graph> graph = entry.state().graphs.Find(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (out == nullptr || (flags & ~kInstantiateFlags) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0) return CUDA_ERROR_NOT_SUPPORTED;
  std::shared_ptr<GraphExec> exec;
  CUresult result = GraphExec::Create(entry.context(), *graph, flags, &exec, error_node);
  if (result == CUDA_SUCCESS) *out = entry.state().graph_execs.Add(std::move(exec));
  return result;
}

CUresult Update(CUgraphExec exec_handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo* info) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  if (info == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<GraphExec> exec = entry.state().graph_execs.Find(exec_handle);
  std::shared_ptr<Graph> graph = entry.state().graphs.Find(graph_handle);
  if (exec == nullptr || graph == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  return exec->Update(*graph, info);
}

const char* TypeName(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return "KERNEL";
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return "MEMCPY";
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return "MEMSET";
    case CU_GRAPH_NODE_TYPE_HOST:
      return "HOST";
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return "GRAPH";
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return "EMPTY";
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return "WAIT_EVENT";
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return "EVENT_RECORD";
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return "BATCH_MEM_OP";
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return "CONDITIONAL";
    default:
      return "OTHER";
  }
}

bool PrintDot(const Graph& graph, const char* path) {
  FILE* file = std::fopen(path, "we");
  if (file == nullptr) return false;
  std::fprintf(file, "digraph dot {\n");
  for (Node* node : graph.Nodes()) {
    std::fprintf(file, "  n%llu [label=\"%llu %s\"];\n", static_cast<unsigned long long>(node->id()),
                 static_cast<unsigned long long>(node->id()), TypeName(node->action->type()));
  }
  for (const auto& [from, to] : graph.Edges()) {
    std::fprintf(file, "  n%llu -> n%llu;\n", static_cast<unsigned long long>(from->id()),
                 static_cast<unsigned long long>(to->id()));
  }
  std::fprintf(file, "}\n");
  return std::fclose(file) == 0;
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuGraphCreate(CUgraph* phGraph, unsigned int flags) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (phGraph == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
  *phGraph = entry.state().graphs.Add(std::make_shared<Graph>());
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphDestroy(CUgraph hGraph) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  std::shared_ptr<Graph> graph = entry.state().graphs.Find(hGraph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (graph->parent != nullptr) return CUDA_ERROR_INVALID_VALUE;
  entry.state().graphs.Remove(hGraph);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphClone(CUgraph* phGraphClone, CUgraph originalGraph) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  std::shared_ptr<Graph> graph = entry.state().graphs.Find(originalGraph);
  if (graph == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (phGraphClone == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!graph->MayBeCloned()) return CUDA_ERROR_NOT_SUPPORTED;
  *phGraphClone = entry.state().graphs.Add(graph->Clone());
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphNodeFindInClone(CUgraphNode* phNode, CUgraphNode hOriginalNode,
                                        CUgraph hClonedGraph) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  std::shared_ptr<Graph> graph = entry.state().graphs.Find(hClonedGraph);
  if (graph == nullptr || phNode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Node* node = graph->FindClone(hOriginalNode);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *phNode = node->handle();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType* type) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  std::shared_ptr<Node> node = softgpu::FindNode(hNode);
  if (node == nullptr || type == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::lock_guard lock(node->graph().mutex());
  *type = node->action->type();
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphDestroyNode(CUgraphNode hNode) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  std::shared_ptr<Node> node = softgpu::FindNode(hNode);
  return node != nullptr ? node->graph().RemoveNode(node.get()) : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphGetNodes(CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  std::shared_ptr<Graph> graph = entry.state().graphs.Find(hGraph);
  return graph != nullptr ? ListNodes(graph->Nodes(), nodes, numNodes) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuGraphGetRootNodes(CUgraph hGraph, CUgraphNode* rootNodes, size_t* numRootNodes) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  std::shared_ptr<Graph> graph = entry.state().graphs.Find(hGraph);
  return graph != nullptr ? ListNodes(graph->Roots(), rootNodes, numRootNodes) : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuGraphGetEdges_v2(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to,
                                    CUgraphEdgeData* edgeData, size_t* numEdges) {
  return ListEdges(hGraph, from, to, edgeData, numEdges);
}
CUresult CUDAAPI cuGraphGetEdges(CUgraph hGraph, CUgraphNode* from, CUgraphNode* to, size_t* numEdges) {
  return ListEdges(hGraph, from, to, nullptr, numEdges);
}

CUresult CUDAAPI cuGraphNodeGetDependencies_v2(CUgraphNode hNode, CUgraphNode* dependencies,
                                               CUgraphEdgeData* edgeData, size_t* numDependencies) {
  return ListNeighbours(hNode, false, dependencies, edgeData, numDependencies);
}
CUresult CUDAAPI cuGraphNodeGetDependencies(CUgraphNode hNode, CUgraphNode* dependencies,
                                            size_t* numDependencies) {
  return ListNeighbours(hNode, false, dependencies, nullptr, numDependencies);
}
CUresult CUDAAPI cuGraphNodeGetDependentNodes_v2(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                                 CUgraphEdgeData* edgeData, size_t* numDependentNodes) {
  return ListNeighbours(hNode, true, dependentNodes, edgeData, numDependentNodes);
}
CUresult CUDAAPI cuGraphNodeGetDependentNodes(CUgraphNode hNode, CUgraphNode* dependentNodes,
                                              size_t* numDependentNodes) {
  return ListNeighbours(hNode, true, dependentNodes, nullptr, numDependentNodes);
}

CUresult CUDAAPI cuGraphAddDependencies_v2(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                           const CUgraphEdgeData* edgeData, size_t numDependencies) {
  return ChangeEdges(hGraph, from, to, edgeData, numDependencies, true);
}
CUresult CUDAAPI cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                        size_t numDependencies) {
  return ChangeEdges(hGraph, from, to, nullptr, numDependencies, true);
}
CUresult CUDAAPI cuGraphRemoveDependencies_v2(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                              const CUgraphEdgeData* edgeData, size_t numDependencies) {
  return ChangeEdges(hGraph, from, to, edgeData, numDependencies, false);
}
CUresult CUDAAPI cuGraphRemoveDependencies(CUgraph hGraph, const CUgraphNode* from, const CUgraphNode* to,
                                           size_t numDependencies) {
  return ChangeEdges(hGraph, from, to, nullptr, numDependencies, false);
}

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec* phGraphExec, CUgraph hGraph,
                                             unsigned long long flags) {
  return Instantiate(phGraphExec, hGraph, flags, nullptr);
}
CUresult CUDAAPI cuGraphInstantiate(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                                    char* logBuffer, size_t bufferSize) {
  if (logBuffer != nullptr && bufferSize != 0) *logBuffer = 0;
  return Instantiate(phGraphExec, hGraph, 0, phErrorNode);
}
CUresult CUDAAPI cuGraphInstantiate_v2(CUgraphExec* phGraphExec, CUgraph hGraph, CUgraphNode* phErrorNode,
                                       char* logBuffer, size_t bufferSize) {
  if (logBuffer != nullptr && bufferSize != 0) *logBuffer = 0;
  return Instantiate(phGraphExec, hGraph, 0, phErrorNode);
}
CUresult CUDAAPI cuGraphInstantiateWithParams(CUgraphExec* phGraphExec, CUgraph hGraph,
                                              CUDA_GRAPH_INSTANTIATE_PARAMS* instantiateParams) {
  if (instantiateParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult result =
      Instantiate(phGraphExec, hGraph, instantiateParams->flags, &instantiateParams->hErrNode_out);
  instantiateParams->result_out = result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS
                                  : result == CUDA_ERROR_INVALID_VALUE
                                      ? CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE
                                      : CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}

CUresult CUDAAPI cuGraphExecGetFlags(CUgraphExec hGraphExec, cuuint64_t* flags) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  std::shared_ptr<GraphExec> exec = entry.state().graph_execs.Find(hGraphExec);
  if (exec == nullptr || flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Uploading is what the call did, not what the executable graph is (cuda.h).
  *flags = exec->flags() & ~static_cast<cuuint64_t>(CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec hGraphExec) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  return entry.state().graph_execs.Remove(hGraphExec) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  CUresult result;
  std::shared_ptr<Stream> stream = softgpu::ResolveStream(entry.context(), hStream, &result);
  if (stream == nullptr) return result;
  std::shared_ptr<GraphExec> exec = entry.state().graph_execs.Find(hGraphExec);
  if (exec == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (std::shared_ptr<softgpu::Capture> capture = stream->capture()) {
    capture->Invalidate();
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return exec->Launch(*stream);
}

// Everything an execution needs is there from the beginning.
CUresult CUDAAPI cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  CUresult result;
  std::shared_ptr<Stream> stream = softgpu::ResolveStream(entry.context(), hStream, &result);
  if (stream == nullptr) return result;
  return entry.state().graph_execs.Find(hGraphExec) != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult CUDAAPI cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph,
                                      CUgraphExecUpdateResultInfo* resultInfo) {
  return Update(hGraphExec, hGraph, resultInfo);
}
CUresult CUDAAPI cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode* hErrorNode_out,
                                   CUgraphExecUpdateResult* updateResult_out) {
  CUgraphExecUpdateResultInfo info{};
  CUresult result = Update(hGraphExec, hGraph, &info);
  if (hErrorNode_out != nullptr) *hErrorNode_out = info.errorNode;
  if (updateResult_out != nullptr) *updateResult_out = info.result;
  return result;
}

CUresult CUDAAPI cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  std::shared_ptr<GraphExec> exec = entry.state().graph_execs.Find(hGraphExec);
  std::shared_ptr<Node> node = softgpu::FindNode(hNode);
  if (exec == nullptr || node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return exec->SetEnabled(*node, isEnabled != 0);
}

CUresult CUDAAPI cuGraphNodeGetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int* isEnabled) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  std::shared_ptr<GraphExec> exec = entry.state().graph_execs.Find(hGraphExec);
  std::shared_ptr<Node> node = softgpu::FindNode(hNode);
  if (exec == nullptr || node == nullptr || isEnabled == nullptr) return CUDA_ERROR_INVALID_VALUE;
  bool enabled = false;
  CUresult result = exec->GetEnabled(*node, &enabled);
  if (result == CUDA_SUCCESS) *isEnabled = enabled;
  return result;
}

CUresult CUDAAPI cuGraphDebugDotPrint(CUgraph hGraph, const char* path, unsigned int flags) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  static_cast<void>(flags);
  std::shared_ptr<Graph> graph = entry.state().graphs.Find(hGraph);
  if (graph == nullptr || path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return PrintDot(*graph, path) ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult CUDAAPI cuUserObjectCreate(CUuserObject* object_out, void* ptr, CUhostFn destroy,
                                    unsigned int initialRefcount, unsigned int flags) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  if (object_out == nullptr || destroy == nullptr || initialRefcount == 0 || initialRefcount > INT32_MAX ||
      flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *object_out = entry.state().user_objects.Add(std::make_shared<UserObject>(ptr, destroy, initialRefcount));
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuUserObjectRetain(CUuserObject object, unsigned int count) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  std::shared_ptr<UserObject> found = entry.state().user_objects.Find(object);
  if (found == nullptr || count == 0 || count > INT32_MAX) return CUDA_ERROR_INVALID_VALUE;
  found->Retain(count);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuUserObjectRelease(CUuserObject object, unsigned int count) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  std::shared_ptr<UserObject> found = entry.state().user_objects.Find(object);
  if (found == nullptr || count == 0 || count > INT32_MAX) return CUDA_ERROR_INVALID_VALUE;
  softgpu::ReleaseUserObjects({{found, count}});
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                                         unsigned int flags) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  std::shared_ptr<Graph> found = entry.state().graphs.Find(graph);
  std::shared_ptr<UserObject> user = entry.state().user_objects.Find(object);
  if (found == nullptr || user == nullptr || count == 0 || count > INT32_MAX) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & ~static_cast<unsigned>(CU_GRAPH_USER_OBJECT_MOVE)) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (flags == 0) user->Retain(count);
  found->AddUserObject(user, count);
  return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count) {
  Entry entry(Need::kInit);
  if (!entry.ok()) return entry.result();
  std::shared_ptr<Graph> found = entry.state().graphs.Find(graph);
  std::shared_ptr<UserObject> user = entry.state().user_objects.Find(object);
  if (found == nullptr || user == nullptr || count == 0) return CUDA_ERROR_INVALID_VALUE;
  if (!found->RemoveUserObject(user, count)) return CUDA_ERROR_INVALID_VALUE;
  softgpu::ReleaseUserObjects({{user, count}});
  return CUDA_SUCCESS;
}

}  // extern "C"
