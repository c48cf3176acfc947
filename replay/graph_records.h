// Records of graphs, their nodes, executable graphs and user objects, and what the hooks of those calls do
// with them.
//
// A graph is read from the driver when the program is paused, so its record knows little until then. An
// executable graph cannot be read; it is what its graph was when it was instantiated, and what was changed in
// it since. A private clone taken at instantiation keeps the first, and gets the changes as well.
//
// Functions named Note... are called by hooks, inside of the gate, by any thread, after the driver's call has
// succeeded; no lock is held across a call of the driver.
#ifndef REPLAY_GRAPH_RECORDS_H_
#define REPLAY_GRAPH_RECORDS_H_

#include <cuda.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "replay/graph_data.h"
#include "replay/graph_user_objects.h"
#include "replay/object_table.h"

namespace stasis::replay {

// False when no pause of this process will rebuild objects (TaskStrategy::kDriverCheckpoint): executable
// graphs are then not cloned, and CheckRebuildable() refuses them. Set before the first graph is made.
void KeepGraphSnapshots(bool keep);

// A node, or the graph inside of a node. Exists for translation; lives and dies with its graph.
class GraphPartRecord final : public Record {
 public:
  GraphPartRecord() : Record(ObjectKind::kGraphNode) {}
  std::string Name() const override { return "part of a graph"; }
  Status Save() override;
  Status Destroy() override { return {}; }
  Result<uint64_t> Rebuild() override { return rebuilt_; }

 private:
  friend class GraphRecord;
  bool seen_ = false;  // by the Save() of its graph
  uint64_t rebuilt_ = 0;
};

class GraphRecord final : public Record {
 public:
  GraphRecord(CUcontext context, std::weak_ptr<GraphRecord> original)
      : Record(ObjectKind::kGraph), context_(context), original_(std::move(original)) {}
  Status Check() override;
  Status Save() override;
  Status Destroy() override;
  Result<uint64_t> Rebuild() override;
  void Rebuilt() override { data_ = GraphData(); }

  CUgraph handle() const { return reinterpret_cast<CUgraph>(real()); }
  UserReferences& references() { return references_; }
  // Before Rebuild(): the driver's graph that will be it, still empty.
  Result<CUgraph> Prepare();
  // The node of this graph that was cloned from `original`, both visible, for clones made before a rebuild;
  // null when there is none.
  CUgraphNode FindClone(CUgraphNode original) const;

 private:
  void SaveParts(GraphData& graph);
  Status SaveClones();
  void PlaceParts(const GraphData& graph);

  const CUcontext context_;  // visible; current when the graph was made, or null
  const std::weak_ptr<GraphRecord> original_;
  UserReferences references_;
  std::unordered_map<CUgraphNode, CUgraphNode> clones_;
  GraphData data_;
  CUgraph prepared_ = nullptr;
};

class GraphExecRecord final : public Record {
 public:
  GraphExecRecord(CUcontext context, std::shared_ptr<GraphRecord> source, CUgraph snapshot, std::string lost)
      : Record(ObjectKind::kGraphExec),
        context_(context),
        source_(source),
        snapshot_(snapshot),
        lost_(std::move(lost)) {
    if (source != nullptr) references_.CopyFrom(source->references());
  }
  Status Check() override;
  Status Save() override;
  Status Destroy() override;
  Result<uint64_t> Rebuild() override;
  void Rebuilt() override { saved_ = Saved(); }

  // What stands for the program's node `visible` in calls on this executable graph.
  CUgraphNode NodeForDriver(CUgraphNode visible) const;
  // The program's node for one that the driver named.
  CUgraphNode NodeForProgram(CUgraphNode real) const;
  // The parameters of a node were changed; `apply` does the same to a node of a graph.
  void NoteParams(CUgraphNode visible, const char* call, const std::function<CUresult(CUgraphNode)>& apply);
  // A child graph node runs another graph; `child` is the driver's.
  void NoteChild(CUgraphNode visible, const char* call, CUgraph child);
  void NoteEnabled(CUgraphNode visible, bool enabled);
  // All parameters were taken from `graph` (the driver's), whose record is `record`.
  void NoteUpdate(CUgraph graph, const std::shared_ptr<GraphRecord>& record);
  // Gone: drops the private graphs and the references.
  void NoteDestroyed();
  // It has conditional nodes, and was made from `graph` as that is now.
  void KeepSource(GraphData graph) { made_from_ = std::make_unique<GraphData>(std::move(graph)); }
  // As of graphs: the one that takes the place of its own, which is gone.
  Result<CUgraph> Prepare();
  CUcontext context() const { return context_; }

