#include "replay/conditional_record.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "replay/graph_records.h"
#include "replay/translate.h"
#include "vmm/real_driver.h"

namespace stasis::replay {

namespace {

// As of textures: what is not below this is no index, and would not come back.
constexpr uint64_t kMaxNumber = 1 << 20;

// By the visible handle of the node. An entry is replaced when the driver gives the handle to another node,
// and is not looked at for a node of another type.
struct ConditionalNodes {
  std::mutex mutex;  // a leaf
  std::unordered_map<CUgraphNode, std::unique_ptr<ConditionalNode>> by_node;
};

ConditionalNodes& Nodes() {
  static ConditionalNodes* const nodes = new ConditionalNodes;
  return *nodes;
}

// Null before the first value.
std::shared_ptr<ConditionSet>& Set() {
  static std::shared_ptr<ConditionSet>* const set = new std::shared_ptr<ConditionSet>;
  return *set;
}
constinit std::mutex g_set_mutex;  // a leaf but for the object table's

std::shared_ptr<ConditionSet> FindSet(bool make) {
  std::lock_guard lock(g_set_mutex);
  if (Set() == nullptr && make) {
    Set() = std::make_shared<ConditionSet>();
    ObjectTable::Get().Add(Set(), reinterpret_cast<uint64_t>(Set().get()));
  }
  return Set();
}

template <typename T>
std::shared_ptr<T> Alive(const std::weak_ptr<T>& weak) {
  std::shared_ptr<T> record = weak.lock();
  return record != nullptr && ObjectTable::Get().Find(record->visible()) == record ? record : nullptr;
}

}  // namespace

bool ConditionSet::IsAlive(const Value& value) {
  return Alive(value.graph) != nullptr ||
         std::any_of(value.execs.begin(), value.execs.end(),
                     [](const auto& exec) { return Alive(exec) != nullptr; });
}

void ConditionSet::Add(uint64_t number, const std::shared_ptr<GraphRecord>& graph, CUcontext context,
                       unsigned initial, unsigned flags) {
  std::lock_guard lock(mutex_);
  values_[number] = {graph, {}, context, initial, flags};
}

void ConditionSet::AddExec(const std::shared_ptr<GraphRecord>& graph,
                           const std::shared_ptr<GraphExecRecord>& exec) {
  std::lock_guard lock(mutex_);
  for (auto& [number, value] : values_) {
    if (value.graph.lock() != graph) continue;
    std::erase_if(value.execs, [](const auto& known) { return known.expired(); });
    value.execs.push_back(exec);
  }
}

Status ConditionSet::Check() {
  for (const auto& [number, value] : values_) {
    if (number > kMaxNumber && IsAlive(value))
      return Errorf(StatusCode::kUnsupported,
                    "conditional handle 0x%llx has a number that no new driver would give again (%s)",
                    static_cast<unsigned long long>(number), "cuGraphConditionalHandleCreate");
  }
  return {};
}

Status ConditionSet::Save() {
  std::erase_if(values_, [](const auto& entry) { return !IsAlive(entry.second); });
  return {};
}

// The graph that the program gave it to, or what an executable one has in its place.
Result<CUgraph> ConditionSet::OwnerOf(const Value& value) {
  if (const std::shared_ptr<GraphRecord> graph = Alive(value.graph)) return graph->Prepare();
  for (const auto& weak : value.execs) {
    if (const std::shared_ptr<GraphExecRecord> exec = Alive(weak)) return exec->Prepare();
  }
  return Errorf(StatusCode::kInternal, "a conditional handle without a graph");
}

Status ConditionSet::Place(uint64_t number, const Value& value, std::vector<CUgraph>* fillers) {
  const auto make = [&value](CUgraph graph, uint64_t* got) {
    CUgraphConditionalHandle handle = 0;
    const CUresult result = Driver().cuGraphConditionalHandleCreate(&handle, graph, ToReal(value.context),
                                                                    value.initial, value.flags);
    *got = handle;
    return DriverStatus(result, "cuGraphConditionalHandleCreate");
  };
  uint64_t got = 0;
  // A handle goes with its graph alone, so the number that comes next is tried in a graph of its own.
  for (uint64_t tries = 0; tries <= number && got < number; ++tries) {
    CUgraph filler = nullptr;
    RETURN_IF_ERROR(DriverStatus(Driver().cuGraphCreate(&filler, 0), "cuGraphCreate"));
    fillers->push_back(filler);
    RETURN_IF_ERROR(make(filler, &got));
  }
  if (got == number) {
    Driver().cuGraphDestroy(fillers->back());
    fillers->pop_back();
    ASSIGN_OR_RETURN(const CUgraph owner, OwnerOf(value));
    RETURN_IF_ERROR(make(owner, &got));
  }
  if (got == number) return {};
  return Errorf(StatusCode::kFailedPrecondition,
                "conditional handle %llu would come back as %llu, and kernels know it by its number",
                static_cast<unsigned long long>(number), static_cast<unsigned long long>(got));
}

Result<uint64_t> ConditionSet::Rebuild() {
  std::vector<CUgraph> fillers;
  Status status;
  for (auto value = values_.begin(); status.ok() && value != values_.end(); ++value)
    status = Place(value->first, value->second, &fillers);
  for (CUgraph filler : fillers) Driver().cuGraphDestroy(filler);
  if (!status.ok()) return status;
  return visible();
}

std::optional<ConditionalNode> FindConditionalNode(CUgraphNode node) {
  std::lock_guard lock(Nodes().mutex);
  const auto found = Nodes().by_node.find(node);
  return found == Nodes().by_node.end() ? std::nullopt : std::optional(*found->second);
}

bool NoteCondition(uint64_t number, CUgraph graph, CUcontext context, unsigned initial, unsigned flags) {
  const auto record = FindAs<GraphRecord>(graph);
  if (record == nullptr) return false;
  FindSet(true)->Add(number, record, context, initial, flags);
  return true;
}

void NoteConditionsOf(const std::shared_ptr<GraphRecord>& graph,
                      const std::shared_ptr<GraphExecRecord>& exec) {
  const std::shared_ptr<ConditionSet> set = FindSet(false);
  if (set != nullptr && graph != nullptr) set->AddExec(graph, exec);
}

CUgraph* NoteConditionalNode(CUgraphNode node, const CUDA_CONDITIONAL_NODE_PARAMS& visible,
                             const CUgraph* bodies) {
  auto made = std::make_unique<ConditionalNode>();
  made->handle = visible.handle;
  made->type = visible.type;
  made->context = visible.ctx;
  made->bodies.assign(bodies, bodies + visible.size);
  for (CUgraph& body : made->bodies) body = AdoptChildGraph(body);
  CUgraph* const list = made->bodies.data();
  std::lock_guard lock(Nodes().mutex);
  Nodes().by_node[node] = std::move(made);
  return list;
}

}  // namespace stasis::replay
