#include "scheduler/devices.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/status.h"

namespace stasis::scheduler {

namespace {

// The lowest `count` bits of `mask`.
DeviceMask Lowest(DeviceMask mask, int count) {
  DeviceMask taken = 0;
  for (int i = 0; i < count; ++i) {
    const DeviceMask bit = mask & -mask;
    taken |= bit;
    mask &= ~bit;
  }
  return taken;
}

DeviceMask All(int devices) {
  const unsigned width = static_cast<unsigned>(devices);
  return width == kMaxDevicesPerNode ? ~DeviceMask{0} : (DeviceMask{1} << width) - 1;
}

}  // namespace

int CountDevices(const Placement& placement) {
  int count = 0;
  for (const NodeShare& share : placement) count += __builtin_popcountll(share.devices);
  return count;
}

Devices::Devices(const ClusterShape& shape) : shape_(shape), nodes_(static_cast<size_t>(shape.nodes)) {
  for (Node& node : nodes_) node = {All(shape.devices_per_node), shape.devices_per_node, true};
  total_ = free_ = shape.total();
}

NodeId Devices::AddNode(int devices) {
  STASIS_CHECK(devices >= 0 && devices <= shape_.devices_per_node);
  nodes_.push_back({All(devices), devices, true});
  ++shape_.nodes;
  total_ += devices;
  free_ += devices;
  return static_cast<NodeId>(nodes_.size() - 1);
}

std::optional<Placement> Devices::Find(int gpus, int max_nodes) const {
  if (gpus > free_) return std::nullopt;
  if (gpus <= shape_.devices_per_node) {
    if (std::optional<Placement> one = FindOnOneNode(gpus)) return one;
  }
  if (max_nodes == 1) return std::nullopt;
  std::optional<Placement> place = FindUnderOneSwitch(gpus);
  if (!place) place = FindUnderSwitches(gpus);
  const auto allowed = [max_nodes](const Placement& found) {
    return max_nodes == 0 || found.size() <= static_cast<size_t>(max_nodes);
  };
  if (allowed(*place)) return place;
  // On the fewest nodes, whatever switches they are under.
  std::vector<NodeId> all(nodes_.size());
  std::iota(all.begin(), all.end(), NodeId{0});
  place = Gather(std::move(all), gpus);
  return allowed(*place) ? place : std::nullopt;
}

Placement Devices::On(NodeId node, int gpus) const {
  STASIS_CHECK(FreeOn(node) >= gpus);
  return {{node, Lowest(nodes_[node].free, gpus)}};
}

bool Devices::IsFree(const Placement& placement) const {
  return std::all_of(placement.begin(), placement.end(), [this](const NodeShare& share) {
    return (nodes_[share.node].free & share.devices) == share.devices;
  });
}

std::optional<Placement> Devices::FindOnOneNode(int gpus) const {
  int best_left = shape_.devices_per_node + 1;
  NodeId best = 0;
  for (NodeId i = 0; i < nodes_.size(); ++i) {
    const int left = FreeCount(nodes_[i]) - gpus;
    if (left < 0 || left >= best_left) continue;
    best = i;
    best_left = left;
    if (left == 0) break;
  }
  if (best_left > shape_.devices_per_node) return std::nullopt;
  return Placement{{best, Lowest(nodes_[best].free, gpus)}};
}

Devices::Switch Devices::SwitchAt(size_t index) const {
  const size_t per_switch = static_cast<size_t>(shape_.nodes_per_switch);
  Switch one;
  for (size_t i = index * per_switch; i < std::min(nodes_.size(), (index + 1) * per_switch); ++i) {
    one.nodes.push_back(static_cast<NodeId>(i));
    one.room += FreeCount(nodes_[i]);
  }
  return one;
}

size_t Devices::SwitchCount() const {
  const size_t per_switch = static_cast<size_t>(shape_.nodes_per_switch);
  return (nodes_.size() + per_switch - 1) / per_switch;
}

// The switch that holds it on the fewest nodes; of those the one with the least room left.
std::optional<Placement> Devices::FindUnderOneSwitch(int gpus) const {
  std::optional<Placement> best;
  int best_room = 0;
  for (size_t i = 0; i < SwitchCount(); ++i) {
    Switch one = SwitchAt(i);
    if (one.room < gpus) continue;
    Placement placement = Gather(std::move(one.nodes), gpus);
    if (best &&
        (best->size() < placement.size() || (best->size() == placement.size() && best_room <= one.room)))
      continue;
    best = std::move(placement);
    best_room = one.room;
  }
  return best;
}

// The switches with the most room, as few as hold it.
Placement Devices::FindUnderSwitches(int gpus) const {
  std::vector<Switch> switches;
  for (size_t i = 0; i < SwitchCount(); ++i) switches.push_back(SwitchAt(i));
  std::stable_sort(switches.begin(), switches.end(),
                   [](const Switch& a, const Switch& b) { return a.room > b.room; });
  std::vector<NodeId> nodes;
  int room = 0;
  for (size_t i = 0; room < gpus; ++i) {
    nodes.insert(nodes.end(), switches[i].nodes.begin(), switches[i].nodes.end());
    room += switches[i].room;
  }
  return Gather(std::move(nodes), gpus);
}

// Whole nodes first, the fullest of the free; the rest where it fits most tightly.
Placement Devices::Gather(std::vector<NodeId> nodes, int gpus) const {
  std::stable_sort(nodes.begin(), nodes.end(),
                   [this](NodeId a, NodeId b) { return FreeCount(nodes_[a]) > FreeCount(nodes_[b]); });
  Placement placement;
  size_t next = 0;
  while (gpus > 0 && FreeCount(nodes_[nodes[next]]) < gpus) {
    const NodeId node = nodes[next++];
    placement.push_back({node, nodes_[node].free});
    gpus -= FreeCount(nodes_[node]);
  }
  if (gpus > 0) {
    size_t last = next;
    while (last + 1 < nodes.size() && FreeCount(nodes_[nodes[last + 1]]) >= gpus) ++last;
    placement.push_back({nodes[last], Lowest(nodes_[nodes[last]].free, gpus)});
  }
  std::sort(placement.begin(), placement.end(),
            [](const NodeShare& a, const NodeShare& b) { return a.node < b.node; });
  return placement;
}

void Devices::Take(const Placement& placement) {
  for (const NodeShare& share : placement) {
    Node& node = nodes_[share.node];
    STASIS_CHECK((node.free & share.devices) == share.devices);
    node.free &= ~share.devices;
    if (node.usable) free_ -= __builtin_popcountll(share.devices);
  }
}

void Devices::Release(const Placement& placement) {
  for (const NodeShare& share : placement) {
    Node& node = nodes_[share.node];
    STASIS_CHECK((node.free & share.devices) == 0);
    node.free |= share.devices;
    if (node.usable) free_ += __builtin_popcountll(share.devices);
  }
}

void Devices::SetUsable(NodeId node, bool usable) {
  if (nodes_[node].usable == usable) return;
  const int count = __builtin_popcountll(nodes_[node].free);
  nodes_[node].usable = usable;
  free_ += usable ? count : -count;
}

Spread Devices::SpreadOf(const Placement& placement) const {
  Spread spread;
  int last = -1;
  for (const NodeShare& share : placement) {
    ++spread.nodes;
    if (SwitchOf(share.node) != last) ++spread.switches;
    last = SwitchOf(share.node);
  }
  return spread;
}

Spread Devices::BestSpread(int gpus) const {
  const int nodes = (gpus + shape_.devices_per_node - 1) / shape_.devices_per_node;
  return {(nodes + shape_.nodes_per_switch - 1) / shape_.nodes_per_switch, nodes};
}

}  // namespace stasis::scheduler
