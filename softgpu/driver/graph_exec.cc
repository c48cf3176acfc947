#include "softgpu/driver/graph_exec.h"

#include <utility>

#include "softgpu/driver/capture.h"
#include "softgpu/driver/event.h"
#include "softgpu/driver/stream.h"

namespace softgpu {

GraphExec::GraphExec(Context* context, unsigned long long flags) : context_(context), flags_(flags) {}
GraphExec::~GraphExec() { ReleaseUserObjects(std::move(user_objects_)); }

CUresult GraphExec::Flatten(Context& context, Graph& graph, const std::vector<size_t>& before,
                            std::vector<Step>* steps, CUgraphNode* error_node) {
  std::vector<Node*> nodes;
  if (!graph.InOrder(&nodes)) return CUDA_ERROR_INVALID_VALUE;
  std::unordered_map<const Node*, size_t> ends;
  Step end{nullptr, nullptr, true, {}};
  for (Node* node : nodes) {
    Step step{node->handle(), node->action, true, {}};
    for (const Node* dependency : node->dependencies) step.dependencies.push_back(ends[dependency]);
    if (node->dependencies.empty()) step.dependencies = before;
    if (node->action->type() == CU_GRAPH_NODE_TYPE_GRAPH) {
      Graph& child = *static_cast<const ChildAction&>(*node->action).graph;
      CUresult result = Flatten(context, child, step.dependencies, steps, error_node);
      if (result != CUDA_SUCCESS) {
        if (error_node != nullptr) *error_node = node->handle();
        return result;
      }
      ends[node] = steps->size() - 1;
    } else {
      if (node->action->type() == CU_GRAPH_NODE_TYPE_CONDITIONAL) {
        std::shared_ptr<const ConditionalRun> run;
        CUresult result = ConditionalRun::Create(
            context, static_cast<const ConditionalAction&>(*node->action), &run, error_node);
        if (result != CUDA_SUCCESS) return result;
        step.action = std::move(run);
      }
      steps->push_back(std::move(step));
      ends[node] = steps->size() - 1;
    }
    if (node->dependents.empty()) end.dependencies.push_back(ends[node]);
  }
  if (nodes.empty()) end.dependencies = before;
  steps->push_back(std::move(end));
  return CUDA_SUCCESS;
}

CUresult GraphExec::Create(Context& context, Graph& graph, unsigned long long flags,
                           std::shared_ptr<GraphExec>* out, CUgraphNode* error_node) {
  if (error_node != nullptr) *error_node = nullptr;
  auto exec = std::make_shared<GraphExec>(&context, flags);
  CUresult result = Flatten(context, graph, {}, &exec->steps_, error_node);
  if (result != CUDA_SUCCESS) return result;
  for (size_t i = 0; i < exec->steps_.size(); i++) {
    if (exec->steps_[i].node != nullptr) exec->by_node_[exec->steps_[i].node] = i;
  }
  exec->CollectConditions(&exec->conditions_);
  exec->user_objects_ = graph.UserObjects();
  for (const auto& [object, references] : exec->user_objects_) object->Retain(references);
  *out = std::move(exec);
  return CUDA_SUCCESS;
}

CUresult GraphExec::Launch(Stream& stream) {
  if (&stream.context() != context_) return CUDA_ERROR_INVALID_CONTEXT;
  CUresult forbidden = ForbidImplicitDependency(stream);
  if (forbidden != CUDA_SUCCESS) return forbidden;
  CUresult broken = context_->error();
  if (broken != CUDA_SUCCESS) return broken;
  ActionPtr reset;
  if (!conditions_.empty()) {
    reset = MakeAction(Action::Runs::kInline, [conditions = conditions_](Context&) {
      for (const std::shared_ptr<Condition>& condition : conditions) condition->Begin();
      return CUDA_SUCCESS;
    });
  }
  OpPtr begin = Op::Create(context_, std::move(reset));
  std::vector<OpPtr> ops;
  {
    std::lock_guard lock(mutex_);
    ops = PrepareLocked(stream.priority(), begin);
    stream.EnqueueSpan(begin, ops.back());
  }
  for (const OpPtr& op : ops) op->Seal();
  begin->Seal();
  return CUDA_SUCCESS;
}

void GraphExec::RunHere() {
  OpPtr begin = Op::Create(context_, nullptr);
  std::vector<OpPtr> ops;
  {
    std::lock_guard lock(mutex_);
    ops = PrepareLocked(0, begin);
  }
  for (const OpPtr& op : ops) op->Seal();
  begin->Seal();
  ops.back()->Wait();
}

void GraphExec::CollectConditions(std::vector<std::shared_ptr<Condition>>* out) const {
  std::lock_guard lock(mutex_);
  for (const Step& step : steps_) {
    if (step.action != nullptr && step.action->type() == CU_GRAPH_NODE_TYPE_CONDITIONAL)
      static_cast<const ConditionalRun&>(*step.action).CollectConditions(out);
  }
}

std::vector<OpPtr> GraphExec::PrepareLocked(int priority, const OpPtr& begin) {
  std::vector<OpPtr> ops;
  begin->After(last_);
  for (const Step& step : steps_) {
    bool run = step.enabled && step.action != nullptr;
    ActionPtr action = run ? step.action : nullptr;
    std::shared_ptr<Event::Record> record;
    OpPtr waited;
    if (run && step.action->type() == CU_GRAPH_NODE_TYPE_EVENT_RECORD) {
      record = std::make_shared<Event::Record>();
      action = StampAction(record);
    }
    if (run && step.action->type() == CU_GRAPH_NODE_TYPE_WAIT_EVENT) {
      auto earlier = static_cast<const EventWaitAction&>(*step.action).event->record();
      if (earlier != nullptr) waited = earlier->op;
      action = nullptr;
    }
    OpPtr op = Op::Create(context_, std::move(action), priority);
    for (size_t dependency : step.dependencies) op->After(ops[dependency]);
    if (step.dependencies.empty()) op->After(begin);
    op->After(waited);
    if (record != nullptr) {
      record->op = op;
      static_cast<const EventRecordAction&>(*step.action).event->set_record(record);
    }
    ops.push_back(std::move(op));
  }
  last_ = ops.back();
  return ops;
}

template <typename Change>
CUresult GraphExec::InBodies(Change change) const {
  std::vector<ActionPtr> conditionals;
  {
    std::lock_guard lock(mutex_);
    for (const Step& step : steps_) {
      if (step.action != nullptr && step.action->type() == CU_GRAPH_NODE_TYPE_CONDITIONAL)
        conditionals.push_back(step.action);
    }
  }
  for (const ActionPtr& action : conditionals) {
    for (const std::shared_ptr<GraphExec>& body : static_cast<const ConditionalRun&>(*action).bodies()) {
      CUresult result = change(*body);
      if (result == CUDA_SUCCESS) return result;
    }
  }
  return CUDA_ERROR_INVALID_VALUE;
}

GraphExec::Step* GraphExec::FindLocked(const Node& node) {
  auto found = by_node_.find(const_cast<Node&>(node).handle());
  return found == by_node_.end() ? nullptr : &steps_[found->second];
}

CUresult GraphExec::SetAction(const Node& node, ActionPtr action) {
  {
    std::lock_guard lock(mutex_);
    Step* step = FindLocked(node);
    if (step != nullptr) {
      if (step->action->type() != action->type()) return CUDA_ERROR_INVALID_VALUE;
      step->action = std::move(action);
      return CUDA_SUCCESS;
    }
  }
  return InBodies([&](GraphExec& body) { return body.SetAction(node, action); });
}

CUresult GraphExec::SetEnabled(const Node& node, bool enabled) {
  {
    std::lock_guard lock(mutex_);
    Step* step = FindLocked(node);
    if (step != nullptr) {
      step->enabled = enabled;
      return CUDA_SUCCESS;
    }
  }
  return InBodies([&](GraphExec& body) { return body.SetEnabled(node, enabled); });
}

CUresult GraphExec::GetEnabled(const Node& node, bool* enabled) const {
  {
    std::lock_guard lock(mutex_);
    const Step* step = const_cast<GraphExec*>(this)->FindLocked(node);
    if (step != nullptr) {
      *enabled = step->enabled;
      return CUDA_SUCCESS;
    }
  }
  return InBodies([&](GraphExec& body) { return body.GetEnabled(node, enabled); });
}

GraphExec::Mismatch GraphExec::Compare(const std::vector<Step>& now, const std::vector<Step>& fresh) {
  // Nodes are paired in their order, as the documentation of cuGraphExecUpdate promises for graphs made the
  // same way.
  if (fresh.size() != now.size()) return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, nullptr};
  for (size_t i = 0; i < fresh.size(); i++) {
    bool both = (fresh[i].action == nullptr) == (now[i].action == nullptr);
    if (!both || fresh[i].dependencies != now[i].dependencies)
      return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, fresh[i].node};
    if (fresh[i].action == nullptr) continue;
    CUgraphNodeType type = fresh[i].action->type();
    if (type != now[i].action->type()) return {CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED, fresh[i].node};
    bool memory = type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE;
    if (memory && fresh[i].action != now[i].action)
      return {CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED, fresh[i].node};
    if (type == CU_GRAPH_NODE_TYPE_CONDITIONAL &&
        !static_cast<const ConditionalRun&>(*now[i].action)
             .HasShapeOf(static_cast<const ConditionalRun&>(*fresh[i].action)))
      return {CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, fresh[i].node};
  }
  return {CU_GRAPH_EXEC_UPDATE_SUCCESS, nullptr};
}

