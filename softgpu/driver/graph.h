// Graphs: nodes of work with dependencies, and their executable form.
#ifndef SOFTGPU_DRIVER_GRAPH_H_
#define SOFTGPU_DRIVER_GRAPH_H_

#include <cuda.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "softgpu/driver/context.h"
#include "softgpu/driver/user_object.h"
#include "softgpu/driver/work.h"

namespace softgpu {

class Condition;
class Graph;
class Stream;

// Guarded by its graph's lock, except for what is constant.
class Node {
 public:
  Node(Graph* graph, ActionPtr action, uint64_t id) : graph_(graph), id_(id), action(std::move(action)) {}
  Graph& graph() const { return *graph_; }
  CUgraphNode handle() { return reinterpret_cast<CUgraphNode>(this); }
  uint64_t id() const { return id_; }

 private:
  Graph* const graph_;
  const uint64_t id_;

 public:
  ActionPtr action;  // replaced as a whole when parameters change
  std::vector<Node*> dependencies, dependents;
  CUgraphNode origin = nullptr;               // of a clone: the node it was made from
  std::vector<CUlaunchAttribute> attributes;  // of kernel nodes
};

// Thread-safe. Its lock is a graph lock (state.h).
class Graph : public std::enable_shared_from_this<Graph> {
 public:
  Graph() = default;
  ~Graph();

  CUgraph handle() { return reinterpret_cast<CUgraph>(this); }
  std::mutex& mutex() { return mutex_; }

  // INVALID_VALUE: a dependency of another graph, or twice the same.
  CUresult AddNode(ActionPtr action, const std::vector<Node*>& dependencies, Node** out);
  CUresult RemoveNode(Node* node);
  CUresult AddDependencies(const std::vector<Node*>& from, const std::vector<Node*>& to);
  CUresult RemoveDependencies(const std::vector<Node*>& from, const std::vector<Node*>& to);
  // In the order in which they were made.
  std::vector<Node*> Nodes() const;
  std::vector<Node*> Roots() const;
  std::vector<std::pair<Node*, Node*>> Edges() const;
  // Each node behind all that it depends on; false when there is a cycle.
  bool InOrder(std::vector<Node*>* nodes) const;
  std::shared_ptr<Graph> Clone() const;
  Node* FindClone(CUgraphNode origin) const;
  // The node that embeds this graph, or null.
  Node* parent = nullptr;

  void AddUserObject(const std::shared_ptr<UserObject>& object, uint64_t references);
  bool RemoveUserObject(const std::shared_ptr<UserObject>& object, uint64_t references);
  std::map<std::shared_ptr<UserObject>, uint64_t> UserObjects() const;
  // Of conditional nodes, in this graph or in those inside of it; they live as long as the graph.
  void AddCondition(std::shared_ptr<Condition> condition);
  // Memory nodes and conditional nodes are there once.
  bool MayBeCloned() const;

 private:
  bool OwnsLocked(const Node* node) const;
  std::vector<Node*> ListLocked() const;

  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Node>> nodes_;
  std::map<std::shared_ptr<UserObject>, uint64_t> user_objects_;
  std::vector<std::shared_ptr<Condition>> conditions_;
};

// A node that runs a graph of its own; the copy belongs to the node, and its handle lives as long.
class ChildAction final : public Action {
 public:
  explicit ChildAction(std::shared_ptr<Graph> graph);
  ~ChildAction() override;
  const std::shared_ptr<Graph> graph;
};

// Gives back the references; runs destructors of the program.
void ReleaseUserObjects(std::map<std::shared_ptr<UserObject>, uint64_t> objects);

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_GRAPH_H_
