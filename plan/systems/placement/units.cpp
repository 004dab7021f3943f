#include "plan/systems/placement/units.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "common/base/depth_first.h"
#include "common/base/numbers.h"

namespace automap::placement {
namespace {

using Edges = std::vector<std::pair<int, int>>;

void sort_once(Edges* edges) {
  std::sort(edges->begin(), edges->end());
  edges->erase(std::unique(edges->begin(), edges->end()), edges->end());
}

// The group of every node where those of one colour are one, numbered by their first nodes.
std::vector<int> groups_by_colour(const Workload& workload) {
  std::vector<int> of_colour(at(workload.colours()), -1), out;
  int next = 0;
  for (const Node& node : workload.nodes) {
    if (node.colour == kNoColour) {
      out.push_back(next++);
    } else {
      if (of_colour[at(node.colour)] < 0) of_colour[at(node.colour)] = next++;
      out.push_back(of_colour[at(node.colour)]);
    }
  }
  return out;
}

// The strongly connected component of every vertex (Kosaraju).
std::vector<int> components(int vertices, const Edges& edges) {
  std::vector<std::vector<int>> next(at(vertices)), before(at(vertices));
  for (const auto& [from, to] : edges) {
    next[at(from)].push_back(to);
    before[at(to)].push_back(from);
  }
  std::vector<int> roots(at(vertices));
  std::iota(roots.begin(), roots.end(), 0);
  const std::vector<int> finished = finish_order(next, roots);
  std::vector<int> out(at(vertices), -1), waiting;
  int count = 0;
  for (auto root = finished.rbegin(); root != finished.rend(); ++root) {
    if (out[at(*root)] >= 0) continue;
    waiting = {*root};
    out[at(*root)] = count;
    while (!waiting.empty()) {
      const int v = waiting.back();
      waiting.pop_back();
      for (const int w : before[at(v)]) {
        if (out[at(w)] < 0) {
          out[at(w)] = count;
          waiting.push_back(w);
        }
      }
    }
    ++count;
  }
  return out;
}

Units units_of(const Workload& workload, const std::vector<int>& group_of_node) {
  // Numbered by their first nodes, so that the result does not depend on how groups were found.
  std::map<int, int> number;
  std::vector<int> of(group_of_node.size());
  Units out;
  for (int v = 0; v < workload.size(); ++v) {
    const auto [found, fresh] = number.emplace(group_of_node[at(v)], out.size());
    if (fresh) out.units.emplace_back();
    of[at(v)] = found->second;
    Unit& unit = out.units[at(found->second)];
    const Node& node = workload.nodes[at(v)];
    unit.nodes.push_back(v);
    unit.accelerator_ms += node.accelerator_ms;
    unit.cpu_ms += node.cpu_ms;
    unit.bytes += node.bytes;
    unit.on_accelerators = unit.on_accelerators && node.on_accelerators;
  }
  std::vector<std::set<int>> readers(workload.nodes.size());
  for (const auto& [from, to] : workload.edges) {
    if (of[at(from)] != of[at(to)]) readers[at(from)].insert(of[at(to)]);
  }
  std::map<std::pair<int, std::vector<int>>, double> transfers;
  for (int v = 0; v < workload.size(); ++v) {
    const double ms = workload.nodes[at(v)].transfer_ms;
    if (readers[at(v)].empty() || ms == 0) continue;
    transfers[{of[at(v)], {readers[at(v)].begin(), readers[at(v)].end()}}] += ms;
  }
  out.transfers_of.resize(out.units.size());
  for (auto& [key, ms] : transfers) {
    const int number_of_transfer = static_cast<int>(out.transfers.size());
    out.transfers_of[at(key.first)].push_back(number_of_transfer);
    for (const int reader : key.second) out.transfers_of[at(reader)].push_back(number_of_transfer);
    out.transfers.push_back({key.first, key.second, ms});
  }
  out.next.resize(out.units.size());
  out.before.resize(out.units.size());
  Edges edges;
  for (const auto& [from, to] : forward_order(workload)) {
    if (of[at(from)] != of[at(to)]) edges.emplace_back(of[at(from)], of[at(to)]);
  }
  sort_once(&edges);
  for (const auto& [from, to] : edges) {
    out.next[at(from)].push_back(to);
    out.before[at(to)].push_back(from);
  }
  return out;
}

// Merges weights and the like into their only neighbours, as long as there are any.
class LeafMerges {
 public:
  LeafMerges(const Workload& workload, std::vector<int> group) : group_(std::move(group)) {
    const std::size_t groups = at(1 + *std::max_element(group_.begin(), group_.end()));
    neighbours_.resize(groups);
    all_neighbours_.resize(groups);
    ms_.assign(groups, 0);
    keep_.assign(groups, 0);
    on_accelerators_.assign(groups, 1);
    into_.resize(groups);
    for (std::size_t g = 0; g < groups; ++g) into_[g] = static_cast<int>(g);
    for (int v = 0; v < workload.size(); ++v) {
      const Node& node = workload.nodes[at(v)];
      ms_[at(group_[at(v)])] += node.accelerator_ms + node.cpu_ms;
      if (!node.on_accelerators) on_accelerators_[at(group_[at(v)])] = 0;
    }
    for (const auto& [from, to] : workload.edges) {
      if (!workload.nodes[at(from)].backward && workload.nodes[at(to)].backward) keep_[at(group_[at(from)])] = 1;
      connect(from, to, &all_neighbours_);
    }
    for (const auto& [from, to] : forward_order(workload)) connect(from, to, &neighbours_);
  }

