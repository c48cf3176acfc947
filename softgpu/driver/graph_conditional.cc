#include "softgpu/driver/graph_conditional.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "softgpu/driver/api_graph.h"
#include "softgpu/driver/graph_exec.h"

namespace softgpu {

namespace {

struct Conditions {
  std::mutex mutex;  // a leaf
  std::map<uint64_t, std::weak_ptr<Condition>> by_number;
};

Conditions& All() {
  static Conditions* const all = new Conditions;  // graphs are destroyed after static objects, too
  return *all;
}

bool IsCount(CUgraphConditionalNodeType kind, unsigned count) {
  switch (kind) {
    case CU_GRAPH_COND_TYPE_IF:
      return count == 1 || count == 2;
    case CU_GRAPH_COND_TYPE_WHILE:
      return count == 1;
    case CU_GRAPH_COND_TYPE_SWITCH:
      return count >= 1;
  }
  return false;
}

// "Allowed node types are kernel nodes, empty nodes, child graphs, memsets, memcopies, and conditionals"
// (cuda.h).
bool MayBeInBody(CUgraphNodeType type) {
  return type == CU_GRAPH_NODE_TYPE_KERNEL || type == CU_GRAPH_NODE_TYPE_EMPTY ||
         type == CU_GRAPH_NODE_TYPE_GRAPH || type == CU_GRAPH_NODE_TYPE_MEMSET ||
         type == CU_GRAPH_NODE_TYPE_MEMCPY || type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
}

bool IsBody(const Graph& graph, CUgraphNode* error_node) {
  for (Node* node : graph.Nodes()) {
    const CUgraphNodeType type = node->action->type();
    const bool allowed =
        MayBeInBody(type) && (type != CU_GRAPH_NODE_TYPE_GRAPH ||
                              IsBody(*static_cast<const ChildAction&>(*node->action).graph, error_node));
    if (allowed) continue;
    if (error_node != nullptr && *error_node == nullptr) *error_node = node->handle();
    return false;
  }
  return true;
}

}  // namespace

std::shared_ptr<Condition> Condition::Create(CUcontext context, uint32_t initial, bool reset) {
  std::shared_ptr<Condition> condition(new Condition(context, initial, reset));
  std::lock_guard lock(All().mutex);
  uint64_t number = 1;
  for (auto taken = All().by_number.begin(); taken != All().by_number.end() && taken->first == number;
       ++taken)
    ++number;
  condition->number_ = number;
  All().by_number[number] = condition;
  return condition;
}

Condition::~Condition() {
  std::lock_guard lock(All().mutex);
  All().by_number.erase(number_);
}

std::shared_ptr<Condition> Condition::Find(uint64_t number) {
  std::lock_guard lock(All().mutex);
  const auto found = All().by_number.find(number);
  return found == All().by_number.end() ? nullptr : found->second.lock();
}

bool Condition::Set(CUcontext context, uint64_t number, uint32_t value) {
  const std::shared_ptr<Condition> condition = Find(number);
  if (condition == nullptr || condition->context() != context) return false;
  condition->value_.store(value, std::memory_order_release);
  return true;
}

CUresult ConditionalAction::Create(const CUDA_CONDITIONAL_NODE_PARAMS& params, ActionPtr* out) {
  std::shared_ptr<Condition> condition = Condition::Find(params.handle);
  if (condition == nullptr || !IsCount(params.type, params.size)) return CUDA_ERROR_INVALID_VALUE;
  if (params.ctx != nullptr && params.ctx != condition->context()) return CUDA_ERROR_INVALID_CONTEXT;
  *out = std::make_shared<ConditionalAction>(std::move(condition), params.type, params.size);
  return CUDA_SUCCESS;
}

ConditionalAction::ConditionalAction(std::shared_ptr<Condition> condition, CUgraphConditionalNodeType kind,
                                     unsigned count)
    : Action(CU_GRAPH_NODE_TYPE_CONDITIONAL, Runs::kInline), condition(std::move(condition)), kind(kind) {
  for (unsigned i = 0; i < count; i++) {
    bodies.push_back(std::make_shared<Graph>());
    handles.push_back(State::Get()->graphs.Add(bodies.back()));
  }
}

ConditionalAction::~ConditionalAction() {
  State* state = State::Get();
  for (CUgraph handle : handles) {
    if (state != nullptr) state->graphs.Remove(handle);
  }
}

CUresult ConditionalRun::Create(Context& context, const ConditionalAction& action,
                                std::shared_ptr<const ConditionalRun>* out, CUgraphNode* error_node) {
  std::vector<std::shared_ptr<GraphExec>> bodies;
  for (const std::shared_ptr<Graph>& body : action.bodies) {
    if (!IsBody(*body, error_node)) return CUDA_ERROR_INVALID_VALUE;
    std::shared_ptr<GraphExec> exec;
    CUresult result = GraphExec::Create(context, *body, 0, &exec, error_node);
    if (result != CUDA_SUCCESS) return result;
    bodies.push_back(std::move(exec));
  }
  *out = std::make_shared<const ConditionalRun>(action, std::move(bodies));
  return CUDA_SUCCESS;
}

ConditionalRun::ConditionalRun(const ConditionalAction& action,
                               std::vector<std::shared_ptr<GraphExec>> bodies)
    : Action(CU_GRAPH_NODE_TYPE_CONDITIONAL, Runs::kWorker),
      condition_(action.condition),
      kind_(action.kind),
      bodies_(std::move(bodies)) {}

const GraphExec* ConditionalRun::Chosen() const {
  const uint32_t value = condition_->value();
  size_t body = value;
  if (kind_ == CU_GRAPH_COND_TYPE_IF) body = value != 0 ? 0 : 1;
  if (kind_ == CU_GRAPH_COND_TYPE_WHILE) body = value != 0 ? 0 : 1;
  return body < bodies_.size() ? bodies_[body].get() : nullptr;
}

CUresult ConditionalRun::Run(Context& context) const {
  for (const GraphExec* body = Chosen(); body != nullptr; body = Chosen()) {
    const_cast<GraphExec*>(body)->RunHere();
    if (context.error() != CUDA_SUCCESS || kind_ != CU_GRAPH_COND_TYPE_WHILE) break;
  }
  return CUDA_SUCCESS;
}

void ConditionalRun::CollectConditions(std::vector<std::shared_ptr<Condition>>* out) const {
  out->push_back(condition_);
  for (const std::shared_ptr<GraphExec>& body : bodies_) body->CollectConditions(out);
}

bool ConditionalRun::HasShapeOf(const ConditionalRun& other) const {
  const auto same = [](const auto& a, const auto& b) { return a->HasShapeOf(*b); };
  return condition_ == other.condition_ && kind_ == other.kind_ &&
         std::equal(bodies_.begin(), bodies_.end(), other.bodies_.begin(), other.bodies_.end(), same);
}

}  // namespace softgpu

using softgpu::Condition;
using softgpu::Context;
using softgpu::Entry;

extern "C" {

CUresult CUDAAPI cuGraphConditionalHandleCreate(CUgraphConditionalHandle* pHandle_out, CUgraph hGraph,
                                                CUcontext ctx, unsigned int defaultLaunchValue,
                                                unsigned int flags) {
  Entry entry(softgpu::Need::kInit);
  if (!entry.ok()) return entry.result();
  std::shared_ptr<softgpu::Graph> graph = entry.state().graphs.Find(hGraph);
  if (pHandle_out == nullptr || graph == nullptr || (flags & ~CU_GRAPH_COND_ASSIGN_DEFAULT) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  if (entry.state().FindContext(ctx) == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  std::shared_ptr<Condition> condition =
      Condition::Create(ctx, defaultLaunchValue, (flags & CU_GRAPH_COND_ASSIGN_DEFAULT) != 0);
  *pHandle_out = condition->number();
  graph->AddCondition(std::move(condition));
  return CUDA_SUCCESS;
}

}  // extern "C"
