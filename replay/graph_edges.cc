#include "replay/graph_edges.h"

#include <algorithm>
#include <map>

namespace stasis::replay {

namespace {

using Edge = std::pair<size_t, size_t>;

// Each edge must come behind the one before it in the list of its target and in the list of its source.
struct Constraints {
  std::vector<Edge> edges;
  std::map<Edge, size_t> numbers;
  std::vector<std::vector<size_t>> later;
  std::vector<int> waiting;

  void Follow(Edge before, Edge after) {
    auto first = numbers.find(before), second = numbers.find(after);
    if (first == numbers.end() || second == numbers.end()) return;
    later[first->second].push_back(second->second);
    ++waiting[second->second];
  }
};

Constraints Collect(const std::vector<std::vector<size_t>>& dependencies,
                    const std::vector<std::vector<size_t>>& dependents) {
  Constraints all;
  for (size_t to = 0; to < dependencies.size(); ++to) {
    for (size_t from : dependencies[to]) {
      all.numbers.emplace(Edge{from, to}, all.edges.size());
      all.edges.emplace_back(from, to);
    }
  }
  all.later.resize(all.edges.size());
  all.waiting.resize(all.edges.size());
  for (size_t to = 0; to < dependencies.size(); ++to) {
    for (size_t i = 1; i < dependencies[to].size(); ++i)
      all.Follow({dependencies[to][i - 1], to}, {dependencies[to][i], to});
  }
  for (size_t from = 0; from < dependents.size(); ++from) {
    for (size_t i = 1; i < dependents[from].size(); ++i)
      all.Follow({from, dependents[from][i - 1]}, {from, dependents[from][i]});
  }
  return all;
}

}  // namespace

std::vector<Edge> OrderEdges(const std::vector<std::vector<size_t>>& dependencies,
                             const std::vector<std::vector<size_t>>& dependents) {
  Constraints all = Collect(dependencies, dependents);
  std::vector<size_t> ready;
  for (size_t i = 0; i < all.edges.size(); ++i) {
    if (all.waiting[i] == 0) ready.push_back(i);
  }
  for (size_t i = 0; i < ready.size(); ++i) {
    for (size_t next : all.later[ready[i]]) {
      if (--all.waiting[next] == 0) ready.push_back(next);
    }
  }
  if (ready.size() != all.edges.size()) return all.edges;
  std::vector<Edge> ordered;
  ordered.reserve(ready.size());
  for (size_t number : ready) ordered.push_back(all.edges[number]);
  return ordered;
}

}  // namespace stasis::replay
