// Graphs as a whole, their shape, and user objects.
#include "intercept/hooks_graph.h"

#include "intercept/capture_streams.h"
#include "intercept/taint.h"
#include "intercept_hooks.h"

namespace stasis::hooks {

namespace {

using replay::FindAs;
using replay::GraphRecord;
using replay::ToReal;
using replay::UserObjectRecord;

// Changes edges; `edges` are the parameters between the nodes and the count.
template <typename Function, typename... Edges>
CUresult ChangeEdges(const Call& call, CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                     size_t count, Edges... edges) {
  const RealNodes sources(from, count), targets(to, count);
  return call.Real<Function>()(ToReal(graph), sources.get(), targets.get(), edges..., count);
}

// The record of a graph that is given a user object. One that is being captured gets its record only now.
std::shared_ptr<GraphRecord> GraphHolding(CUgraph graph) {
  if (FindAs<GraphRecord>(graph) == nullptr && IsCaptured(graph)) {
    CUgraph real = ToReal(graph);
    replay::NoteGraph(&real, nullptr);
  }
  return FindAs<GraphRecord>(graph);
}

}  // namespace

CUresult cuGraphCreate(const Call& call, CUgraph* phGraph, unsigned int flags) {
  const CUresult result = call.Real<decltype(&::cuGraphCreate)>()(phGraph, flags);
  if (result == CUDA_SUCCESS) replay::NoteGraph(phGraph, nullptr);
  return result;
}

CUresult cuGraphClone(const Call& call, CUgraph* phGraphClone, CUgraph originalGraph) {
  const CUresult result = call.Real<decltype(&::cuGraphClone)>()(phGraphClone, ToReal(originalGraph));
  if (result == CUDA_SUCCESS) replay::NoteGraph(phGraphClone, originalGraph);
  return result;
}

CUresult cuGraphDestroy(const Call& call, CUgraph hGraph) {
  const replay::DyingGraph dying = replay::PrepareGraphDestroy(hGraph);
  const CUresult result = call.Real<decltype(&::cuGraphDestroy)>()(ToReal(hGraph));
  if (result == CUDA_SUCCESS) replay::NoteGraphDestroyed(dying);
  return result;
}

CUresult cuGraphDestroyNode(const Call& call, CUgraphNode hNode) {
  const std::vector<replay::RecordPtr> parts = replay::PrepareNodeDestroy(hNode);
  const CUresult result = call.Real<decltype(&::cuGraphDestroyNode)>()(ToReal(hNode));
  if (result == CUDA_SUCCESS) replay::NoteNodeDestroyed(parts);
  return result;
}

// A clone and its original are rebuilt apart, so that the driver does not know of each other any more.
CUresult cuGraphNodeFindInClone(const Call& call, CUgraphNode* phNode, CUgraphNode hOriginalNode,
                                CUgraph hClonedGraph) {
  const auto real = call.Real<decltype(&::cuGraphNodeFindInClone)>();
  CUresult result = real(phNode, ToReal(hOriginalNode), ToReal(hClonedGraph));
  if (!replay::Translating() || phNode == nullptr) return result;
  if (result == CUDA_SUCCESS) {
    *phNode = replay::AdoptNode(*phNode);
    return result;
  }
  const auto clone = FindAs<GraphRecord>(hClonedGraph);
  const CUgraphNode found = clone == nullptr ? nullptr : clone->FindClone(hOriginalNode);
  if (found == nullptr || FindAs<replay::Record>(found) == nullptr) return result;
  *phNode = found;
  return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(const Call& call, CUgraph hGraph, CUgraphNode* nodes, size_t* numNodes) {
  const CUresult result = call.Real<decltype(&::cuGraphGetNodes)>()(ToReal(hGraph), nodes, numNodes);
  AdoptNodes(result, nodes, numNodes);
  return result;
}

CUresult cuGraphGetRootNodes(const Call& call, CUgraph hGraph, CUgraphNode* rootNodes, size_t* numRootNodes) {
  const CUresult result =
      call.Real<decltype(&::cuGraphGetRootNodes)>()(ToReal(hGraph), rootNodes, numRootNodes);
  AdoptNodes(result, rootNodes, numRootNodes);
  return result;
}

CUresult cuGraphGetEdges(const Call& call, CUgraph hGraph, CUgraphNode* from, CUgraphNode* to,
                         size_t* numEdges) {
  const CUresult result = call.Real<decltype(&::cuGraphGetEdges)>()(ToReal(hGraph), from, to, numEdges);
  AdoptNodes(result, from, numEdges);
  AdoptNodes(result, to, numEdges);
  return result;
}

CUresult cuGraphGetEdges_v2(const Call& call, CUgraph hGraph, CUgraphNode* from, CUgraphNode* to,
                            CUgraphEdgeData* edgeData, size_t* numEdges) {
  const CUresult result =
      call.Real<decltype(&::cuGraphGetEdges_v2)>()(ToReal(hGraph), from, to, edgeData, numEdges);
  AdoptNodes(result, from, numEdges);
  AdoptNodes(result, to, numEdges);
  return result;
}

CUresult cuGraphNodeGetDependencies(const Call& call, CUgraphNode hNode, CUgraphNode* dependencies,
                                    size_t* numDependencies) {
  const CUresult result =
      call.Real<decltype(&::cuGraphNodeGetDependencies)>()(ToReal(hNode), dependencies, numDependencies);
  AdoptNodes(result, dependencies, numDependencies);
  return result;
}

CUresult cuGraphNodeGetDependencies_v2(const Call& call, CUgraphNode hNode, CUgraphNode* dependencies,
                                       CUgraphEdgeData* edgeData, size_t* numDependencies) {
  const CUresult result = call.Real<decltype(&::cuGraphNodeGetDependencies_v2)>()(ToReal(hNode), dependencies,
                                                                                  edgeData, numDependencies);
  AdoptNodes(result, dependencies, numDependencies);
  return result;
}

CUresult cuGraphNodeGetDependentNodes(const Call& call, CUgraphNode hNode, CUgraphNode* dependentNodes,
                                      size_t* numDependentNodes) {
  const CUresult result = call.Real<decltype(&::cuGraphNodeGetDependentNodes)>()(
      ToReal(hNode), dependentNodes, numDependentNodes);
  AdoptNodes(result, dependentNodes, numDependentNodes);
  return result;
}

CUresult cuGraphNodeGetDependentNodes_v2(const Call& call, CUgraphNode hNode, CUgraphNode* dependentNodes,
                                         CUgraphEdgeData* edgeData, size_t* numDependentNodes) {
  const CUresult result = call.Real<decltype(&::cuGraphNodeGetDependentNodes_v2)>()(
      ToReal(hNode), dependentNodes, edgeData, numDependentNodes);
  AdoptNodes(result, dependentNodes, numDependentNodes);
  return result;
}

CUresult cuGraphAddDependencies(const Call& call, CUgraph hGraph, const CUgraphNode* from,
                                const CUgraphNode* to, size_t numDependencies) {
  return ChangeEdges<decltype(&::cuGraphAddDependencies)>(call, hGraph, from, to, numDependencies);
}

CUresult cuGraphAddDependencies_v2(const Call& call, CUgraph hGraph, const CUgraphNode* from,
                                   const CUgraphNode* to, const CUgraphEdgeData* edgeData,
                                   size_t numDependencies) {
  return ChangeEdges<decltype(&::cuGraphAddDependencies_v2)>(call, hGraph, from, to, numDependencies,
                                                             edgeData);
}

CUresult cuGraphRemoveDependencies(const Call& call, CUgraph hGraph, const CUgraphNode* from,
                                   const CUgraphNode* to, size_t numDependencies) {
  return ChangeEdges<decltype(&::cuGraphRemoveDependencies)>(call, hGraph, from, to, numDependencies);
}

CUresult cuGraphRemoveDependencies_v2(const Call& call, CUgraph hGraph, const CUgraphNode* from,
                                      const CUgraphNode* to, const CUgraphEdgeData* edgeData,
                                      size_t numDependencies) {
  return ChangeEdges<decltype(&::cuGraphRemoveDependencies_v2)>(call, hGraph, from, to, numDependencies,
                                                                edgeData);
}

CUresult cuUserObjectCreate(const Call&, CUuserObject* object_out, void* ptr, CUhostFn destroy,
                            unsigned int initialRefcount, unsigned int flags) {
  return replay::CreateUserObject(object_out, ptr, destroy, initialRefcount, flags);
}

CUresult cuUserObjectRetain(const Call& call, CUuserObject object, unsigned int count) {
  const auto record = FindAs<UserObjectRecord>(object);
  const CUresult result = call.Real<decltype(&::cuUserObjectRetain)>()(ToReal(object), count);
  if (result == CUDA_SUCCESS && record != nullptr) record->Retain(count);
  return result;
}

CUresult cuUserObjectRelease(const Call& call, CUuserObject object, unsigned int count) {
  const auto record = FindAs<UserObjectRecord>(object);
  const CUresult result = call.Real<decltype(&::cuUserObjectRelease)>()(ToReal(object), count);
  if (result == CUDA_SUCCESS && record != nullptr) record->Release(count);
  return result;
}

CUresult cuGraphRetainUserObject(const Call& call, CUgraph graph, CUuserObject object, unsigned int count,
                                 unsigned int flags) {
  const CUresult result =
      call.Real<decltype(&::cuGraphRetainUserObject)>()(ToReal(graph), ToReal(object), count, flags);
  const auto record = FindAs<UserObjectRecord>(object);
  if (result != CUDA_SUCCESS || record == nullptr) return result;
  if (const auto holder = GraphHolding(graph); holder != nullptr) {
    holder->references().Add(record, count);
  } else {
    TaintOnce(call.fn, false);  // a graph inside of a node
  }
  if ((flags & CU_GRAPH_USER_OBJECT_MOVE) != 0) record->Release(count);
  return result;
}

CUresult cuGraphReleaseUserObject(const Call& call, CUgraph graph, CUuserObject object, unsigned int count) {
  const auto user = FindAs<UserObjectRecord>(object);
  const CUresult result =
      call.Real<decltype(&::cuGraphReleaseUserObject)>()(ToReal(graph), ToReal(object), count);
  const auto record = FindAs<GraphRecord>(graph);
  if (result == CUDA_SUCCESS && record != nullptr && user != nullptr)
    record->references().Remove(user, count);
  return result;
}

}  // namespace stasis::hooks
