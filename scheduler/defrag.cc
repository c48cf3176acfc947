// The jobs to be moved are looked for first, their new places second: a set of jobs is good when, all of them
// taken away, the gang and they can be packed again. Sets are tried from the fewest bytes on.
#include "scheduler/defrag.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <utility>

namespace stasis::scheduler {
namespace {

constexpr int kMaxSets = 20000;      // looked at by the exact search
constexpr size_t kMaxNodeSets = 32;  // by the other one
constexpr int kMaxPackings = 2000;   // of one set

int64_t BytesOf(const Job& job) {
  // A job without bytes is not moved for nothing either.
  return std::max<int64_t>(1, job.spec.active_bytes_per_gpu * job.gpus);
}

// What has to find a place: the gang (`job` < 0), or a job that is moved.
struct Item {
  int64_t job = -1;
  int gpus = 0, max_nodes = 0;
  Placement place;
};

// Finds places for all items, the ones that want one node by trying, the others where they fit best then.
class Packing {
 public:
  Packing(Devices devices, std::vector<Item> items) : devices_(std::move(devices)), items_(std::move(items)) {
    std::stable_sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) {
      const bool one_a = a.max_nodes == 1, one_b = b.max_nodes == 1;
      return one_a != one_b ? one_a : a.gpus > b.gpus;
    });
  }
  bool Solve() { return Place(0); }
  const std::vector<Item>& items() const { return items_; }

 private:
  bool Place(size_t at) {
    if (at == items_.size()) return true;
    if (++tried_ > kMaxPackings) return false;
    Item& item = items_[at];
    if (item.max_nodes != 1) {
      std::optional<Placement> place = devices_.Find(item.gpus, item.max_nodes);
      return place && PlaceAt(at, std::move(*place));
    }
    // Nodes with as many free devices are as good as each other.
    std::vector<std::pair<int, NodeId>> nodes;
    for (NodeId node = 0; node < static_cast<NodeId>(devices_.shape().nodes); ++node) {
      const int free = devices_.FreeOn(node);
      if (free < item.gpus) continue;
      const bool known =
          std::any_of(nodes.begin(), nodes.end(), [free](const auto& other) { return other.first == free; });
      if (!known) nodes.emplace_back(free, node);
    }
    std::sort(nodes.begin(), nodes.end());  // the tightest first
    return std::any_of(nodes.begin(), nodes.end(),
                       [&](const auto& node) { return PlaceAt(at, devices_.On(node.second, item.gpus)); });
  }

  bool PlaceAt(size_t at, Placement place) {
    devices_.Take(place);
    items_[at].place = place;
    if (Place(at + 1)) return true;
    devices_.Release(place);
    return false;
  }

  Devices devices_;
  std::vector<Item> items_;
  int tried_ = 0;
};

class Search {
 public:
  Search(const State& state, const Devices& devices, const std::vector<JobId>& movable, int gpus,
         int max_nodes)
      : state_(state), devices_(devices), movable_(movable), gpus_(gpus), max_nodes_(max_nodes) {
    std::stable_sort(movable_.begin(), movable_.end(),
                     [this](JobId a, JobId b) { return Bytes(a) < Bytes(b); });
  }

  std::optional<Defragmentation> Run() {
    if (devices_.free() < gpus_) return std::nullopt;
    SearchNodes();
    if (movable_.size() <= kExactJobs) SearchSets();
    return std::move(best_);
  }

 private:
  int64_t Bytes(JobId id) const { return BytesOf(state_.job(id)); }
  int64_t bound() const { return best_ ? best_->bytes : std::numeric_limits<int64_t>::max(); }

  // ---- Every set, from the fewest bytes on

  struct Set {
    int64_t bytes = 0;
    std::vector<size_t> members;  // of movable_, ascending
    bool operator<(const Set& other) const {
      return bytes != other.bytes ? bytes > other.bytes : members > other.members;
    }
  };

