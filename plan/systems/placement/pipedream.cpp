#include <algorithm>
#include <numeric>

#include "common/base/numbers.h"
#include "plan/systems/placement/baselines.h"
#include "plan/systems/placement/linearized.h"

namespace automap::placement {
namespace {

// The biconnected components of an undirected graph, as lists of vertices (Hopcroft and Tarjan, without recursion).
std::vector<std::vector<int>> biconnected(const std::vector<std::vector<int>>& neighbours) {
  const std::size_t n = neighbours.size();
  std::vector<int> depth(n, -1), low(n, 0), members;
  std::vector<std::vector<int>> out;
  struct Frame {
    int vertex, parent;
    std::size_t next;
  };
  std::vector<Frame> stack;
  for (std::size_t root = 0; root < n; ++root) {
    if (depth[root] >= 0) continue;
    stack = {{static_cast<int>(root), -1, 0}};
    depth[root] = 0;
    members = {static_cast<int>(root)};
    while (!stack.empty()) {
      Frame& frame = stack.back();
      const int v = frame.vertex;
      if (frame.next < neighbours[at(v)].size()) {
        const int w = neighbours[at(v)][frame.next++];
        if (w == frame.parent) continue;
        if (depth[at(w)] >= 0) {
          low[at(v)] = std::min(low[at(v)], depth[at(w)]);
          continue;
        }
        depth[at(w)] = low[at(w)] = depth[at(v)] + 1;
        members.push_back(w);
        stack.push_back({w, v, 0});
        continue;
      }
      const int parent = frame.parent;
      stack.pop_back();
      if (parent < 0) continue;
      low[at(parent)] = std::min(low[at(parent)], low[at(v)]);
      if (low[at(v)] < depth[at(parent)]) continue;
      // Everything since v is behind the parent.
      std::vector<int> component = {parent};
      while (component.back() != v) {
        component.push_back(members.back());
        members.pop_back();
      }
      out.push_back(std::move(component));
    }
  }
  return out;
}

}  // namespace

std::optional<Split> pipedream(const Workload& workload, const Units& units, Work* work, DpCounts* counts) {
  const std::vector<int> order = unit_orders(units, 1).front();
  std::vector<int> place(units.units.size());
  for (std::size_t i = 0; i < order.size(); ++i) place[at(order[i])] = static_cast<int>(i);
  std::vector<std::vector<int>> neighbours(units.units.size());
  for (int u = 0; u < units.size(); ++u) {
    neighbours[at(u)] = units.next[at(u)];
    neighbours[at(u)].insert(neighbours[at(u)].end(), units.before[at(u)].begin(), units.before[at(u)].end());
  }
  // Merged by colours: units of one component but its first get one.
  std::vector<int> group(units.units.size());
  std::iota(group.begin(), group.end(), 0);
  const auto root = [&](int u) {
    while (group[at(u)] != u) u = group[at(u)] = group[at(group[at(u)])];
    return u;
  };
  for (std::vector<int>& component : biconnected(neighbours)) {
    std::sort(component.begin(), component.end(), [&](int a, int b) { return place[at(a)] < place[at(b)]; });
    for (std::size_t i = 2; i < component.size(); ++i) group[at(root(component[i]))] = root(component[1]);
  }
  Workload merged = workload;
  for (int u = 0; u < units.size(); ++u) {
    for (const int node : units.units[at(u)].nodes) merged.nodes[at(node)].colour = root(u);
  }
  const Units chain = contiguous_units(merged);
  std::optional<Split> split = best_linearized(merged, chain, 1, work, counts);
  if (!split) return std::nullopt;
  const Placement placement = placement_of(merged, chain, split->device_of_unit);
  std::vector<int> device;
  for (const Unit& unit : units.units) device.push_back(placement.device[at(unit.nodes.front())]);
  return Split{split->max_load_ms, std::move(device)};
}

}  // namespace automap::placement