bool GraphExec::HasShapeOf(const GraphExec& fresh) const {
  // The fresh one is known to its maker alone.
  std::lock_guard lock(mutex_);
  return Compare(steps_, fresh.steps_).first == CU_GRAPH_EXEC_UPDATE_SUCCESS;
}

CUresult GraphExec::Update(Graph& graph, CUgraphExecUpdateResultInfo* info) {
  auto fail = [info](CUgraphExecUpdateResult why, CUgraphNode node) {
    *info = {why, node, nullptr};
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  };
  std::vector<Step> fresh;
  if (Flatten(*context_, graph, {}, &fresh, nullptr) != CUDA_SUCCESS)
    return fail(CU_GRAPH_EXEC_UPDATE_ERROR, nullptr);
  std::lock_guard lock(mutex_);
  const Mismatch mismatch = Compare(steps_, fresh);
  if (mismatch.first != CU_GRAPH_EXEC_UPDATE_SUCCESS) return fail(mismatch.first, mismatch.second);
  for (size_t i = 0; i < fresh.size(); i++) steps_[i].action = std::move(fresh[i].action);
  *info = {CU_GRAPH_EXEC_UPDATE_SUCCESS, nullptr, nullptr};
  return CUDA_SUCCESS;
}

}  // namespace softgpu
