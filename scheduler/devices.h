// Which devices of the cluster are free, and where a gang goes.
#ifndef SCHEDULER_DEVICES_H_
#define SCHEDULER_DEVICES_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "scheduler/types.h"

namespace stasis::scheduler {

struct ClusterShape {
  int nodes = 1;
  int devices_per_node = 8;  // 1 ... kMaxDevicesPerNode
  int nodes_per_switch = 16;
  int total() const { return nodes * devices_per_node; }
};

// How spread out a placement is. Fewer is better; switches count first.
struct Spread {
  int switches = 0, nodes = 0;
};

// Value type: a policy plans on a copy. Not thread-safe.
class Devices {
 public:
  explicit Devices(const ClusterShape& shape);
  // One more node, with as many devices as it has: at most as many as the shape's, whose nodes grow by it.
  NodeId AddNode(int devices);

  const ClusterShape& shape() const { return shape_; }
  // Of all nodes, whoever has them and whether usable or not.
  int total() const { return total_; }
  int free() const { return free_; }
  DeviceMask free_on(NodeId node) const { return nodes_[node].free; }
  bool usable(NodeId node) const { return nodes_[node].usable; }
  int devices_of(NodeId node) const { return nodes_[node].devices; }
  int SwitchOf(NodeId node) const { return static_cast<int>(node) / shape_.nodes_per_switch; }

  // The best place for a gang of `gpus` >= 1: the fewest switches, then the fewest nodes, then the least room
  // left over on the nodes it touches; equal ones by node. Nothing when fewer devices are free, or when so
  // many are free on no `max_nodes` nodes (0: any number). Changes nothing.
  std::optional<Placement> Find(int gpus, int max_nodes = 0) const;
  // `gpus` devices of one node, which has them.
  Placement On(NodeId node, int gpus) const;
  int FreeOn(NodeId node) const { return FreeCount(nodes_[node]); }
  bool IsFree(const Placement& placement) const;
  // CHECKs that all of it is free.
  void Take(const Placement& placement);
  // CHECKs that all of it is taken.
  void Release(const Placement& placement);
  // A drained or lost node keeps what runs there and gets nothing new.
  void SetUsable(NodeId node, bool usable);

  Spread SpreadOf(const Placement& placement) const;
  // The least that `gpus` devices can be spread on an empty cluster.
  Spread BestSpread(int gpus) const;

 private:
  struct Node {
    DeviceMask free = 0;
    int devices = 0;
    bool usable = true;
  };
  int FreeCount(const Node& node) const { return node.usable ? __builtin_popcountll(node.free) : 0; }
  std::optional<Placement> FindOnOneNode(int gpus) const;
  Placement Gather(std::vector<NodeId> nodes, int gpus) const;
  struct Switch {
    std::vector<NodeId> nodes;
    int room = 0;
  };
  Switch SwitchAt(size_t index) const;
  size_t SwitchCount() const;
  std::optional<Placement> FindUnderOneSwitch(int gpus) const;
  Placement FindUnderSwitches(int gpus) const;

  ClusterShape shape_;
  std::vector<Node> nodes_;
  int total_ = 0;
  int free_ = 0;  // of usable nodes
};

int CountDevices(const Placement& placement);

}  // namespace stasis::scheduler

#endif  // SCHEDULER_DEVICES_H_
