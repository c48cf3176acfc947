// A graph as plain data of the process: read from the driver before it is closed, built again in the next
// one.
//
// Handles in it are visible ones (translate.h), except for the fields named `real`, which hold what the
// driver uses now. Not thread-safe; used while the gate is closed.
#ifndef REPLAY_GRAPH_DATA_H_
#define REPLAY_GRAPH_DATA_H_

#include <cuda.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"

namespace stasis::replay {

struct GraphData;

struct GraphNodeData {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  CUgraphNode visible = nullptr;
  CUgraphNode real = nullptr;
  // Parameters without what is kept in the fields below; pointers to arrays are filled in when it is built.
  CUgraphNodeParams params{};
  std::vector<std::byte> arguments;  // of a kernel, at `offsets`
  std::vector<size_t> offsets;
  std::vector<CUlaunchAttribute> attributes;
  // A kernel that the program holds no handle of: by its module and name.
  CUmodule module = nullptr;
  std::string function;
  std::vector<CUstreamBatchMemOpParams> operations;
  std::unique_ptr<GraphData> child;
  std::vector<GraphData> bodies;  // of a conditional node
};

struct GraphEdge {
  size_t from = 0, to = 0;  // indices of nodes
  CUgraphEdgeData data{};
};

struct GraphData {
  CUgraph visible = nullptr;
  CUgraph real = nullptr;
  std::vector<GraphNodeData> nodes;  // in the driver's order, which pairs the nodes of exec updates
  std::vector<GraphEdge> edges;      // in an order that gives every node its neighbours in the same order
};

// Reads the driver's graph `real` with all child graphs. kUnsupported names a node that cannot be built
// again; kDriver when the driver does not answer.
Status ReadGraph(CUgraph real, GraphData* out);
// The first node, in child graphs too, of a kind that cannot be built again, in words; empty: none.
std::string FindUnsupportedNode(CUgraph real);

// Whether both say the same of the same nodes.
bool SameGraph(const GraphData& a, const GraphData& b);
bool HasConditionalNodes(const GraphData& graph);
// kUnsupported when an object that a node names is gone.
Status CheckHandles(const GraphData& graph);

// Fills the empty graph `real` and notes the handles of the nodes. The context `context` (real) is current,
// and used where the driver does not tell a node's own.
Status BuildGraph(CUgraph real, CUcontext context, GraphData* data);
// The parameters of one node for cuGraphExecNodeSetParams. `storage` must outlive their use.
struct NodeParamsStorage {
  std::vector<void*> pointers;
};
Result<CUgraphNodeParams> RealParams(GraphNodeData& node, CUcontext context, NodeParamsStorage* storage);

// By handle of the driver, child graphs included. The pointers are valid while `data` is not changed.
using GraphNodeIndex = std::unordered_map<CUgraphNode, GraphNodeData*>;
void IndexNodes(GraphData* data, GraphNodeIndex* index);

// All nodes of the driver's graph, those of child graphs included, and the child graphs.
struct GraphHandles {
  std::vector<CUgraphNode> nodes;
  std::vector<CUgraph> children;
};
Status ListHandles(CUgraph real, GraphHandles* out);
// The nodes of the driver's graph, in its order.
Result<std::vector<CUgraphNode>> ListNodes(CUgraph real);

}  // namespace stasis::replay

#endif  // REPLAY_GRAPH_DATA_H_
