// The executable form of a graph.
#ifndef SOFTGPU_DRIVER_GRAPH_EXEC_H_
#define SOFTGPU_DRIVER_GRAPH_EXEC_H_

#include <cuda.h>

#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "softgpu/driver/graph.h"
#include "softgpu/driver/graph_conditional.h"

namespace softgpu {

// A snapshot: later changes of the graph do not reach it, changes of its own parameters do. Child graphs are
// part of it. Thread-safe; its lock is a graph lock (state.h).
class GraphExec {
 public:
  // INVALID_VALUE with *error_node for a cycle or a node that cannot be run.
  static CUresult Create(Context& context, Graph& graph, unsigned long long flags,
                         std::shared_ptr<GraphExec>* out, CUgraphNode* error_node);
  GraphExec(Context* context, unsigned long long flags);
  ~GraphExec();

  Context& context() const { return *context_; }
  CUgraphExec handle() { return reinterpret_cast<CUgraphExec>(this); }
  unsigned long long flags() const { return flags_; }

  // One execution behind the work of `stream`. Executions of the same graph follow each other.
  CUresult Launch(Stream& stream);
  // The body of a conditional node: one execution, which has ended when this returns.
  void RunHere();
  // Parameters of the node that was made from `node`. INVALID_VALUE when there is none, or when the kind
  // differs.
  CUresult SetAction(const Node& node, ActionPtr action);
  CUresult SetEnabled(const Node& node, bool enabled);
  CUresult GetEnabled(const Node& node, bool* enabled) const;
  // All parameters from a graph of the same shape.
  CUresult Update(Graph& graph, CUgraphExecUpdateResultInfo* info);
  void CollectConditions(std::vector<std::shared_ptr<Condition>>* out) const;
  // Whether the steps of `fresh` could stand in for those of this one.
  bool HasShapeOf(const GraphExec& fresh) const;

 private:
  struct Step {
    CUgraphNode node;  // it was made from
    ActionPtr action;  // null: order only
    bool enabled = true;
    std::vector<size_t> dependencies;  // earlier steps
  };
  // Appends the graph's steps; roots depend on `before`. The last step is the graph's end.
  static CUresult Flatten(Context& context, Graph& graph, const std::vector<size_t>& before,
                          std::vector<Step>* steps, CUgraphNode* error_node);
  // Makes the Ops of one execution behind `begin`, not sealed. Needs mutex_.
  std::vector<OpPtr> PrepareLocked(int priority, const OpPtr& begin);
  Step* FindLocked(const Node& node);
  // The same change in the bodies of conditional nodes, of which at most one has the node.
  template <typename Change>
  CUresult InBodies(Change change) const;
  using Mismatch = std::pair<CUgraphExecUpdateResult, CUgraphNode>;
  // What keeps `fresh` from being put in place of `now`; success: nothing.
  static Mismatch Compare(const std::vector<Step>& now, const std::vector<Step>& fresh);

  Context* const context_;
  const unsigned long long flags_;
  mutable std::mutex mutex_;
  std::vector<Step> steps_;
  std::unordered_map<CUgraphNode, size_t> by_node_;
  OpPtr last_;
  std::vector<std::shared_ptr<Condition>> conditions_;  // constant after Create()
  std::map<std::shared_ptr<UserObject>, uint64_t> user_objects_;
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_GRAPH_EXEC_H_
