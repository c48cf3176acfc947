// Executable graphs.
#include <algorithm>
#include <atomic>

#include "replay/conditional_record.h"
#include "replay/graph_context.h"
#include "replay/graph_records.h"
#include "replay/translate.h"
#include "vmm/real_driver.h"

namespace stasis::replay {

namespace {

constinit std::atomic<bool> g_keep_snapshots{true};

// A private copy of the driver's graph that holds no user object: the executable graph has references of its
// own, and ours would keep the program's objects alive for longer than those do. Null with a reason.
CUgraph CloneGraph(CUgraph graph, const std::shared_ptr<GraphRecord>& record, std::string* why) {
  if (!g_keep_snapshots.load(std::memory_order_relaxed)) {
    *why = "it was made while only driver-checkpoint was to be used";
    return nullptr;
  }
  CUgraph clone = nullptr;
  const CUresult result = Driver().cuGraphClone(&clone, graph);
  if (result == CUDA_SUCCESS) {
    if (record != nullptr) record->references().ReleaseFrom(clone);
    return clone;
  }
  const std::string node = FindUnsupportedNode(graph);
  *why = node.empty() ? std::string(DriverStatus(result, "cuGraphClone").message()) : node;
  return nullptr;
}

// The twin of the driver's `node` in the clone or in the child graphs of it; null when there is none.
CUgraphNode FindTwin(CUgraphNode node, CUgraph clone) {
  CUgraphNode twin = nullptr;
  if (Driver().cuGraphNodeFindInClone(&twin, node, clone) == CUDA_SUCCESS) return twin;
  const Result<std::vector<CUgraphNode>> nodes = ListNodes(clone);
  if (!nodes.ok()) return nullptr;
  for (CUgraphNode candidate : nodes.value()) {
    CUgraphNodeType type;
    CUgraph child = nullptr;
    if (Driver().cuGraphNodeGetType(candidate, &type) != CUDA_SUCCESS || type != CU_GRAPH_NODE_TYPE_GRAPH ||
        Driver().cuGraphChildGraphNodeGetGraph(candidate, &child) != CUDA_SUCCESS)
      continue;
    twin = FindTwin(node, child);
    if (twin != nullptr) return twin;
  }
  return nullptr;
}

void DestroyGraph(CUgraph* graph) {
  if (*graph != nullptr) Driver().cuGraphDestroy(*graph);
  *graph = nullptr;
}

// A node of the snapshot, which no call of the program can take away.
GraphNodeData* At(const GraphNodeIndex& index, CUgraphNode node) {
  const auto found = index.find(node);
  STASIS_CHECK(found != index.end());
  return found->second;
}

Status ReadPrivate(CUgraph graph, std::unique_ptr<GraphData>* out) {
  *out = std::make_unique<GraphData>();
  return ReadGraph(graph, out->get());
}

// Builds `data` as a graph of ours.
Result<CUgraph> BuildPrivate(CUcontext context, GraphData* data) {
  CUgraph made = nullptr;
  RETURN_IF_ERROR(DriverStatus(Driver().cuGraphCreate(&made, 0), "cuGraphCreate"));
  Status built = BuildGraph(made, context, data);
  if (built.ok()) return made;
  Driver().cuGraphDestroy(made);
  return built;
}

CUcontext CurrentContext() {
  CUcontext context = nullptr;
  Driver().cuCtxGetCurrent(&context);
  return ToVisible(context);
}

}  // namespace

void KeepGraphSnapshots(bool keep) { g_keep_snapshots.store(keep, std::memory_order_relaxed); }

CUgraphNode GraphExecRecord::Twin(CUgraphNode visible) const {
  if (snapshot_ == nullptr) return nullptr;
  if (!rebuilt_) return FindTwin(ToReal(visible), snapshot_);
  const auto found = twins_.find(visible);
  return found == twins_.end() ? nullptr : found->second;
}

CUgraphNode GraphExecRecord::NodeForDriver(CUgraphNode visible) const {
  if (!rebuilt_) return ToReal(visible);
  const CUgraphNode twin = Twin(visible);
  return twin != nullptr ? twin : ToReal(visible);
}

CUgraphNode GraphExecRecord::NodeForProgram(CUgraphNode real) const {
  for (const auto& [visible, twin] : twins_) {
    if (twin == real) return visible;
  }
  return AdoptNode(real);
}

// Changes after the last update, and after changes of child graphs, are made again in their order.
void GraphExecRecord::AddOverride(CUgraphNode node, CUgraph child) {
  for (Override& known : overrides_) {
    if (known.node == node) DestroyGraph(&known.child);
  }
  std::erase_if(overrides_, [node](const Override& known) { return known.node == node; });
  overrides_.push_back({node, child});
}

void GraphExecRecord::NoteParams(CUgraphNode visible, const char* call,
                                 const std::function<CUresult(CUgraphNode)>& apply) {
  if (made_from_ != nullptr) return LoseChange(call);
  if (snapshot_ == nullptr) return;
  const CUgraphNode twin = Twin(visible);
  if (twin == nullptr || apply(twin) != CUDA_SUCCESS) {
    lost_ = std::string("what ") + call + " changed in it is not known";
  } else {
    AddOverride(twin, nullptr);
  }
}

void GraphExecRecord::NoteChild(CUgraphNode visible, const char* call, CUgraph child) {
  if (made_from_ != nullptr) return LoseChange(call);
  if (snapshot_ == nullptr) return;
  const CUgraphNode twin = Twin(visible);
  std::string why;
  const CUgraph clone = twin == nullptr ? nullptr : CloneGraph(child, nullptr, &why);
  if (clone == nullptr) {
    lost_ = std::string("what ") + call + " changed in it is not known: " + why;
  } else {
    AddOverride(twin, clone);
  }
}

void GraphExecRecord::NoteEnabled(CUgraphNode visible, bool enabled) {
  if (made_from_ != nullptr) return LoseChange("cuGraphNodeSetEnabled");
  if (snapshot_ == nullptr) return;
  const CUgraphNode twin = Twin(visible);
  if (twin == nullptr) {
    lost_ = "what cuGraphNodeSetEnabled changed in it is not known";
  } else if (enabled) {
    disabled_.erase(twin);
  } else {
    disabled_.insert(twin);
  }
}

void GraphExecRecord::LoseChange(const char* call) {
  lost_ = std::string(call) + " has changed it, and it has conditional nodes";
}

// With conditional nodes no other graph than its own fits.
void GraphExecRecord::NoteUpdate(CUgraph graph, const std::shared_ptr<GraphRecord>& record) {
  if (made_from_ != nullptr) {
    const bool read = ReadGraph(graph, made_from_.get()).ok();
    if (!read || record == nullptr || record != source_.lock()) LoseChange("cuGraphExecUpdate");
    return;
  }
  if (snapshot_ == nullptr) return;
  if (!references_.empty() ||
      (record != nullptr && (!record->references().empty() || record->references().untracked())))
    lost_ = "cuGraphExecUpdate of a graph with user objects (cuGraphRetainUserObject)";
  std::string why;
  const CUgraph clone = CloneGraph(graph, record, &why);
  if (clone == nullptr) lost_ = "cuGraphExecUpdate with a graph that has a " + why;
  DestroyGraph(&update_);
  update_ = clone;
  for (Override& old : overrides_) DestroyGraph(&old.child);
  overrides_.clear();
}

void GraphExecRecord::DropPrivateGraphs() {
  DestroyGraph(&snapshot_);
  DestroyGraph(&update_);
  for (Override& override : overrides_) DestroyGraph(&override.child);
  overrides_.clear();
  disabled_.clear();
  twins_.clear();
}

void GraphExecRecord::NoteDestroyed() {
  DropPrivateGraphs();
  references_.Clear();
}

Status GraphExecRecord::Check() {
  if (real() == 0 || !ContextLives(context_)) return {};  // it died with its context, and is not rebuilt
  if (!lost_.empty())
    return Errorf(StatusCode::kUnsupported, "%s cannot be rebuilt: %s", Name().c_str(), lost_.c_str());
  if (references_.untracked())
    return Errorf(StatusCode::kUnsupported, "%s: a user object is held by a child graph (%s)", Name().c_str(),
                  "cuGraphRetainUserObject");
  cuuint64_t flags = 0;
  RETURN_IF_ERROR(DriverStatus(Driver().cuGraphExecGetFlags(reinterpret_cast<CUgraphExec>(real()), &flags),
                               "cuGraphExecGetFlags"));
  if ((flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH) != 0)
    return Errorf(StatusCode::kUnsupported, "%s can be launched by the device (%s)", Name().c_str(),
                  "CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH");
  const ContextScope context(context_);
  if (made_from_ != nullptr) return CheckSource().WithContext(Name());
  std::vector<CUgraph> graphs = {snapshot_, update_};
  for (const Override& override : overrides_) graphs.push_back(override.child);
  GraphData data;
  for (CUgraph graph : graphs) {
    if (graph != nullptr) RETURN_IF_ERROR(ReadGraph(graph, &data).WithContext(Name()));
  }
  return {};
}

std::shared_ptr<GraphRecord> GraphExecRecord::LivingSource() const {
  std::shared_ptr<GraphRecord> source = source_.lock();
  return source != nullptr && ObjectTable::Get().Find(source->visible()) == source ? source : nullptr;
}

Status GraphExecRecord::CheckSource() const {
  const std::shared_ptr<GraphRecord> source = LivingSource();
  if (source == nullptr) return CheckHandles(*made_from_);
  GraphData now;
  RETURN_IF_ERROR(ReadGraph(source->handle(), &now));
  if (SameGraph(now, *made_from_)) return {};
  return Errorf(StatusCode::kUnsupported, "its graph has changed since, and has conditional nodes (%s)",
                "cuGraphConditionalHandleCreate");
}

Result<CUgraph> GraphExecRecord::Prepare() {
  if (prepared_ == nullptr)
    RETURN_IF_ERROR(DriverStatus(Driver().cuGraphCreate(&prepared_, 0), "cuGraphCreate"));
  return prepared_;
}

// Of the graph that it was made from, or of another one that has the values instead.
Result<uint64_t> GraphExecRecord::RebuildFromSource() {
  const ContextScope context(context_);
  const std::shared_ptr<GraphRecord> source = LivingSource();
  CUgraph graph = source == nullptr ? nullptr : source->handle();
  if (graph == nullptr) {
    ASSIGN_OR_RETURN(snapshot_, Prepare());
    graph = snapshot_;
    prepared_ = nullptr;
    RETURN_IF_ERROR(BuildGraph(graph, context.real(), made_from_.get()).WithContext(Name()));
    RETURN_IF_ERROR(references_.RetainIn(graph));
  }
  CUgraphExec exec = nullptr;
  const CUresult result = Driver().cuGraphInstantiateWithFlags(
      &exec, graph, saved_.flags & ~cuuint64_t{CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD});
  if (snapshot_ != nullptr) references_.ReleaseFrom(snapshot_);
  RETURN_IF_ERROR(DriverStatus(result, "cuGraphInstantiateWithFlags"));
  return reinterpret_cast<uint64_t>(exec);
}

Status GraphExecRecord::SaveOverrides(const GraphNodeIndex& index) {
  for (const Override& override : overrides_) {
    SavedOverride saved;
    saved.node = At(index, override.node);
    if (override.child != nullptr) RETURN_IF_ERROR(ReadPrivate(override.child, &saved.child));
    saved_.overrides.push_back(std::move(saved));
  }
  for (CUgraphNode node : disabled_) saved_.disabled.push_back(At(index, node));
  return {};
}

// Handles of the program for the nodes of the snapshot: of the graph it was made from, if that lives.
Status GraphExecRecord::SaveOrigins(const GraphNodeIndex& index) {
  for (const auto& [visible, twin] : twins_) saved_.origins.emplace_back(visible, At(index, twin));
  const std::shared_ptr<GraphRecord> source = source_.lock();
  if (rebuilt_ || source == nullptr || source->handle() == nullptr) return {};
  if (ObjectTable::Get().Find(source->visible()) != source) return {};
  GraphHandles handles;
  RETURN_IF_ERROR(ListHandles(source->handle(), &handles));
  for (CUgraphNode node : handles.nodes) {
    const CUgraphNode twin = FindTwin(node, snapshot_);
    if (twin != nullptr) saved_.origins.emplace_back(ToVisible(node), At(index, twin));
  }
  return {};
}

Status GraphExecRecord::Save() {
  saved_ = Saved();
  if (real() == 0 || !ContextLives(context_)) return {};
  RETURN_IF_ERROR(
      DriverStatus(Driver().cuGraphExecGetFlags(reinterpret_cast<CUgraphExec>(real()), &saved_.flags),
                   "cuGraphExecGetFlags"));
  saved_.from_source = made_from_ != nullptr;
  prepared_ = nullptr;  // of a rebuild that failed; it went with its driver
  if (saved_.from_source) return {};
  const ContextScope context(context_);
  RETURN_IF_ERROR(ReadPrivate(snapshot_, &saved_.graph));
  if (update_ != nullptr) RETURN_IF_ERROR(ReadPrivate(update_, &saved_.update));
  GraphNodeIndex index;
  IndexNodes(saved_.graph.get(), &index);
  RETURN_IF_ERROR(SaveOverrides(index));
  return SaveOrigins(index);
}

Status GraphExecRecord::Destroy() {
  references_.Suspend();
  const CUresult result = Driver().cuGraphExecDestroy(reinterpret_cast<CUgraphExec>(real()));
  DropPrivateGraphs();
  return DriverStatus(result, "cuGraphExecDestroy");
}

Result<CUgraphExec> GraphExecRecord::Instantiate(CUcontext context) {
  ASSIGN_OR_RETURN(snapshot_, BuildPrivate(context, saved_.graph.get()));
  RETURN_IF_ERROR(references_.RetainIn(snapshot_));
  CUgraphExec exec = nullptr;
  // Upload is part of the call that asked for it, not of the executable graph.
  const CUresult result = Driver().cuGraphInstantiateWithFlags(
      &exec, snapshot_, saved_.flags & ~cuuint64_t{CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD});
  references_.ReleaseFrom(snapshot_);
  RETURN_IF_ERROR(DriverStatus(result, "cuGraphInstantiateWithFlags"));
  return exec;
}

// What happened to it since it was instantiated.
Status GraphExecRecord::ApplySaved(CUgraphExec exec, CUcontext context) {
  if (saved_.update != nullptr) {
    ASSIGN_OR_RETURN(update_, BuildPrivate(context, saved_.update.get()));
    CUgraphExecUpdateResultInfo info{};
    RETURN_IF_ERROR(DriverStatus(Driver().cuGraphExecUpdate_v2(exec, update_, &info), "cuGraphExecUpdate"));
  }
  for (SavedOverride& saved : saved_.overrides) {
    Override override{saved.node->real, nullptr};
    CUresult result;
    if (saved.child != nullptr) {
      ASSIGN_OR_RETURN(override.child, BuildPrivate(context, saved.child.get()));
      result = Driver().cuGraphExecChildGraphNodeSetParams(exec, override.node, override.child);
    } else {
      NodeParamsStorage storage;
      ASSIGN_OR_RETURN(CUgraphNodeParams params, RealParams(*saved.node, context, &storage));
      result = Driver().cuGraphExecNodeSetParams(exec, override.node, &params);
    }
    overrides_.push_back(override);
    RETURN_IF_ERROR(DriverStatus(result, "cuGraphExecNodeSetParams"));
  }
  for (GraphNodeData* node : saved_.disabled) {
    disabled_.insert(node->real);
    RETURN_IF_ERROR(
        DriverStatus(Driver().cuGraphNodeSetEnabled(exec, node->real, 0), "cuGraphNodeSetEnabled"));
  }
  return {};
}

Result<uint64_t> GraphExecRecord::Rebuild() {
  if (saved_.from_source) return RebuildFromSource();
  if (saved_.graph == nullptr) return uint64_t{0};
  const ContextScope context(context_);
  Result<CUgraphExec> exec = Instantiate(context.real());
  Status status = exec.status();
  if (exec.ok()) status = ApplySaved(exec.value(), context.real());
  if (!status.ok()) {
    references_.Suspend();
    if (exec.ok()) Driver().cuGraphExecDestroy(exec.value());
    DropPrivateGraphs();
    return std::move(status).WithContext(Name());
  }
  rebuilt_ = true;
  for (const auto& [visible, node] : saved_.origins) twins_[visible] = node->real;
  return reinterpret_cast<uint64_t>(exec.value());
}

void NoteInstantiated(CUgraph graph, CUgraphExec* exec) {
  const std::shared_ptr<GraphRecord> source = FindAs<GraphRecord>(graph);
  std::string lost;
  const CUgraph snapshot = CloneGraph(ToReal(graph), source, &lost);
  GraphData data;
  const bool conditional = snapshot == nullptr && source != nullptr &&
                           g_keep_snapshots.load(std::memory_order_relaxed) &&
                           ReadGraph(ToReal(graph), &data).ok() && HasConditionalNodes(data);
  if (conditional) lost.clear();
  const auto record = std::make_shared<GraphExecRecord>(CurrentContext(), source, snapshot, std::move(lost));
  if (conditional) record->KeepSource(std::move(data));
  AddRecord(record, exec);
  if (conditional) NoteConditionsOf(source, record);
}

void NoteExecDestroyed(const std::shared_ptr<GraphExecRecord>& exec) {
  ObjectTable::Get().Remove(exec);
  exec->NoteDestroyed();
}

void DropGraphsOfContext(CUcontext context) {
  for (const RecordPtr& record : ObjectTable::Get().InOrder(ObjectKind::kGraphExec)) {
    const auto exec = std::static_pointer_cast<GraphExecRecord>(record);
    if (exec->context() == context) NoteExecDestroyed(exec);
  }
}

}  // namespace stasis::replay