  void SearchSets() {
    std::priority_queue<Set> sets;
    if (!movable_.empty()) sets.push({Bytes(movable_[0]), {0}});
    for (int looked = 0; !sets.empty() && looked < kMaxSets; ++looked) {
      const Set set = sets.top();
      sets.pop();
      if (set.bytes >= bound()) return;
      std::vector<JobId> jobs;
      for (const size_t member : set.members) jobs.push_back(movable_[member]);
      if (Try(jobs)) return;
      PushSuccessors(set, &sets);
    }
  }

  // Each set has one predecessor: without its last member, or with that one's neighbour instead of it.
  void PushSuccessors(const Set& set, std::priority_queue<Set>* sets) const {
    const size_t last = set.members.back();
    if (last + 1 == movable_.size()) return;
    const int64_t next = Bytes(movable_[last + 1]);
    Set longer = set, other = set;
    longer.members.push_back(last + 1);
    longer.bytes += next;
    other.members.back() = last + 1;
    other.bytes += next - Bytes(movable_[last]);
    sets->push(std::move(longer));
    sets->push(std::move(other));
  }

  // ---- What stands on nodes that are to be cleared

  struct Clearing {
    int64_t bytes = 0;
    std::vector<JobId> jobs;
    bool operator<(const Clearing& other) const {
      return bytes != other.bytes ? bytes < other.bytes : jobs < other.jobs;
    }
  };

  void SearchNodes() {
    std::vector<std::vector<JobId>> on_node(static_cast<size_t>(devices_.shape().nodes));
    for (const JobId id : movable_) {
      for (const NodeShare& share : state_.job(id).placement) on_node[share.node].push_back(id);
    }
    std::vector<Clearing> clearings;
    for (std::vector<NodeId>& nodes : NodeSets()) {
      if (std::optional<Clearing> clearing = Clear(nodes, on_node)) clearings.push_back(std::move(*clearing));
    }
    std::sort(clearings.begin(), clearings.end());
    if (clearings.size() > kMaxNodeSets) clearings.resize(kMaxNodeSets);
    for (const Clearing& clearing : clearings) {
      if (Try(clearing.jobs)) return;
    }
  }

  // Each run of so many nodes, when they are in the order of what is free on them.
  std::vector<std::vector<NodeId>> NodeSets() const {
    std::vector<NodeId> nodes;
    for (NodeId node = 0; node < static_cast<NodeId>(devices_.shape().nodes); ++node) {
      if (devices_.usable(node)) nodes.push_back(node);
    }
    std::stable_sort(nodes.begin(), nodes.end(),
                     [this](NodeId a, NodeId b) { return devices_.FreeOn(a) > devices_.FreeOn(b); });
    std::vector<std::vector<NodeId>> sets;
    const size_t size = std::min(nodes.size(), static_cast<size_t>(max_nodes_));
    for (size_t i = 0; size > 0 && i + size <= nodes.size(); ++i)
      sets.emplace_back(nodes.begin() + static_cast<ptrdiff_t>(i),
                        nodes.begin() + static_cast<ptrdiff_t>(i + size));
    return sets;
  }

  // The jobs with the fewest bytes that free enough of these nodes: a knapsack over the devices freed.
  std::optional<Clearing> Clear(const std::vector<NodeId>& nodes,
                                const std::vector<std::vector<JobId>>& on_node) const {
    int need = gpus_;
    std::vector<std::pair<JobId, int>> freed;  // by job, ascending
    for (const NodeId node : nodes) {
      need -= devices_.FreeOn(node);
      for (const JobId id : on_node[node]) freed.emplace_back(id, FreedOn(node, id));
    }
    if (need <= 0) return std::nullopt;  // scattered over more nodes than are allowed
    Merge(&freed);
    std::vector<std::optional<Clearing>> best(static_cast<size_t>(need) + 1);
    best[0] = Clearing{};
    for (const auto& [id, devices] : freed) {
      for (int have = need; have >= 0; --have) {
        if (!best[static_cast<size_t>(have)] || have == need) continue;
        Clearing more = *best[static_cast<size_t>(have)];
        more.bytes += Bytes(id);
        more.jobs.push_back(id);
        std::optional<Clearing>& there = best[static_cast<size_t>(std::min(need, have + devices))];
        if (!there || more < *there) there = std::move(more);
      }
    }
    return best.back();
  }

