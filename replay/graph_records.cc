// Graphs and what they consist of.
#include "replay/graph_records.h"

#include <atomic>

#include "replay/graph_context.h"
#include "replay/translate.h"
#include "vmm/real_driver.h"

namespace stasis::replay {

namespace {

template <typename Handle>
uint64_t Number(Handle* handle) {
  return reinterpret_cast<uint64_t>(handle);
}
template <typename Handle>
Handle As(uint64_t number) {
  return reinterpret_cast<Handle>(number);
}

CUcontext CurrentContext() {
  CUcontext context = nullptr;
  Driver().cuCtxGetCurrent(&context);
  return ToVisible(context);
}

// Pairs the nodes of a graph and of its clone, both the driver's, child graphs included.
void PairClones(CUgraph original, CUgraph clone, std::vector<std::pair<CUgraphNode, CUgraphNode>>* pairs) {
  const Result<std::vector<CUgraphNode>> nodes = ListNodes(original);
  if (!nodes.ok()) return;
  for (CUgraphNode node : nodes.value()) {
    CUgraphNode twin = nullptr;
    CUgraph child = nullptr, cloned = nullptr;
    if (Driver().cuGraphNodeFindInClone(&twin, node, clone) != CUDA_SUCCESS) continue;
    pairs->emplace_back(node, twin);
    if (Driver().cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS &&
        Driver().cuGraphChildGraphNodeGetGraph(twin, &cloned) == CUDA_SUCCESS)
      PairClones(child, cloned, pairs);
  }
}

// By the driver's handles: the same numbers may be the program's handles of other objects.
std::vector<RecordPtr> PartsOf(const GraphHandles& handles) {
  std::vector<RecordPtr> parts;
  const auto add = [&parts](uint64_t real) {
    RecordPtr record = ObjectTable::Get().FindReal(real);
    if (record != nullptr && record->kind() == ObjectKind::kGraphNode) parts.push_back(std::move(record));
  };
  for (CUgraphNode node : handles.nodes) add(Number(node));
  for (CUgraph child : handles.children) add(Number(child));
  return parts;
}

void ForgetParts(const std::vector<RecordPtr>& parts) {
  for (const RecordPtr& part : parts) ObjectTable::Get().Remove(part);
}

// Memory that a graph's allocation node has given to the program, and that lives on without any graph.
class GraphMemoryRecord final : public Record {
 public:
  GraphMemoryRecord() : Record(ObjectKind::kGraph) {}
  std::string Name() const override { return "memory of graphs"; }
  Status Check() override;
  Status Destroy() override { return {}; }
  Result<uint64_t> Rebuild() override { return uint64_t{0}; }
};

Status GraphMemoryRecord::Check() {
  int devices = 0;
  RETURN_IF_ERROR(DriverStatus(Driver().cuDeviceGetCount(&devices), "cuDeviceGetCount"));
  for (int device = 0; device < devices; ++device) {
    cuuint64_t used = 0;
    if (Driver().cuDeviceGetGraphMemAttribute(device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &used) ==
            CUDA_SUCCESS &&
        used != 0)
      return Errorf(
          StatusCode::kUnsupported,
          "%llu bytes allocated by a graph's allocation node are in use (cuGraphAddMemAllocNode, or "
          "cuMemAllocAsync in a capture)",
          static_cast<unsigned long long>(used));
  }
  return {};
}

// Its handle is the address of something that no object of the driver can be.
void NoteGraphMemory() {
  static constinit std::atomic<bool> noted{false};
  if (!noted.load(std::memory_order_relaxed) && !noted.exchange(true))
    ObjectTable::Get().Add(std::make_shared<GraphMemoryRecord>(), Number(&noted));
}

}  // namespace

Status GraphPartRecord::Save() {
  // What no graph has any more was destroyed without our notice, e.g. as part of a replaced child graph.
  if (!seen_) ObjectTable::Get().Remove(ObjectTable::Get().Find(visible()));
  seen_ = false;
  return {};
}

Status GraphRecord::Check() {
  if (handle() == nullptr) return {};
  if (references_.untracked())
    return Errorf(StatusCode::kUnsupported, "%s: a user object is held by a child graph (%s)", Name().c_str(),
                  "cuGraphRetainUserObject");
  const ContextScope context(context_);
  GraphData data;
  return ReadGraph(handle(), &data).WithContext(Name());
}

// Nodes that the program may have handles of get records, which carry these over the rebuild.
void GraphRecord::SaveParts(GraphData& graph) {
  const auto note = [](uint64_t real) {
    RecordPtr record = ObjectTable::Get().FindReal(real);
    if (record == nullptr || record->kind() != ObjectKind::kGraphNode) {
      record = std::make_shared<GraphPartRecord>();
      ObjectTable::Get().Add(record, real);
    }
    static_cast<GraphPartRecord&>(*record).seen_ = true;
    return record->visible();
  };
  for (GraphNodeData& node : graph.nodes) {
    node.visible = As<CUgraphNode>(note(Number(node.real)));
    for (GraphData& body : node.bodies) {
      body.visible = As<CUgraph>(note(Number(body.real)));
      SaveParts(body);
    }
    if (node.child == nullptr) continue;
    node.child->visible = As<CUgraph>(note(Number(node.child->real)));
    SaveParts(*node.child);
  }
}

Status GraphRecord::SaveClones() {
  const std::shared_ptr<GraphRecord> original = original_.lock();
  if (original == nullptr || original->handle() == nullptr || !clones_.empty()) return {};
  std::vector<std::pair<CUgraphNode, CUgraphNode>> pairs;
  PairClones(original->handle(), handle(), &pairs);
  for (const auto& [node, twin] : pairs) clones_[ToVisible(node)] = ToVisible(twin);
  return {};
}

Status GraphRecord::Save() {
  data_ = GraphData();
  prepared_ = nullptr;  // of a rebuild that failed; it went with its driver
  if (handle() == nullptr) return {};
  const ContextScope context(context_);
  RETURN_IF_ERROR(ReadGraph(handle(), &data_).WithContext(Name()));
  SaveParts(data_);
  return SaveClones();
}

Status GraphRecord::Destroy() {
  references_.Suspend();
  return DriverStatus(Driver().cuGraphDestroy(handle()), "cuGraphDestroy");
}

void GraphRecord::PlaceParts(const GraphData& graph) {
  const auto place = [](uint64_t visible, uint64_t real) {
    const RecordPtr record = ObjectTable::Get().Find(visible);
    if (record != nullptr && record->kind() == ObjectKind::kGraphNode)
      static_cast<GraphPartRecord&>(*record).rebuilt_ = real;
  };
  for (const GraphNodeData& node : graph.nodes) {
    place(Number(node.visible), Number(node.real));
    for (const GraphData& body : node.bodies) {
      place(Number(body.visible), Number(body.real));
      PlaceParts(body);
    }
    if (node.child == nullptr) continue;
    place(Number(node.child->visible), Number(node.child->real));
    PlaceParts(*node.child);
  }
}

Result<CUgraph> GraphRecord::Prepare() {
  if (prepared_ == nullptr)
    RETURN_IF_ERROR(DriverStatus(Driver().cuGraphCreate(&prepared_, 0), "cuGraphCreate"));
  return prepared_;
}

Result<uint64_t> GraphRecord::Rebuild() {
  if (data_.real == nullptr) return uint64_t{0};
  ASSIGN_OR_RETURN(CUgraph made, Prepare());
  prepared_ = nullptr;
  const ContextScope context(context_);
  Status built = BuildGraph(made, context.real(), &data_);
  if (built.ok()) built = references_.RetainIn(made);
  if (!built.ok()) {
    Driver().cuGraphDestroy(made);
    return std::move(built).WithContext(Name());
  }
  PlaceParts(data_);
  return Number(made);
}

CUgraphNode GraphRecord::FindClone(CUgraphNode original) const {
  const auto found = clones_.find(original);
  return found == clones_.end() ? nullptr : found->second;
}

void NoteGraph(CUgraph* graph, CUgraph original) {
  NoteGraphMemory();
  const std::shared_ptr<GraphRecord> source = original == nullptr ? nullptr : FindAs<GraphRecord>(original);
  const auto record = std::make_shared<GraphRecord>(CurrentContext(), source);
  if (source != nullptr) record->references().CopyFrom(source->references());
  // A capture may end in a graph that has a record already.
  AddSharedRecord(record, graph);
}

DyingGraph PrepareGraphDestroy(CUgraph graph) {
  DyingGraph dying;
  dying.record = FindAs<GraphRecord>(graph);
  GraphHandles handles;
  if (Translating() && dying.record != nullptr && ListHandles(dying.record->handle(), &handles).ok())
    dying.parts = PartsOf(handles);
  return dying;
}

void NoteGraphDestroyed(const DyingGraph& graph) {
  if (graph.record == nullptr) return;
  ObjectTable::Get().Remove(graph.record);
  graph.record->references().Clear();
  ForgetParts(graph.parts);
}

std::vector<RecordPtr> PrepareNodeDestroy(CUgraphNode node) {
  if (!Translating()) return {};
  GraphHandles handles;
  const CUgraphNode real = ToReal(node);
  handles.nodes.push_back(real);
  CUgraph child = nullptr;
  CUgraphNodeType type;
  if (Driver().cuGraphNodeGetType(real, &type) == CUDA_SUCCESS && type == CU_GRAPH_NODE_TYPE_GRAPH &&
      Driver().cuGraphChildGraphNodeGetGraph(real, &child) == CUDA_SUCCESS) {
    handles.children.push_back(child);
    static_cast<void>(ListHandles(child, &handles).ok());  // what is not listed is found by the next pause
  }
  return PartsOf(handles);
}

void NoteNodeDestroyed(const std::vector<RecordPtr>& parts) { ForgetParts(parts); }

void NoteCaptureGraphGone(CUgraph graph) {
  DyingGraph dying;
  dying.record = FindAs<GraphRecord>(graph);
  NoteGraphDestroyed(dying);
}

void NoteChildGraph(CUgraph parent, CUgraph child) {
  const std::shared_ptr<GraphRecord> inner = FindAs<GraphRecord>(child), outer = FindAs<GraphRecord>(parent);
  if (inner == nullptr || outer == nullptr) return;
  if (!inner->references().empty() || inner->references().untracked()) outer->references().set_untracked();
}

CUgraphNode AdoptNode(CUgraphNode real) {
  if (Translating() && real != nullptr) AddSharedRecord(std::make_shared<GraphPartRecord>(), &real);
  return real;
}

CUgraph AdoptChildGraph(CUgraph real) {
  if (Translating() && real != nullptr) AddSharedRecord(std::make_shared<GraphPartRecord>(), &real);
  return real;
}

CUgraph AdoptGraph(CUgraph real) {
  if (Translating() && real != nullptr) NoteGraph(&real, nullptr);
  return real;
}

}  // namespace stasis::replay