 private:
  // A node whose parameters differ from those of the last update; `child`: the graph a child node runs.
  struct Override {
    CUgraphNode node = nullptr;  // of the snapshot
    CUgraph child = nullptr;     // ours
  };
  struct SavedOverride {
    GraphNodeData* node = nullptr;
    std::unique_ptr<GraphData> child;
  };
  struct Saved {
    cuuint64_t flags = 0;
    std::unique_ptr<GraphData> graph, update;
    std::vector<SavedOverride> overrides;
    std::vector<GraphNodeData*> disabled;
    std::vector<std::pair<CUgraphNode, GraphNodeData*>> origins;  // of the program's nodes
    bool from_source = false;
  };
  CUgraphNode Twin(CUgraphNode visible) const;
  void AddOverride(CUgraphNode node, CUgraph child);
  void DropPrivateGraphs();
  Status SaveOverrides(const GraphNodeIndex& index);
  Status SaveOrigins(const GraphNodeIndex& index);
  Result<CUgraphExec> Instantiate(CUcontext context);
  void LoseChange(const char* call);
  Status CheckSource() const;
  Result<uint64_t> RebuildFromSource();
  std::shared_ptr<GraphRecord> LivingSource() const;
  Status ApplySaved(CUgraphExec exec, CUcontext context);

  const CUcontext context_;  // visible
  const std::weak_ptr<GraphRecord> source_;
  // Graphs with conditional nodes are not cloned, and no value decides in two graphs: instead of a snapshot
  // there is the graph itself, which must not have changed since, or this when it is gone.
  std::unique_ptr<GraphData> made_from_;
  CUgraph prepared_ = nullptr;
  CUgraph snapshot_;          // ours, the driver's handle; null: see lost_
  CUgraph update_ = nullptr;  // a clone of the graph of the last update, or null
  std::vector<Override> overrides_;
  std::unordered_set<CUgraphNode> disabled_;  // of the snapshot
  // Rebuilt executable graphs are made from the snapshot: the program's nodes and those of the snapshot.
  bool rebuilt_ = false;
  std::unordered_map<CUgraphNode, CUgraphNode> twins_;
  UserReferences references_;
  std::string lost_;  // why it cannot be rebuilt
  Saved saved_;
};

// A graph was made: `*graph` is the driver's handle and becomes the program's. `original`: the visible graph
// that it is a clone of, or null.
void NoteGraph(CUgraph* graph, CUgraph original);
// Before and after the destruction of a graph (visible).
struct DyingGraph {
  std::shared_ptr<GraphRecord> record;
  std::vector<RecordPtr> parts;
};
DyingGraph PrepareGraphDestroy(CUgraph graph);
void NoteGraphDestroyed(const DyingGraph& graph);
// The same for one node.
std::vector<RecordPtr> PrepareNodeDestroy(CUgraphNode node);
void NoteNodeDestroyed(const std::vector<RecordPtr>& parts);
// A capture ended without a graph: the one it was making, which the program may know, is gone.
void NoteCaptureGraphGone(CUgraph graph);
// A child graph was cloned into `parent`, both visible.
void NoteChildGraph(CUgraph parent, CUgraph child);

void NoteInstantiated(CUgraph graph, CUgraphExec* exec);
void NoteExecDestroyed(const std::shared_ptr<GraphExecRecord>& exec);
// The context (visible) is gone and with it the executable graphs made in it. Call it after the driver's
// cuCtxDestroy or cuDevicePrimaryCtxReset.
void DropGraphsOfContext(CUcontext context);

// What the program is told for a node or a graph inside of a node; records it when translating.
CUgraphNode AdoptNode(CUgraphNode real);
CUgraph AdoptChildGraph(CUgraph real);
// The same for the graph of a capture in progress.
CUgraph AdoptGraph(CUgraph real);

}  // namespace stasis::replay

#endif  // REPLAY_GRAPH_RECORDS_H_
