// Conditional nodes of graphs: the values that decide, and what the driver does not tell of the nodes.
//
// The handle of a value is a number that programs pass to their kernels, so that nobody can translate it: as
// those of textures (texture_record.h), a rebuilt one must get its old number or the rebuild fails, and they
// are made again in the order of their numbers, with fillers in the gaps.
#ifndef REPLAY_CONDITIONAL_RECORD_H_
#define REPLAY_CONDITIONAL_RECORD_H_

#include <cuda.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "replay/object_table.h"

namespace stasis::replay {

class GraphRecord;
class GraphExecRecord;

// All values of the process. One record, from the first value on.
class ConditionSet final : public Record {
 public:
  ConditionSet() : Record(ObjectKind::kConditional) {}
  void Add(uint64_t number, const std::shared_ptr<GraphRecord>& graph, CUcontext context, unsigned initial,
           unsigned flags);
  // An executable graph was made of `graph` and has its values for as long as it lives.
  void AddExec(const std::shared_ptr<GraphRecord>& graph, const std::shared_ptr<GraphExecRecord>& exec);

  std::string Name() const override { return "conditional handles"; }
  Status Check() override;
  Status Save() override;
  Status Destroy() override { return {}; }  // they go with their graphs
  Result<uint64_t> Rebuild() override;

 private:
  struct Value {
    std::weak_ptr<GraphRecord> graph;
    std::vector<std::weak_ptr<GraphExecRecord>> execs;
    CUcontext context = nullptr;  // visible
    unsigned initial = 0, flags = 0;
  };
  static bool IsAlive(const Value& value);
  static Result<CUgraph> OwnerOf(const Value& value);
  // `fillers`: graphs of ours with what stands in the gaps.
  static Status Place(uint64_t number, const Value& value, std::vector<CUgraph>* fillers);

  std::mutex mutex_;  // a leaf: guards values_ while the gate is open
  std::map<uint64_t, Value> values_;
};

// What a conditional node was made with. Handles are visible.
struct ConditionalNode {
  CUgraphConditionalHandle handle = 0;
  CUgraphConditionalNodeType type = CU_GRAPH_COND_TYPE_IF;
  CUcontext context = nullptr;
  std::vector<CUgraph> bodies;
};
// Nothing when the node (visible) is none that the program made.
std::optional<ConditionalNode> FindConditionalNode(CUgraphNode node);

// ---- For the hooks.

// False when the graph (visible) is none that can be rebuilt with it.
bool NoteCondition(uint64_t number, CUgraph graph, CUcontext context, unsigned initial, unsigned flags);
void NoteConditionsOf(const std::shared_ptr<GraphRecord>& graph,
                      const std::shared_ptr<GraphExecRecord>& exec);
// The node was added; `bodies` is the driver's list. Returns the list for the program, which lives as long as
// the node.
CUgraph* NoteConditionalNode(CUgraphNode node, const CUDA_CONDITIONAL_NODE_PARAMS& visible,
                             const CUgraph* bodies);

}  // namespace stasis::replay

#endif  // REPLAY_CONDITIONAL_RECORD_H_
