// What the entry points of graphs share.
#ifndef SOFTGPU_DRIVER_API_GRAPH_H_
#define SOFTGPU_DRIVER_API_GRAPH_H_

#include <cuda.h>

#include <memory>
#include <vector>

#include "softgpu/driver/entry.h"
#include "softgpu/driver/graph.h"
#include "softgpu/driver/graph_exec.h"
#include "softgpu/driver/state.h"

namespace softgpu {

// A live node, kept alive while the call looks at it. Null: INVALID_VALUE (cuda.h has no code of its own for
// it).
std::shared_ptr<Node> FindNode(CUgraphNode handle);
// False when one of the handles is dead.
bool FindNodes(const CUgraphNode* handles, size_t count, std::vector<Node*>* out);
// Only plain edges exist: programmatic launch needs hardware support. NOT_SUPPORTED for others.
CUresult CheckEdges(const CUgraphEdgeData* edges, size_t count);
// The graphs inside of the node know that they are.
void Adopt(const Action& action, Node* node);
// Adds what `make(action)` makes to the graph.
template <typename Make>
CUresult AddGraphNode(CUgraphNode* out, CUgraph handle, const CUgraphNode* dependencies, size_t count,
                      Make make) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  std::shared_ptr<Graph> graph = entry.state().graphs.Find(handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::vector<Node*> before;
  if (out == nullptr || !FindNodes(dependencies, count, &before)) return CUDA_ERROR_INVALID_VALUE;
  ActionPtr action;
  CUresult result = make(entry.context(), &action);
  if (result != CUDA_SUCCESS) return result;
  Node* node = nullptr;
  result = graph->AddNode(action, before, &node);
  if (result != CUDA_SUCCESS) return result;
  Adopt(*action, node);
  *out = node->handle();
  return CUDA_SUCCESS;
}

// The node's action if it is of the kind, else null.
template <typename ActionType>
std::shared_ptr<const ActionType> ActionOf(CUgraphNode handle, CUgraphNodeType type) {
  std::shared_ptr<Node> node = FindNode(handle);
  if (node == nullptr) return nullptr;
  std::lock_guard lock(node->graph().mutex());
  if (node->action->type() != type) return nullptr;
  return std::static_pointer_cast<const ActionType>(node->action);
}

// Replaces the parameters of a node (`exec` null) or of its twin in an executable graph.
template <typename Make>
CUresult ReplaceAction(CUgraphExec exec, bool in_exec, CUgraphNode handle, Make make) {
  Entry entry;
  if (!entry.ok()) return entry.result();
  std::shared_ptr<GraphExec> executable = in_exec ? entry.state().graph_execs.Find(exec) : nullptr;
  if (in_exec && executable == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  std::shared_ptr<Node> node = FindNode(handle);
  if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
  ActionPtr action;
  CUresult result = make(entry.context(), *node, &action);
  if (result != CUDA_SUCCESS) return result;
  if (in_exec) return executable->SetAction(*node, std::move(action));
  std::lock_guard lock(node->graph().mutex());
  if (node->action->type() != action->type()) return CUDA_ERROR_INVALID_VALUE;
  node->action = std::move(action);
  return CUDA_SUCCESS;
}

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_API_GRAPH_H_
