#include "softgpu/driver/graph.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <set>
#include <utility>

#include "softgpu/driver/entry.h"
#include "softgpu/driver/graph_conditional.h"
#include "softgpu/driver/state.h"

namespace softgpu {

namespace {

uint64_t NextNodeId() {
  static std::atomic<uint64_t> next{1};
  return next.fetch_add(1, std::memory_order_relaxed);
}

bool Contains(const std::vector<Node*>& nodes, const Node* node) {
  return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

bool HasDuplicates(std::vector<Node*> nodes) {
  std::sort(nodes.begin(), nodes.end());
  return std::adjacent_find(nodes.begin(), nodes.end()) != nodes.end();
}

void Unlink(Node* from, Node* to) {
  std::erase(from->dependents, to);
  std::erase(to->dependencies, from);
}

}  // namespace

void UserObject::Retain(uint64_t count) {
  std::lock_guard lock(mutex_);
  references_ += count;
}

bool UserObject::Release(uint64_t count, bool* last) {
  std::lock_guard lock(mutex_);
  if (count > references_) return false;
  references_ -= count;
  *last = references_ == 0;
  return true;
}

void UserObject::Destroy() const {
  CallbackScope scope;
  destroy_(object_);
}

void ReleaseUserObjects(std::map<std::shared_ptr<UserObject>, uint64_t> objects) {
  for (const auto& [object, references] : objects) {
    bool last = false;
    if (!object->Release(references, &last) || !last) continue;
    if (State* state = State::Get()) state->user_objects.Remove(reinterpret_cast<CUuserObject>(object.get()));
    object->Destroy();
  }
}

ChildAction::ChildAction(std::shared_ptr<Graph> graph)
    : Action(CU_GRAPH_NODE_TYPE_GRAPH, Runs::kInline), graph(std::move(graph)) {
  State::Get()->graphs.Add(this->graph);
}

ChildAction::~ChildAction() {
  if (State* state = State::Get()) state->graphs.Remove(graph->handle());
}

Graph::~Graph() {
  State* state = State::Get();
  for (const std::shared_ptr<Node>& node : nodes_) {
    if (state != nullptr) state->nodes.Remove(node->handle());
  }
  ReleaseUserObjects(std::move(user_objects_));
}

bool Graph::OwnsLocked(const Node* node) const { return node != nullptr && &node->graph() == this; }

std::vector<Node*> Graph::ListLocked() const {
  std::vector<Node*> list;
  for (const std::shared_ptr<Node>& node : nodes_) list.push_back(node.get());
  return list;
}

CUresult Graph::AddNode(ActionPtr action, const std::vector<Node*>& dependencies, Node** out) {
  std::lock_guard lock(mutex_);
  if (HasDuplicates(dependencies)) return CUDA_ERROR_INVALID_VALUE;
  for (const Node* dependency : dependencies) {
    if (!OwnsLocked(dependency)) return CUDA_ERROR_INVALID_VALUE;
  }
  auto node = std::make_shared<Node>(this, std::move(action), NextNodeId());
  for (Node* dependency : dependencies) {
    node->dependencies.push_back(dependency);
    dependency->dependents.push_back(node.get());
  }
  *out = node.get();
  State::Get()->nodes.Add(node);
  nodes_.push_back(std::move(node));
  return CUDA_SUCCESS;
}

CUresult Graph::RemoveNode(Node* node) {
  std::shared_ptr<Node> removed;
  std::lock_guard lock(mutex_);
  auto found =
      std::find_if(nodes_.begin(), nodes_.end(), [node](const auto& entry) { return entry.get() == node; });
  if (found == nodes_.end()) return CUDA_ERROR_INVALID_VALUE;
  for (Node* dependency : node->dependencies) std::erase(dependency->dependents, node);
  for (Node* dependent : node->dependents) std::erase(dependent->dependencies, node);
  State::Get()->nodes.Remove(node->handle());
  removed = std::move(*found);
  nodes_.erase(found);
  return CUDA_SUCCESS;
}

CUresult Graph::AddDependencies(const std::vector<Node*>& from, const std::vector<Node*>& to) {
  std::lock_guard lock(mutex_);
  std::set<std::pair<Node*, Node*>> fresh;
  for (size_t i = 0; i < from.size(); i++) {
    if (!OwnsLocked(from[i]) || !OwnsLocked(to[i]) || from[i] == to[i]) return CUDA_ERROR_INVALID_VALUE;
    if (Contains(to[i]->dependencies, from[i]) || !fresh.emplace(from[i], to[i]).second) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  for (size_t i = 0; i < from.size(); i++) {
    from[i]->dependents.push_back(to[i]);
    to[i]->dependencies.push_back(from[i]);
  }
  return CUDA_SUCCESS;
}

CUresult Graph::RemoveDependencies(const std::vector<Node*>& from, const std::vector<Node*>& to) {
  std::lock_guard lock(mutex_);
  for (size_t i = 0; i < from.size(); i++) {
    if (!OwnsLocked(from[i]) || !OwnsLocked(to[i]) || !Contains(to[i]->dependencies, from[i])) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  for (size_t i = 0; i < from.size(); i++) Unlink(from[i], to[i]);
  return CUDA_SUCCESS;
}

std::vector<Node*> Graph::Nodes() const {
  std::lock_guard lock(mutex_);
  return ListLocked();
}

std::vector<Node*> Graph::Roots() const {
  std::lock_guard lock(mutex_);
  std::vector<Node*> roots = ListLocked();
  std::erase_if(roots, [](const Node* node) { return !node->dependencies.empty(); });
  return roots;
}

std::vector<std::pair<Node*, Node*>> Graph::Edges() const {
  std::lock_guard lock(mutex_);
  std::vector<std::pair<Node*, Node*>> edges;
  for (const std::shared_ptr<Node>& node : nodes_) {
    for (Node* dependent : node->dependents) edges.emplace_back(node.get(), dependent);
  }
  return edges;
}

bool Graph::InOrder(std::vector<Node*>* nodes) const {
  std::lock_guard lock(mutex_);
  std::unordered_map<const Node*, size_t> waiting;
  nodes->clear();
  for (const std::shared_ptr<Node>& node : nodes_) {
    waiting[node.get()] = node->dependencies.size();
    if (node->dependencies.empty()) nodes->push_back(node.get());
  }
  for (size_t i = 0; i < nodes->size(); i++) {
    for (Node* dependent : (*nodes)[i]->dependents) {
      if (--waiting[dependent] == 0) nodes->push_back(dependent);
    }
  }
  return nodes->size() == nodes_.size();
}

std::shared_ptr<Graph> Graph::Clone() const {
  auto clone = std::make_shared<Graph>();
  std::lock_guard lock(mutex_);
  std::unordered_map<const Node*, Node*> twins;
  for (const std::shared_ptr<Node>& node : nodes_) {
    ActionPtr action = node->action;
    if (action != nullptr && action->type() == CU_GRAPH_NODE_TYPE_GRAPH) {
      action = std::make_shared<ChildAction>(static_cast<const ChildAction&>(*action).graph->Clone());
    }
    auto twin = std::make_shared<Node>(clone.get(), std::move(action), NextNodeId());
    twin->origin = node->handle();
    twin->attributes = node->attributes;
    if (twin->action->type() == CU_GRAPH_NODE_TYPE_GRAPH) {
      static_cast<const ChildAction&>(*twin->action).graph->parent = twin.get();
    }
    twins[node.get()] = twin.get();
    State::Get()->nodes.Add(twin);
    clone->nodes_.push_back(std::move(twin));
  }
  for (const std::shared_ptr<Node>& node : nodes_) {
    for (const Node* dependency : node->dependencies) {
      twins[node.get()]->dependencies.push_back(twins[dependency]);
      twins[dependency]->dependents.push_back(twins[node.get()]);
    }
  }
  for (const auto& [object, references] : user_objects_) {
    object->Retain(references);
    clone->user_objects_[object] = references;
  }
  return clone;
}

Node* Graph::FindClone(CUgraphNode origin) const {
  std::lock_guard lock(mutex_);
  for (const std::shared_ptr<Node>& node : nodes_) {
    if (node->origin == origin) return node.get();
  }
  return nullptr;
}

void Graph::AddUserObject(const std::shared_ptr<UserObject>& object, uint64_t references) {
  std::lock_guard lock(mutex_);
  user_objects_[object] += references;
}

bool Graph::RemoveUserObject(const std::shared_ptr<UserObject>& object, uint64_t references) {
  std::lock_guard lock(mutex_);
  auto found = user_objects_.find(object);
  if (found == user_objects_.end() || found->second < references) return false;
  found->second -= references;
  if (found->second == 0) user_objects_.erase(found);
  return true;
}

std::map<std::shared_ptr<UserObject>, uint64_t> Graph::UserObjects() const {
  std::lock_guard lock(mutex_);
  return user_objects_;
}

void Graph::AddCondition(std::shared_ptr<Condition> condition) {
  std::lock_guard lock(mutex_);
  conditions_.push_back(std::move(condition));
}

bool Graph::MayBeCloned() const {
  std::lock_guard lock(mutex_);
  return std::none_of(nodes_.begin(), nodes_.end(), [](const auto& node) {
    CUgraphNodeType type = node->action->type();
    return type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || type == CU_GRAPH_NODE_TYPE_MEM_FREE ||
           type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
  });
}

}  // namespace softgpu
