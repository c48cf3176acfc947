// Edges of a graph in an order in which they can be added again, so that every node lists its neighbours in
// the order it had. Drivers pair the nodes of two graphs by these orders (cuGraphExecUpdate).
#ifndef REPLAY_GRAPH_EDGES_H_
#define REPLAY_GRAPH_EDGES_H_

#include <cstddef>
#include <utility>
#include <vector>

namespace stasis::replay {

// `dependencies[n]` and `dependents[n]` list the neighbours of node n in the driver's order. The pairs are
// {from, to}. Lists that no sequence of additions can have made give the order of the dependencies.
std::vector<std::pair<size_t, size_t>> OrderEdges(const std::vector<std::vector<size_t>>& dependencies,
                                                  const std::vector<std::vector<size_t>>& dependents);

}  // namespace stasis::replay

#endif  // REPLAY_GRAPH_EDGES_H_