  int FreedOn(NodeId node, JobId id) const {
    int freed = 0;
    for (const NodeShare& share : state_.job(id).placement) {
      if (share.node == node) freed += __builtin_popcountll(share.devices);
    }
    return freed;
  }

  static void Merge(std::vector<std::pair<JobId, int>>* freed) {
    std::sort(freed->begin(), freed->end());
    std::vector<std::pair<JobId, int>> merged;
    for (const auto& [id, devices] : *freed) {
      if (!merged.empty() && merged.back().first == id) {
        merged.back().second += devices;
      } else {
        merged.emplace_back(id, devices);
      }
    }
    *freed = std::move(merged);
  }

  // ---- One set

  // Whether moving these makes the room; then it is the best so far, as long as it is better.
  bool Try(const std::vector<JobId>& jobs) {
    Devices without = devices_;
    std::vector<Item> items = {{-1, gpus_, max_nodes_, {}}};
    Defragmentation plan;
    for (const JobId id : jobs) {
      const Job& job = state_.job(id);
      without.Release(job.placement);
      items.push_back({id, job.gpus, job.spec.max_nodes, {}});
      plan.bytes += BytesOf(job);
      plan.cost += job.gpus * static_cast<double>(state_.settings().MoveCost(job.spec.active_bytes_per_gpu));
    }
    if (plan.bytes >= bound()) return false;
    Packing packing(std::move(without), std::move(items));
    if (!packing.Solve()) return false;
    for (const Item& item : packing.items()) {
      if (item.job < 0) plan.place = item.place;
    }
    plan.actions = Order(packing.items());
    best_ = std::move(plan);
    return true;
  }

  // Each move when its devices are free; where none is, the next job steps aside.
  std::vector<Action> Order(std::vector<Item> moves) const {
    std::erase_if(moves, [](const Item& item) { return item.job < 0; });
    std::vector<Action> actions;
    std::vector<JobId> aside;
    Devices now = devices_;
    const auto is_aside = [&aside](JobId id) {
      return std::find(aside.begin(), aside.end(), id) != aside.end();
    };
    while (!moves.empty()) {
      const auto next = std::find_if(moves.begin(), moves.end(), [&](const Item& move) {
        Devices without = now;
        if (!is_aside(static_cast<JobId>(move.job)))
          without.Release(state_.job(static_cast<JobId>(move.job)).placement);
        return without.IsFree(move.place);
      });
      const auto chosen =
          next != moves.end() ? next : std::find_if(moves.begin(), moves.end(), [&](const Item& move) {
            return !is_aside(static_cast<JobId>(move.job));
          });
      const JobId id = static_cast<JobId>(chosen->job);
      const bool was_aside = is_aside(id);
      if (!was_aside) now.Release(state_.job(id).placement);
      if (next == moves.end()) {
        actions.push_back({ActionKind::kPause, id, {}});
        aside.push_back(id);
        continue;
      }
      now.Take(chosen->place);
      actions.push_back({was_aside ? ActionKind::kResume : ActionKind::kMigrate, id, chosen->place});
      moves.erase(chosen);
    }
    return actions;
  }

  const State& state_;
  const Devices& devices_;
  std::vector<JobId> movable_;  // by bytes
  const int gpus_, max_nodes_;
  std::optional<Defragmentation> best_;
};

}  // namespace

std::optional<Defragmentation> PlanRoom(const State& state, const Devices& devices,
                                        const std::vector<JobId>& movable, int gpus, int max_nodes) {
  STASIS_CHECK(max_nodes > 0);
  return Search(state, devices, movable, gpus, max_nodes).Run();
}

}  // namespace stasis::scheduler