  std::vector<int> run() {
    std::vector<int> waiting;
    for (std::size_t g = neighbours_.size(); g > 0; --g) waiting.push_back(static_cast<int>(g - 1));
    while (!waiting.empty()) {
      const int leaf = waiting.back();
      waiting.pop_back();
      if (into_[at(leaf)] != leaf || ms_[at(leaf)] != 0 || keep_[at(leaf)] || neighbours_[at(leaf)].size() != 1 ||
          all_neighbours_[at(leaf)].size() != 1) {
        continue;
      }
      const int other = *neighbours_[at(leaf)].begin();
      if (on_accelerators_[at(leaf)] != on_accelerators_[at(other)]) continue;
      into_[at(leaf)] = other;
      neighbours_[at(other)].erase(leaf);
      all_neighbours_[at(other)].erase(leaf);
      waiting.push_back(other);
    }
    for (int& group : group_) {
      while (into_[at(group)] != group) group = into_[at(group)];
    }
    return group_;
  }

 private:
  using Neighbours = std::vector<std::set<int>>;  // of every group

  void connect(int from, int to, Neighbours* neighbours) const {
    const int one = group_[at(from)], other = group_[at(to)];
    if (one == other) return;
    (*neighbours)[at(one)].insert(other);
    (*neighbours)[at(other)].insert(one);
  }

  std::vector<int> group_;                  // of nodes
  Neighbours neighbours_, all_neighbours_;  // in the forward graph; by any edges
  std::vector<double> ms_;
  std::vector<char> keep_, on_accelerators_;
  std::vector<int> into_;
};

}  // namespace

std::vector<std::pair<int, int>> forward_order(const Workload& workload) {
  std::vector<char> has_forward(at(workload.colours()), 0);
  for (const Node& node : workload.nodes) {
    if (!node.backward && node.colour != kNoColour) has_forward[at(node.colour)] = 1;
  }
  const auto orphan = [&](const Node& node) {
    return node.backward && (node.colour == kNoColour || !has_forward[at(node.colour)]);
  };
  Edges out;
  for (const auto& [from, to] : workload.edges) {
    const Node &one = workload.nodes[at(from)], &other = workload.nodes[at(to)];
    if (!one.backward && !other.backward) out.emplace_back(from, to);
    if (one.backward && other.backward && (orphan(one) || orphan(other))) out.emplace_back(to, from);
  }
  return out;
}

Units colour_units(const Workload& workload) {
  return units_of(workload, groups_by_colour(workload));
}

Units contiguous_units(const Workload& workload) {
  std::vector<int> group = groups_by_colour(workload);
  Edges edges;
  for (const auto& [from, to] : forward_order(workload)) edges.emplace_back(group[at(from)], group[at(to)]);
  sort_once(&edges);
  const std::vector<int> component = components(1 + *std::max_element(group.begin(), group.end()), edges);
  for (int& g : group) g = component[at(g)];
  return units_of(workload, LeafMerges(workload, std::move(group)).run());
}

Placement placement_of(const Workload& workload, const Units& units, const std::vector<int>& device_of_unit) {
  Placement out;
  out.device.resize(workload.nodes.size());
  for (int u = 0; u < units.size(); ++u) {
    for (const int node : units.units[at(u)].nodes) out.device[at(node)] = device_of_unit[at(u)];
  }
  return out;
}

SetLoad::SetLoad(const Units& units)
    : units_(units), inside_(units.units.size(), 0), readers_inside_(units.transfers.size(), 0) {}

void SetLoad::add(int unit) {
  const Unit& added = units_.units[at(unit)];
  sums_.accelerator_ms += added.accelerator_ms;
  sums_.cpu_ms += added.cpu_ms;
  sums_.bytes += added.bytes;
  sums_.not_on_accelerators += added.on_accelerators ? 0 : 1;
  for (const int t : units_.transfers_of[at(unit)]) {
    const Transfer& transfer = units_.transfers[at(t)];
    const int readers = static_cast<int>(transfer.readers.size());
    int& inside = readers_inside_[at(t)];
    if (transfer.owner == unit) {
      // Was paid to come in, is paid to go out.
      sums_.transfer_ms += transfer.ms * ((inside < readers) - (inside > 0));
    } else {
      ++inside;
      if (inside_[at(transfer.owner)]) {
        if (inside == readers) sums_.transfer_ms -= transfer.ms;
      } else if (inside == 1) {
        sums_.transfer_ms += transfer.ms;
      }
    }
  }
  inside_[at(unit)] = 1;
}

void SetLoad::take_back(int unit, const Sums& before) {
  for (const int t : units_.transfers_of[at(unit)]) {
    if (units_.transfers[at(t)].owner != unit) --readers_inside_[at(t)];
  }
  inside_[at(unit)] = 0;
  sums_ = before;
}

}  // namespace automap::placement
