// Conditional nodes: bodies that run, or run again, as a value says that kernels set.
//
// A value is named by a number that programs pass to their kernels; the lowest free one is given.
#ifndef SOFTGPU_DRIVER_GRAPH_CONDITIONAL_H_
#define SOFTGPU_DRIVER_GRAPH_CONDITIONAL_H_

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "softgpu/driver/graph.h"
#include "softgpu/driver/work.h"

namespace softgpu {

class GraphExec;

// Thread-safe; kernels set it while graphs read it.
class Condition {
 public:
  // `reset`: takes the initial value at the beginning of each execution.
  static std::shared_ptr<Condition> Create(CUcontext context, uint32_t initial, bool reset);
  // Null when the number is no live condition.
  static std::shared_ptr<Condition> Find(uint64_t number);
  // From a kernel of `context`. False when there is no such condition of it.
  static bool Set(CUcontext context, uint64_t number, uint32_t value);
  ~Condition();

  uint64_t number() const { return number_; }
  CUcontext context() const { return context_; }
  uint32_t value() const { return value_.load(std::memory_order_acquire); }
  void Begin() {
    if (reset_) value_.store(initial_, std::memory_order_release);
  }

 private:
  Condition(CUcontext context, uint32_t initial, bool reset)
      : context_(context), initial_(initial), reset_(reset), value_(initial) {}

  const CUcontext context_;
  const uint32_t initial_;
  const bool reset_;
  uint64_t number_ = 0;
  std::atomic<uint32_t> value_;
};

// In a graph. The bodies belong to it, and their handles live as long.
class ConditionalAction final : public Action {
 public:
  // INVALID_VALUE for a handle that is none, or a number of bodies that the type does not have.
  static CUresult Create(const CUDA_CONDITIONAL_NODE_PARAMS& params, ActionPtr* out);
  ConditionalAction(std::shared_ptr<Condition> condition, CUgraphConditionalNodeType kind, unsigned bodies);
  ~ConditionalAction() override;

  const std::shared_ptr<Condition> condition;
  const CUgraphConditionalNodeType kind;
  std::vector<std::shared_ptr<Graph>> bodies;
  // For the program, which may keep the address.
  mutable std::vector<CUgraph> handles;
};

// In an executable graph.
class ConditionalRun final : public Action {
 public:
  // As GraphExec::Create().
  static CUresult Create(Context& context, const ConditionalAction& action,
                         std::shared_ptr<const ConditionalRun>* out, CUgraphNode* error_node);
  ConditionalRun(const ConditionalAction& action, std::vector<std::shared_ptr<GraphExec>> bodies);
  CUresult Run(Context& context) const override;
  // Of this node and of those in its bodies.
  void CollectConditions(std::vector<std::shared_ptr<Condition>>* out) const;
  const std::vector<std::shared_ptr<GraphExec>>& bodies() const { return bodies_; }
  // Whether an update may put `other` in this one's place.
  bool HasShapeOf(const ConditionalRun& other) const;

 private:
  // The body that the value chooses now, or null.
  const GraphExec* Chosen() const;

  const std::shared_ptr<Condition> condition_;
  const CUgraphConditionalNodeType kind_;
  const std::vector<std::shared_ptr<GraphExec>> bodies_;
};

}  // namespace softgpu

#endif  // SOFTGPU_DRIVER_GRAPH_CONDITIONAL_H_
