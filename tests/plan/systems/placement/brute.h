// Random small workloads, and the best placements of them by looking at all: independent of plan/systems/placement but
// for the workload itself.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "common/base/rng.h"
#include "plan/systems/placement/workload.h"

namespace automap::placement {

struct SmallOptions {
  int most_nodes = 8, most_accelerators = 3, most_cpus = 1;
  bool training = false;
};

// Times and sizes are whole numbers. Where memory is limited no node takes no time, so that no unit is merged that
// memory would rather have apart (units.h).
inline Workload small_workload(std::uint64_t seed, const SmallOptions& options) {
  Rng rng(seed, 0x50, 0);
  const auto number = [&](int low, int high) { return low + static_cast<int>(rng.below(high - low + 1u)); };
  const auto coin = [&](int of) { return rng.below(static_cast<std::uint64_t>(of)) == 0; };
  Workload w;
  w.accelerators = number(coin(8) ? 0 : 1, options.most_accelerators);
  w.cpus = number(w.accelerators == 0 ? 1 : 0, options.most_cpus);
  const int n = number(2, options.most_nodes);
  const int forward = options.training ? (n + 1) / 2 : n;
  const bool limited = coin(2);
  if (limited) w.memory_bytes = number(8, 30);
  const int density = number(1, 4);
  for (int v = 0; v < n; ++v) {
    Node node;
    node.id = 10 + v;
    node.accelerator_ms = number(limited ? 1 : 0, 9);
    node.cpu_ms = coin(3) ? number(1, 9) : node.accelerator_ms * number(2, 10);
    if (limited) node.cpu_ms = std::max(1.0, node.cpu_ms);
    node.bytes = number(0, 9);
    node.transfer_ms = coin(4) ? 0 : number(0, 5);
    node.backward = v >= forward;
    node.on_accelerators = w.cpus == 0 || !coin(8);
    // Mostly the mirror image of a forward node, in its colour; the others alone, or in a colour of a few.
    if (node.backward && !coin(4)) {
      node.colour = n - 1 - v;
      w.nodes[static_cast<std::size_t>(n - 1 - v)].colour = n - 1 - v;
    } else if (coin(4)) {
      node.colour = n + number(0, 1);
    }
    w.nodes.push_back(node);
  }
  // Colours 0, 1, ...
  std::map<int, int> colours;
  for (Node& node : w.nodes) {
    if (node.colour == kNoColour) continue;
    node.colour = colours.emplace(node.colour, static_cast<int>(colours.size())).first->second;
  }
  for (int v = 0; v < n; ++v) {
    for (int u = 0; u < v; ++u) {
      if (coin(density + 1)) w.edges.emplace_back(u, v);
    }
  }
  return w;
}

// Classes of nodes that are placed together.
inline std::vector<std::vector<int>> classes_of(const Workload& w) {
  std::map<int, std::vector<int>> coloured;
  std::vector<std::vector<int>> out;
  for (int v = 0; v < w.size(); ++v) {
    const int colour = w.nodes[static_cast<std::size_t>(v)].colour;
    if (colour == kNoColour) {
      out.push_back({v});
    } else {
      coloured[colour].push_back(v);
    }
  }
  for (const auto& entry : coloured) out.push_back(entry.second);
  return out;
}

// Calls look(choice of every node) for every way to give each class one of `choices`.
inline void for_all(const Workload& w, int choices, const std::function<void(const std::vector<int>&)>& look) {
  const auto classes = classes_of(w);
  std::vector<int> choice(classes.size(), 0), of_node(w.nodes.size(), 0);
  while (true) {
    for (std::size_t c = 0; c < classes.size(); ++c) {
      for (const int v : classes[c]) of_node[static_cast<std::size_t>(v)] = choice[c];
    }
    look(of_node);
    std::size_t c = 0;
    while (c < choice.size() && ++choice[c] == choices) choice[c++] = 0;
    if (c == choice.size()) return;
  }
}

inline double ways(const Workload& w, int choices) {
  double out = 1;
  for (std::size_t c = 0; c < classes_of(w).size(); ++c) out *= choices;
  return out;
}

inline const Node& node_of(const Workload& w, int v) {
  return w.nodes[static_cast<std::size_t>(v)];
}

// The load of set S on an accelerator, word for word; nothing where it does not fit.
inline std::optional<double> accelerator_load(const Workload& w, const std::vector<char>& inside) {
  double ms = 0, bytes = 0;
  std::set<int> in, out;
  for (int v = 0; v < w.size(); ++v) {
    if (!inside[static_cast<std::size_t>(v)]) continue;
    if (!node_of(w, v).on_accelerators) return std::nullopt;
    ms += node_of(w, v).accelerator_ms;
    bytes += node_of(w, v).bytes;
  }
  if (bytes > w.memory_bytes) return std::nullopt;
  for (const auto& [u, v] : w.edges) {
    const bool from = inside[static_cast<std::size_t>(u)], to = inside[static_cast<std::size_t>(v)];
    if (!from && to) in.insert(u);
    if (from && !to) out.insert(u);
  }
  for (const int u : in) ms += node_of(w, u).transfer_ms;
  for (const int u : out) ms += node_of(w, u).transfer_ms;
  return ms;
}

inline std::optional<double> brute_load(const Workload& w, const std::vector<int>& device) {
  double most = 0;
  for (int d = 0; d < w.devices(); ++d) {
    std::vector<char> inside(w.nodes.size());
    for (std::size_t v = 0; v < w.nodes.size(); ++v) inside[v] = device[v] == d;
    double ms = 0;
    if (d < w.accelerators) {
      const std::optional<double> load = accelerator_load(w, inside);
      if (!load) return std::nullopt;
      ms = *load;
    } else {
      for (std::size_t v = 0; v < w.nodes.size(); ++v) ms += inside[v] ? w.nodes[v].cpu_ms : 0;
    }
    most = std::max(most, ms);
  }
  return most;
}

// True if the devices have an order for the forward edges and the mirror images of backward ones at colours without
// forward nodes: a device that nothing comes before is taken away, again and again.
inline bool brute_contiguous(const Workload& w, const std::vector<int>& device) {
  std::set<int> forward_colours;
  for (const Node& node : w.nodes) {
    if (!node.backward) forward_colours.insert(node.colour);
  }
  const auto orphan = [&](int v) {
    const Node& node = node_of(w, v);
    return node.backward && (node.colour == kNoColour || forward_colours.count(node.colour) == 0);
  };
  std::set<std::pair<int, int>> edges;
  for (const auto& [u, v] : w.edges) {
    const int a = device[static_cast<std::size_t>(u)], b = device[static_cast<std::size_t>(v)];
    const bool forward = !node_of(w, u).backward && !node_of(w, v).backward;
    const bool mirrored = node_of(w, u).backward && node_of(w, v).backward && (orphan(u) || orphan(v));
    if (a == b) continue;
    if (forward) edges.emplace(a, b);
    if (mirrored) edges.emplace(b, a);
  }
  std::set<int> left(device.begin(), device.end());
  while (!left.empty()) {
    const auto first = std::find_if(left.begin(), left.end(), [&](int d) {
      return std::none_of(edges.begin(), edges.end(),
                          [&](const auto& edge) { return edge.second == d && left.count(edge.first) > 0; });
    });
    if (first == left.end()) return false;
    left.erase(first);
  }
  return true;
}

inline std::optional<double> brute_throughput(const Workload& w, bool only_contiguous) {
  std::optional<double> best;
  for_all(w, w.devices(), [&](const std::vector<int>& device) {
    const std::optional<double> load = brute_load(w, device);
    if (load && (!best || *load < *best) && (!only_contiguous || brute_contiguous(w, device))) best = load;
  });
  return best;
}

// Choices: slot = accelerator * pieces + piece, then the CPU cores as one. By passes over all nodes and slots until
// nothing gets later any more; a circle never ends.
inline std::optional<double> brute_latency_of(const Workload& w, int pieces, const std::vector<int>& choice) {
  const int slots = w.accelerators * pieces;
  std::vector<double> length(static_cast<std::size_t>(slots), 0), bytes(static_cast<std::size_t>(w.accelerators), 0);
  Workload no_limit = w;
  no_limit.memory_bytes = 1e300;
  for (int slot = 0; slot < slots; ++slot) {
    std::vector<char> inside(w.nodes.size());
    for (std::size_t v = 0; v < w.nodes.size(); ++v) {
      inside[v] = choice[v] == slot;
      if (inside[v]) bytes[static_cast<std::size_t>(slot / pieces)] += w.nodes[v].bytes;
    }
    const std::optional<double> load = accelerator_load(no_limit, inside);
    if (!load) return std::nullopt;
    length[static_cast<std::size_t>(slot)] = *load;
  }
  for (const double b : bytes) {
    if (b > w.memory_bytes) return std::nullopt;
  }
  if (w.cpus == 0 && std::count(choice.begin(), choice.end(), slots) > 0) return std::nullopt;
  std::vector<double> start(static_cast<std::size_t>(slots), 0), begin(w.nodes.size(), 0), end(w.nodes.size(), 0);
  for (int pass = 0; pass < w.size() + slots + 2; ++pass) {
    const auto before = std::make_pair(start, end);
    for (int slot = 1; slot < slots; ++slot) {
      const auto s = static_cast<std::size_t>(slot);
      if (slot % pieces > 0) start[s] = std::max(start[s], start[s - 1] + length[s - 1]);
    }
    for (const auto& [u, v] : w.edges) {
      const int to = choice[static_cast<std::size_t>(v)];
      if (to == slots) {
        begin[static_cast<std::size_t>(v)] =
            std::max(begin[static_cast<std::size_t>(v)], end[static_cast<std::size_t>(u)]);
      } else if (choice[static_cast<std::size_t>(u)] != to) {
        start[static_cast<std::size_t>(to)] =
            std::max(start[static_cast<std::size_t>(to)], end[static_cast<std::size_t>(u)]);
      }
    }
    for (std::size_t v = 0; v < w.nodes.size(); ++v) {
      const auto s = static_cast<std::size_t>(choice[v]);
      end[v] = choice[v] == slots ? begin[v] + w.nodes[v].cpu_ms : start[s] + length[s];
    }
    if (before == std::make_pair(start, end)) return *std::max_element(end.begin(), end.end());
  }
  return std::nullopt;
}

inline std::optional<double> brute_latency(const Workload& w, int pieces) {
  std::optional<double> best;
  for_all(w, w.accelerators * pieces + 1, [&](const std::vector<int>& choice) {
    const std::optional<double> latency = brute_latency_of(w, pieces, choice);
    if (latency && (!best || *latency < *best)) best = latency;
  });
  return best;
}

}  // namespace automap::placement
